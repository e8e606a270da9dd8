"""Messages that wait for their time: the next ones in memory, the others in sorted runs.

The messages of one TIMER record are one *timer*. Its number is the position of its first TIMER
record. The timers that wait are

    those in memory, and the entries of all runs that were not taken, except those in `gone`

A run is a sorted list of entries, in memory or in a file, and never changes. Entries are taken from
the runs in the order in which they are due, so the entries that were taken from a run are its first
ones. A timer that ends while an entry of it is still in a run is *gone*: the entry is skipped when
it is reached. A timer that was carried forward has two entries, and the newer one counts.

So memory does not grow with the number of timers. All of it is guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

from fmq.store.bytes.kinds import Run
from fmq.store.bytes.timing import Timing, timing_in
from fmq.store.index.due_runs import (
    ENTRY_BYTES,
    KEY,
    NUMBER,
    SUFFIX,
    Due,
    DueRun,
    due_in,
    due_of,
    merged,
    number_in,
    position_in,
)
from fmq.store.journal.segment import segment_name
from fmq.tx.ledger.state import IllegalStep

# The head of a TIMER record takes at most this, and usually less.
HEAD_BYTES = 256


class Bounds(NamedTuple):
    """Limits of memory and time for timers."""

    near: int = 1 << 15
    """Timers in memory. If there are more, those that are due last become a run."""
    noted: int = 128
    """Those that a checkpoint names. If there are more, the others become a run before it."""
    runs: int = 12
    gone: int = 1 << 16


BOUNDS = Bounds()


class View(NamedTuple):
    """All timers at one instant, to be read without the lock. Its runs stay open while it
    exists.
    """

    runs: list[DueRun]
    starts: list[int]
    near: list[bytes]
    gone: frozenset[bytes]

    def entries(self) -> Iterator[bytes]:
        """Yield the entries in the order in which they are due."""
        runs = zip(self.runs, self.starts, strict=True)
        return merged([*(run.entries(at) for run, at in runs), sorted(self.near)], self.gone)


class Timers:
    """The timers of a journal, up to the last append applied."""

    def __init__(self, known_from: int = 0, bounds: Bounds = BOUNDS) -> None:
        """A timer with a number below `known_from` may be unknown when a record ends it."""
        self.bounds = bounds
        self.is_known = True  # False in a read-only engine, which does not track timers
        self.waiting = 0  # how many timers wait
        self.messages = 0  # how many messages are in these timers
        self.bytes = 0  # how many bytes the bodies of these messages have
        self.known_from = known_from
        self.changed_at = -1  # the position of the last record that changed a timer
        self.sooner = False  # True if a timer was added that is due before all others
        # While it is a set, the numbers of timers that end are added to it.
        self.ended: set[int] | None = None
        self._near: dict[int, bytes] = {}  # number of a timer -> its entry
        # The entries of `_near` as a heap, with some that are out of date.
        self._heap: list[bytes] = []
        # Timers that `due` has returned and that are about to be published, with their entries.
        self._taken: dict[int, bytes] = {}
        self.aside: set[int] = set()  # the numbers of taken timers that cannot be read
        self.largest = 0  # bytes of the largest TIMER record so far
        self._runs: list[DueRun] = []
        self.gone: set[bytes] = set()
        self.obsolete: list[DueRun] = []  # runs that the next checkpoint no longer names
        self.next_name = 1

    # --- transitions, in a replay and in the running engine -----------------------------------

    def add(self, run: Run) -> None:
        """Apply a TIMER: a new timer, or one that was carried forward. Raises IllegalStep."""
        if not self.is_known:
            return
        timing = timing_in(run.extension)
        if timing is None:
            raise IllegalStep("a TIMER that does not say when it is due")
        number = timing.number or run.position
        due = Due(timing.due_us, number, run.position, run.size, run.count, run.raw_bytes)
        if not timing.number or self.find(timing) is None:
            if timing.number >= self.known_from and timing.number:
                raise IllegalStep(f"the timer {number}, which has ended, is carried forward")
            self.waiting += 1
            self.messages += run.count
            self.bytes += run.raw_bytes
        self.largest = max(self.largest, run.size)
        if number in self._taken:
            self._taken[number] = due.packed()
            return
        self._put(due.packed(), number)
        if len(self._near) > self.bounds.near:
            self._spill(self.bounds.near // 8)

    def fire(self, number: int, time_us: int) -> None:
        """Apply the publication of a timer at `time_us`. Raises IllegalStep."""
        entry = self.check_due(number, time_us)
        if entry is not None:
            self._end(entry, number)

    def check_due(self, number: int, time_us: int) -> bytes | None:
        """Return the entry of a timer that is published at `time_us`. Return None if an old one is
        unknown.

        Raises IllegalStep if the timer does not wait, or is not due.
        """
        if not self.is_known:
            return None
        entry = self._taken.get(number) or self._near.get(number)
        while entry is None and self._load_one(time_us):
            entry = self._near.get(number)
        if entry is None:
            if number >= self.known_from:
                raise IllegalStep(f"the timer {number} is published, and does not wait")
            return None
        if due_in(entry) > time_us:
            raise IllegalStep(f"the timer {number} is published before it is due")
        return entry

    def recall(self, timing: Timing) -> None:
        """Apply the recall of a timer. Raises IllegalStep."""
        if not self.is_known:
            return
        entry = self.find(timing)
        if entry is not None:
            self._end(entry, timing.number)
        elif timing.number >= self.known_from:
            raise IllegalStep(f"the timer {timing.number} is recalled, and does not wait")

    def _put(self, entry: bytes, number: int) -> None:
        self._near[number] = entry
        if not self._heap or entry < self._heap[0]:
            self.sooner = True
        heappush(self._heap, entry)

    def _end(self, entry: bytes, number: int) -> None:
        due = due_of(entry)
        self.waiting -= 1
        self.messages -= due.messages
        self.bytes -= due.raw_bytes
        in_memory = self._taken.pop(number, None) or self._near.pop(number, None)
        if self.ended is not None:
            self.ended.add(number)
        if in_memory is None or due.position != number:
            # A run may hold the timer's only entry, or an older one from before it was carried
            # forward.
            heads = [run.head for run in self._runs if run.head is not None]
            if any(head[KEY] <= entry[KEY] for head in heads):
                self.gone.add(entry[NUMBER])
        if len(self._heap) > 2 * len(self._near) + 1024:
            self._heap = [*self._near.values()]
            heapify(self._heap)

    # --- looking ------------------------------------------------------------------------------

    def find(self, timing: Timing) -> bytes | None:
        """Return the entry of a timer if it waits. The entry may be out of date if the timer was
        carried forward.
        """
        number = timing.number
        entry = self._taken.get(number) or self._near.get(number)
        if entry is not None:
            return entry if due_in(entry) == timing.due_us else None
        key = Due(timing.due_us, number, 0, 0, 0, 0).packed()[KEY]
        if key[8:] in self.gone:
            return None
        return next((found for run in self._runs if (found := run.find(key)) is not None), None)

    def is_taken(self, number: int) -> bool:
        """Return whether a timer that `due` has returned still waits to be published."""
        return number in self._taken

    def next_due_us(self) -> int | None:
        """Return when the next timer is due, leaving out those taken by `due`; None if there is
        none.
        """
        self._drop_stale()
        while heads := [run.head for run in self._runs if run.head is not None]:
            first = min(heads)
            if first[NUMBER] not in self.gone:
                break
            # To load an entry that is gone means to skip it.
            self._load_one(due_in(first))
        first = min(heads + self._heap[:1], default=b"")
        return due_in(first) if first else None

    def due(self, now_us: int, limit: int, bytes_max: int) -> list[Due]:
        """Take up to `limit` timers that are due at `now_us`, with up to `bytes_max` bytes. They
        count as waiting until they end. `put_back` returns those that do not end.
        """
        found: list[Due] = []
        size = 0
        while len(found) < limit:
            self._drop_stale()
            while self._load_one(now_us, self._heap[0] if self._heap else None):
                pass
            # The loaded entry is stale, because a newer entry of its timer was loaded.
            self._drop_stale()
            if not self._heap or due_in(self._heap[0]) > now_us:
                break
            due = due_of(self._heap[0])
            size += due.size
            if found and size > bytes_max:
                break
            heappop(self._heap)
            self._taken[due.number] = self._near.pop(due.number)
            found.append(due)
        return found

    def put_back(self) -> None:
        """Let the timers that `due` has returned be taken again, except those that have ended."""
        back = [number for number in self._taken if number not in self.aside]
        for number in back:
            self._put(self._taken.pop(number), number)

    def _drop_stale(self) -> None:
        heap, near = self._heap, self._near
        while heap and near.get(number_in(heap[0])) != heap[0]:
            heappop(heap)

    def view(self) -> View:
        """Return all timers as they are now."""
        runs = [run for run in self._runs if run.head is not None]
        near = [*self._near.values(), *self._taken.values()]
        return View(runs, [run.at for run in runs], near, frozenset(self.gone))

    def held_bytes(self) -> int:
        """Return about how many bytes of the journal the waiting timers take. The number may be a
        little too large.
        """
        return self.bytes + HEAD_BYTES * self.waiting

    def has_below(self, position: int) -> bool:
        """Return whether a timer that waits may have its record below `position`."""
        near = [*self._near.values(), *self._taken.values()]
        return any(run.lowest < position for run in self._runs) or any(
            position_in(entry) < position for entry in near
        )

    def after(self, key: bytes, limit: int) -> list[Due]:
        """Return up to `limit` timers that follow the entry `key`, in the order of entries."""
        runs = [run.entries(run.place_after(key)) for run in self._runs if run.head is not None]
        near = [*self._near.values(), *self._taken.values()]
        rest = sorted(entry for entry in near if entry[KEY] > key)
        return [due_of(entry) for entry in islice(merged([*runs, rest], self.gone), limit)]

    def state(self) -> tuple[object, ...]:
        """Return what a test compares with a replay: counts, and a digest of all timers that
        wait.
        """
        digest = blake2b(digest_size=16)
        for entry in self.view().entries():
            digest.update(entry)
        return self.waiting, self.messages, self.bytes, digest.hexdigest()

    # --- from runs to memory and back ---------------------------------------------------------

    def _load_one(self, until_us: int, before: bytes | None = None) -> bool:
        """Load the first timer of all runs into memory, with all its entries, if it is due by
        `until_us`. With `before`, load it only if it precedes that entry. Return whether one was
        loaded.
        """
        entry = min((run.head for run in self._runs if run.head is not None), default=b"")
        if not entry or due_in(entry) > until_us:
            return False
        if before is not None and entry[KEY] > before[KEY]:
            return False
        number, key = number_in(entry), entry[KEY]
        for run in [each for each in self._runs if each.head is not None]:
            # Of several entries of a timer, the newest counts.
            while run.head is not None and run.head[KEY] == key:
                entry = max(entry, run.head)
                run.take(1)
            if run.head is None:
                self._runs.remove(run)
                self.obsolete.append(run)
        if entry[NUMBER] in self.gone:
            self.gone.discard(entry[NUMBER])
        elif number not in self._taken and self._near.get(number, b"") < entry:
            self._near[number] = entry
            heappush(self._heap, entry)
        return True

    def _spill(self, keep: int) -> None:
        """Move the entries in memory to a new run, except the `keep` that are due first."""
        entries = sorted(self._near.values())
        self._near = {number_in(entry): entry for entry in entries[:keep]}
        self._heap = entries[:keep]
        if len(entries) > keep:
            self._runs.append(DueRun.of(entries[keep:]))

    def to_merge(self, *, all_of_them: bool = False) -> list[DueRun]:
        """Return the runs that should be merged into one; an empty list while there are few
        runs.
        """
        if len(self.gone) > self.bounds.gone or all_of_them:
            return [*self._runs]
        if len(self._runs) <= self.bounds.runs:
            return []
        runs = sorted(self._runs, key=lambda run: run.count - run.at)
        total, last = 0, 2
        for i, run in enumerate(runs):
            size = run.count - run.at
            if size <= 2 * total:
                last = max(last, i + 1)
            total += size
        return runs[:last]

    def replace(
        self, old: list[DueRun], starts: list[int], new: DueRun | None, gone: frozenset[bytes]
    ) -> None:
        """Put the run `new` in the place of the runs `old`, from which it was merged.

        The merge took the entries of each old run from its index in `starts` on, without the
        timers in `gone`.
        """
        taken = [run.before(run.at) for run, at in zip(old, starts, strict=True) if run.at > at]
        self._runs = [run for run in self._runs if run not in old]
        self.obsolete += [run for run in old if run not in self.obsolete]
        if new is not None:
            if taken:
                # The entries that were loaded during the merge are the first ones of `new`.
                new.skip_to(max(taken)[KEY])
            (self._runs if new.head is not None else self.obsolete).append(new)
        if not any(run is not new for run in self._runs):
            self.gone -= gone

    # --- for a checkpoint ---------------------------------------------------------------------

    def noted(self, store: bytes) -> dict[str, Any] | None:
        """Return what a checkpoint of this instant has to say; None if nothing waits. The files
        that it names are not written yet.
        """
        if not self.waiting:
            self.obsolete, self._runs = [*self.obsolete, *self._runs], []
            self.gone = set()
            return None
        if len(self._near) > self.bounds.noted:
            self._spill(self.bounds.noted // 2)
        for run in self._runs:
            if not run.name:
                run.name_file(self.new_name(), store)
        near = [*self._near.values(), *self._taken.values()]
        return {
            "runs": [[run.name, run.at, run.crc] for run in self._runs],
            "near": b"".join(near).hex(),
            "gone": b"".join(sorted(self.gone)).hex(),
            "counts": [self.waiting, self.messages, self.bytes, self.largest],
        }

    def new_name(self) -> str:
        """Return a new name for a file."""
        self.next_name += 1
        return segment_name(self.next_name - 1, SUFFIX)

    def unsaved(self) -> list[DueRun]:
        """Return the runs that have a name, but no file yet."""
        return [run for run in self._runs if run.name and not run.is_saved]

    def carry(self, noted: dict[str, Any], runs: list[DueRun]) -> None:
        """Take over what `noted` returned at an earlier time, with the runs that it names."""
        self._runs = [run for run in runs if run.head is not None]
        near, gone = bytes.fromhex(noted["near"]), bytes.fromhex(noted["gone"])
        for at in range(0, len(near), ENTRY_BYTES):
            entry = near[at : at + ENTRY_BYTES]
            self._put(entry, number_in(entry))
        self.gone = {gone[at : at + 8] for at in range(0, len(gone), 8)}
        self.waiting, self.messages, self.bytes, self.largest = noted["counts"]

    def close(self) -> None:
        """Close all files."""
        for run in (*self._runs, *self.obsolete):
            run.close()

    def copy(self) -> Timers:
        """Return a copy in memory. For tests."""
        copy = Timers(self.known_from)
        copy.is_known = self.is_known
        for entry in self.view().entries():
            copy._put(entry, number_in(entry))
        copy.waiting, copy.messages, copy.bytes = self.waiting, self.messages, self.bytes
        return copy

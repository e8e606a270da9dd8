"""The messages that wait for their time: the nearest in memory, the others in sorted runs.

Each is a *timer*, named by its number: the position of its first TIMER record. What waits is

    those in memory, and the entries of all runs that were not taken, without those in `gone`

A run is never changed. Entries are taken from the runs in the order in which they are due, so what
was taken of a run is its beginning. A timer that ends while an entry of it is in a run is *gone*
until that entry is taken. A timer that was carried forward has two entries: the newer one counts.

So memory does not grow with the number of timers. It is guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from fmq.disk import Directory
from fmq.store.due_runs import (
    ENTRY_BYTES,
    KEY,
    NUMBER,
    SUFFIX,
    BadRun,
    Due,
    DueRun,
    due_in,
    due_of,
    merged,
    number_in,
)
from fmq.store.extension import Timing, timing_in
from fmq.store.kinds import Run
from fmq.store.segment import base_of, belongs, segment_name
from fmq.tx.state import IllegalStep

NEAR_MAX = 1 << 15  # timers in memory; with more the far ones become a run
NOTED_MAX = 128  # of them that a checkpoint names; others become a run before
RUNS_MAX = 12
GONE_MAX = 1 << 16


class View(NamedTuple):
    """All timers at one instant, to be read without the lock."""

    runs: list[DueRun]
    starts: list[int]
    near: list[bytes]
    gone: frozenset[bytes]

    def sources(self) -> list[Iterable[bytes]]:
        """Return the sorted entries of all, each run by itself."""
        runs = zip(self.runs, self.starts, strict=True)
        return [*(run.entries(start) for run, start in runs), sorted(self.near)]


class Timers:
    """The timers of a journal, up to the last append applied."""

    def __init__(self, known_from: int = 0) -> None:
        """A timer with a number below `known_from` may be met only where it ends."""
        self.is_known = True  # False: a reader that keeps no account of timers
        self.waiting = 0  # timers
        self.messages = 0  # in them
        self.bytes = 0  # of their bodies
        self.known_from = known_from
        self.sooner = False  # whether one was added that is due before all others
        self.ended: set[int] | None = None  # the numbers of those that end, while this is a set
        self._near: dict[int, bytes] = {}  # those in memory
        self._heap: list[bytes] = []  # their entries, and some that count no more
        self._runs: list[DueRun] = []
        self._gone: set[bytes] = set()
        self._obsolete: list[DueRun] = []  # runs that the next checkpoint does not name
        self._next_name = 1

    # --- transitions, in a replay and in the running engine ----------------------------------------

    def add(self, run: Run) -> None:
        """Apply a TIMER: a new timer, or one that is carried forward. Raises IllegalStep."""
        if not self.is_known:
            return
        timing = timing_in(run.extension)
        if timing is None:
            raise IllegalStep("a TIMER that does not say when it is due")
        number = timing.number or run.position
        raw = run.raw_bytes if run.content is None else run.content.raw_bytes
        due = Due(timing.due_us, number, run.position, run.size, run.count, raw)
        if not timing.number or not self._counted(timing):
            self.waiting += 1
            self.messages += run.count
            self.bytes += raw
        self._put(due.packed(), number)

    def _counted(self, timing: Timing) -> bool:
        """Return whether a timer that is carried forward was met before."""
        known = timing.number >= self.known_from
        if self.find(timing) is None:
            if known:
                raise IllegalStep(f"the timer {timing.number}, which has ended, is carried forward")
            return False
        return True

    def _put(self, entry: bytes, number: int) -> None:
        self._near[number] = entry
        if not self._heap or entry < self._heap[0]:
            self.sooner = True
        heappush(self._heap, entry)
        if len(self._near) > NEAR_MAX:
            self._spill(NEAR_MAX // 8)

    def fire(self, number: int, time_us: int) -> None:
        """Apply that a timer was published at `time_us`. Raises IllegalStep."""
        if not self.is_known:
            return
        entry = self._near.get(number)
        while entry is None and self._load_one(time_us):
            entry = self._near.get(number)
        if entry is None:
            if number < self.known_from:
                return
            raise IllegalStep(f"the timer {number} is published, and does not wait")
        if due_in(entry) > time_us:
            raise IllegalStep(f"the timer {number} is published before it is due")
        self._end(entry, number)

    def recall(self, timing: Timing) -> None:
        """Apply that a timer was recalled. Raises IllegalStep."""
        if not self.is_known:
            return
        entry = self.find(timing)
        if entry is None:
            if timing.number < self.known_from:
                return
            raise IllegalStep(f"the timer {timing.number} is recalled, and does not wait")
        self._end(entry, timing.number)

    def _end(self, entry: bytes, number: int) -> None:
        due = due_of(entry)
        self.waiting -= 1
        self.messages -= due.messages
        self.bytes -= due.bytes
        self._near.pop(number, None)
        if self.ended is not None:
            self.ended.add(number)
        if any(run.head is not None and run.head[KEY] <= entry[KEY] for run in self._runs):
            self._gone.add(entry[NUMBER])  # a run may have an entry of it
        if len(self._heap) > 2 * len(self._near) + 1024:
            self._heap = [*self._near.values()]
            heapify(self._heap)

    # --- looking -------------------------------------------------------------------------------------

    def find(self, timing: Timing) -> bytes | None:
        """Return the entry of a timer if it waits. It may be one that was carried forward since."""
        entry = self._near.get(timing.number)
        if entry is not None:
            return entry if due_in(entry) == timing.due_us else None
        key = Due(timing.due_us, timing.number, 0, 0, 0, 0).packed()[KEY]
        if key[NUMBER] in self._gone:
            return None
        return next((found for run in self._runs if (found := run.find(key)) is not None), None)

    def is_near(self, number: int) -> bool:
        """Return whether a timer that was taken still waits."""
        return number in self._near

    def next_due_us(self) -> int | None:
        """Return when the next timer is due; None without one."""
        self._drop_stale()
        near = [self._heap[0]] if self._heap else []
        heads = [run.head for run in self._runs if run.head is not None]
        return due_in(min(near + heads)) if near or heads else None

    def due(self, now_us: int, limit: int, bytes_max: int) -> list[Due]:
        """Take the timers that are due at `now_us`, at most `limit`; they wait until they end.

        What does not end is given back by `put_back`.
        """
        found: list[Due] = []
        size = 0
        while len(found) < limit and size < bytes_max:
            while self._load_one(now_us, before=self._heap[0] if self._heap else None):
                pass
            self._drop_stale()
            if not self._heap or due_in(self._heap[0]) > now_us:
                break
            found.append(due_of(heappop(self._heap)))
            size += found[-1].size
        return found

    def put_back(self, taken: Iterable[Due]) -> None:
        """Give back what `due` has returned and what has not ended."""
        for due in taken:
            entry = self._near.get(due.number)
            if entry is not None:
                heappush(self._heap, entry)

    def _drop_stale(self) -> None:
        heap, near = self._heap, self._near
        while heap and near.get(number_in(heap[0])) != heap[0]:
            heappop(heap)

    def view(self) -> View:
        """Return all timers as they are now."""
        runs = [run for run in self._runs if run.head is not None]
        starts = [run.at for run in runs]
        return View(runs, starts, [*self._near.values()], frozenset(self._gone))

    def has_below(self, position: int) -> bool:
        """Return whether the newest record of a timer may lie below `position`."""
        if any(run.lowest < position for run in self._runs if run.head is not None):
            return True
        return any(due_of(entry).position < position for entry in self._near.values())

    # --- from runs to memory and back ----------------------------------------------------------------

    def _load_one(self, until_us: int, before: bytes | None = None) -> bool:
        """Take the first entry of all runs into memory, if it is due by `until_us`; return whether
        there was one. With `before`, only if it comes before that entry.
        """
        first: DueRun | None = None
        for run in self._runs:
            if run.head is not None and (first is None or run.head < first.head):  # type: ignore[operator]
                first = run
        if first is None or first.head is None:
            return False
        entry = first.head
        if due_in(entry) > until_us or (before is not None and entry > before):
            return False
        first.take(1)
        if first.head is None:
            self._runs.remove(first)
            self._obsolete.append(first)
        number = number_in(entry)
        if entry[NUMBER] in self._gone:
            if all(run.head is None or run.head[KEY] != entry[KEY] for run in self._runs):
                self._gone.discard(entry[NUMBER])
        elif number not in self._near or self._near[number] < entry:
            self._near[number] = entry
            heappush(self._heap, entry)
        return True

    def _spill(self, keep: int) -> None:
        """Make a run of what is in memory, but for the `keep` that are due first."""
        entries = sorted(self._near.values())
        self._near = {number_in(entry): entry for entry in entries[:keep]}
        self._heap = entries[:keep]
        self._runs.append(DueRun.of(entries[keep:]))

    # --- for a checkpoint ------------------------------------------------------------------------------

    def noted(self) -> dict[str, Any]:
        """Return what a checkpoint of this instant names. `save` writes the files, before it."""
        if len(self._near) > NOTED_MAX:
            self._spill(NOTED_MAX // 2)
        for run in self._runs:
            if not run.name:
                run.name = segment_name(self._next_name, SUFFIX)
                self._next_name += 1
        return {
            "runs": [[run.name, run.at] for run in self._runs],
            "near": b"".join(self._near.values()).hex(),
            "gone": b"".join(sorted(self._gone)).hex(),
            "counts": [self.waiting, self.messages, self.bytes],
        }

    def unsaved(self) -> list[DueRun]:
        """Return the runs that have no file yet."""
        return [run for run in self._runs if not run.is_saved]

    def named(self) -> dict[str, int]:
        """Return the checksum of the file of each run."""
        return {run.name: run.crc for run in self._runs}

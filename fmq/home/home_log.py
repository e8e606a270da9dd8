"""The log of a home, as one machine sees it: taking over, appending, and freeing what is old.

    slots/N      entries, each filled once; see slot_entry.py
    floors/N     what was true before slot N; see home_floor.py
    pieces/...   bytes of segments that lie below a floor
    probes/...   made and removed by each take-over, to see that the storage keeps conditions
    owners/...   where the owner serves; the last name counts. Only a hint, for clients

Three rules keep a machine that paused from acknowledging what is lost. The model of the protocol
(tests/home/protocol_model.py) tries all interleavings, and finds a loss without any one of them:

    1. An OWN is never removed. So the slot that a paused owner would fill stays filled.
    2. A machine that has created its OWN looks at the floor once more. If that is above its OWN,
       the slot was free only because it had been freed. The machine begins again at the floor.
    3. What was read counts only if the floor, looked at afterwards, is not above it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from errno import ECANCELED, ETIMEDOUT
from functools import partial
from threading import Lock
from typing import Any
from zlib import crc32

from fmq.basics.clock import Clock, as_datetime, as_text, sleep
from fmq.basics.results import HomeStats
from fmq.errors import Damaged, FmqError, HomeRefused, TakenOver
from fmq.home.home_cache import HomeCache
from fmq.home.home_floor import decode_floor, encode_floor
from fmq.home.home_history import HomeAppend, HomeHistory, HomePiece, HomeSegment
from fmq.home.objects import KeyTaken, NoAnswer, Objects
from fmq.home.slot_entry import HEAD_BYTES, ID_BYTES, EntryKind, decode_entry, encode_entry

logger = logging.getLogger("fmq.home")
FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.01, 0.5
LATENCY_ENTRIES = 16  # about so many entries are in the average of the latency
LOOKS_AT_FLOOR = 10  # how many looks of a standby at the next slot have one at the floor, too
READ_AT_ONCE = 256  # how many slots one look at the home reads, at most
FLOOR_SLOTS, FLOOR_BYTES = 1000, 16 << 20


class HomeLog:
    """The slots of one home, followed and then owned by this engine. Any thread may append."""

    def __init__(
        self,
        objects: Objects,
        random: Callable[[int], bytes],
        clock: Clock,
        said: dict[str, Any],
        *,
        retry_seconds: float,
        floor_slots: int = FLOOR_SLOTS,
        floor_bytes: int = FLOOR_BYTES,
    ) -> None:
        """`said` is what OWN says of this engine. A call that has no answer is repeated for
        `retry_seconds`. The floor is raised once so many slots, or bytes, lie above it.
        """
        self._objects = objects
        self._random = random
        self._clock = clock
        self._said = said
        self._retry_seconds = retry_seconds
        self._floor_slots, self._floor_bytes = floor_slots, floor_bytes
        self.owner = random(ID_BYTES)
        self.history = HomeHistory()
        # What was read of the home, and is not in the cache yet.
        self._appends: list[HomeAppend] = []
        # The pieces that the cache may lack.
        self._at_floor: HomeHistory | None = None
        # Excludes other threads from the next slot, also while an entry is on its way.
        self._lock = Lock()
        # Why this engine may not append any more.
        self._ended: Exception | None = None
        self._raising = Lock()
        self._appended_at = clock.monotonic()
        self._is_watched = False  # whether a standby has asked for signs of life
        self._latency = 0.0
        self._has_mirrored = False
        self._looks = 0
        self._owns_seen: set[int] = set()

    @property
    def address(self) -> str:
        return self._objects.address

    def end_of(self, base: int) -> int | None:
        """Return how many bytes of the segment at `base` the home has; None if it has no such
        segment.
        """
        segment = self.history.segments.get(base)
        return None if segment is None else segment.end

    # --- asking -----------------------------------------------------------------------------------

    def _fill(self, n: int, entry: bytes) -> bytes | None:
        """Create slot `n`. Return None if it has `entry` now, or else what it has.

        Raises OSError if the home gives no answer for so long that this engine must end.
        """
        key = _slot(n)
        again = _Retries(self._clock, self._retry_seconds, self._objects.address)
        while True:
            error: Exception
            try:
                self._objects.create(key, entry)
                return None
            except (KeyTaken, NoAnswer) as told:
                error = told
            # Never take "it exists" for "another machine has it": an earlier try may have made it.
            with suppress(NoAnswer):
                found = self._objects.read(key)
                if found is not None:
                    return None if found == entry else found
            again.wait(error)

    def _asked(self, call: Callable[[], Any]) -> Any:
        """Return the result of `call`, which only reads. Raises OSError if there is no answer."""
        again = _Retries(self._clock, self._retry_seconds, self._objects.address)
        while True:
            try:
                return call()
            except NoAnswer as error:
                again.wait(error)

    def _floor(self) -> HomeHistory | None:
        """Return the newest floor; None if there is none."""
        while True:
            names = self._asked(lambda: self._objects.names("floors"))
            if not names:
                return None
            key = f"floors/{names[-1]}"
            data = self._asked(partial(self._objects.read, key))
            if data is not None:  # else it was removed, because there is a newer floor
                return decode_floor(data, key)

    # --- following --------------------------------------------------------------------------------

    def follow(self, cache: HomeCache | None) -> None:
        """Read the entries up to the end, and compare them with what `cache` says. Nothing is
        written.
        """
        while True:
            history = self.history
            keys = [_slot(n) for n in range(history.next, history.next + READ_AT_ONCE)]
            entries = self._asked(partial(self._objects.read_run, keys))
            floor = self._floor()
            if floor is not None and floor.next > history.next:
                # Rule 3: the slots that were read, or found empty, may have been freed.
                self._begin_at(floor, cache)
                continue
            if floor is not None and min(history.kinds, default=floor.next) < floor.next:
                history.adopt(floor)
            if not entries:
                return
            for entry in entries:
                append = history.apply(entry)
                if append is not None:
                    self._appends.append(append)
                if cache is not None:
                    cache.check_history(history)

    def _begin_at(self, floor: HomeHistory, cache: HomeCache | None) -> None:
        if cache is not None:
            cache.check_history(floor)
        self.history, self._at_floor = floor, floor
        self._appends = []

    def _fill_cache(self, cache: HomeCache) -> bool:
        """Write to the cache what it lacks. Return False if the home has a newer floor, and the
        pieces of this one are gone.
        """
        if cache.said and not self.history.home:
            raise cache.behind("it is empty")
        if not self._has_mirrored:
            cache.check_nothing_more(self.history)
        if cache.said.get("next", 0) > self.history.next:
            raise cache.behind(f"it ends at slot {self.history.next}")
        if not cache.said and self.history.home:
            # HOME comes first: without it, nobody would know these segments for a cache.
            begun = HomeHistory()
            begun.home = self.history.home
            cache.note(begun)
        if self._at_floor is not None:
            try:
                cache.restore(self._at_floor, self.fetched)
            except _Gone as gone:
                floor = self._floor()
                if floor is None or floor.next <= self._at_floor.next:
                    raise Damaged(str(gone), 0, f"{self._objects.address} lacks it") from None
                return False
            self._at_floor = None
        for append in self._appends:
            segment = self.history.segments.get(append.base)
            if segment is not None:  # else it was dropped since
                cache.write(append, segment)
        self._appends = []
        return True

    def mirror(self, cache: HomeCache) -> bool:
        """Write to the cache what is new in the home, unsynced. Return whether anything was. A
        machine that stands by calls this again and again.
        """
        self._looks += 1
        # A slot may also be empty because it was freed. Then there is a higher floor.
        if self._has_mirrored and self._looks % LOOKS_AT_FLOOR:
            key = _slot(self.history.next)
            if self._asked(lambda: self._objects.read(key)) is None:
                return False
        before = self.history.next
        self.follow(cache)
        while not self._fill_cache(cache):
            self.follow(cache)
        self._has_mirrored = True
        cache.remove_dropped(self.history)
        return self.history.next != before

    def fetched(self, key: str) -> bytes:
        data = self._asked(lambda: self._objects.read(key))
        if data is None:
            raise _Gone(key)
        if crc32(data) != int(key.rpartition("-")[2], 16):
            raise Damaged(key, 0, f"its checksum in {self._objects.address} does not match")
        return bytes(data)

    # --- taking over ------------------------------------------------------------------------------

    def take_over(self, cache: HomeCache, at: int | None = None) -> None:
        """Make the cache equal to the home, and become its owner.

        With `at`, only by filling this slot: raises TakenOver if it is filled already.
        """
        self._probe()
        self._has_mirrored = False
        while True:
            self.follow(cache)
            if not self._fill_cache(cache):
                continue
            history = self.history
            if at is not None and history.next != at:
                owner = owner_text(history.said) if history.home else "another machine"
                raise TakenOver(self._objects.address, owner)
            self._check_not_moved()
            before = history.said
            if self._own({}, cache):
                break
        if before:
            logger.warning(
                "%s: taken over from %s as term %d, at position %d",
                *(self.address, owner_text(before), history.term, history.position),
            )
        cache.note(self.history)
        cache.finish(self.history)

    def claim(self, **says: str) -> None:
        """Become the owner of the home that was followed so far, without a cache. Raises TakenOver
        if it has changed since.
        """
        self._probe()
        n = self.history.next
        if not self._own(says, None) or self.history.next != n + 1:
            raise TakenOver(self.address, "another machine")

    def _own(self, says: dict[str, str], cache: HomeCache | None) -> bool:
        """Fill the next slot with an OWN. Return False if that has failed: then follow again."""
        history = self.history
        n, home = history.next, history.home or self._random(ID_BYTES)
        now = {"time_us": self._clock.time_us(), "ends_at": history.position}
        said = json.dumps({**self._said, **says, **now}).encode()
        term, chain = history.term + 1, history.chain
        entry = encode_entry(EntryKind.OWN, term, home, self.owner, chain, data=said)
        if self._fill(n, entry) is not None:
            return False  # another machine was faster, or the owner has appended
        self._owns_seen.add(n)
        # Rule 2: perhaps slot `n` was free only because it had been freed.
        floor = self._floor()
        if floor is not None and floor.next > n:
            self._begin_at(floor, cache)
            return False
        history.apply(entry)
        return True

    def _check_not_moved(self) -> None:
        said = self.history.said
        moved, moving = said.get("moved"), said.get("moving")
        if moved is not None and moved != self._said.get("moved"):
            raise HomeRefused(
                f"{self.address}: its data was moved to {moved}. Nothing was changed. Open that "
                "directory, without home=; or move it into a new home."
            )
        if moving is not None:
            raise HomeRefused(
                f"{self.address}: the data of {moving} is on its way here. Nothing was changed. "
                "Call `fmq move` there again, which finishes it."
            )

    def unwritten(self) -> list[HomeAppend]:
        """Return the appends that were read and are in no cache yet."""
        return self._appends

    def stats(self) -> HomeStats:
        """Return what this engine knows of its home."""
        history = self.history
        return HomeStats(
            self._objects.address,
            f"process {history.said['pid']} on {history.said['host']}",
            history.said.get("address"),
            history.term,
            history.next - len(history.kinds),
            len(history.kinds),
            history.bytes_since_floor,
            history.next,
            sum(each.end for each in history.segments.values()),
            self._latency,
        )

    def _probe(self) -> None:
        """Raise HomeRefused if the storage makes one object twice: then it has no owner."""
        key, data = f"probes/{self._random(ID_BYTES).hex()}", self._random(ID_BYTES)
        address = self._objects.address

        def create(what: bytes) -> bool:
            try:
                self._objects.create(key, what)
            except KeyTaken:
                return False
            return True

        self._asked(lambda: create(data))
        twice = self._asked(lambda: create(data[::-1]))
        kept = self._asked(lambda: self._objects.read(key))
        with suppress(NoAnswer):
            self._objects.remove([key])
        if twice or kept != data:
            raise HomeRefused(
                f"{address}: this storage ignores conditions: it has made one object twice. So two "
                "machines could own the home at once. Nothing was changed. Name another storage."
            )

    # --- appending --------------------------------------------------------------------------------

    def append(self, base: int, offset: int, data: bytes) -> None:
        """Append bytes of a segment: durable in the home on return.

        Raises TakenOver or OSError, and then this engine appends nothing more.
        """
        most = self._objects.object_bytes_max - HEAD_BYTES
        with self._lock:
            for start in range(0, len(data), most):
                part, is_last = data[start : start + most], start + most >= len(data)
                self._append(EntryKind.DATA, base, offset + start, part, last=is_last)

    def drop(self, base: int) -> None:
        """Say that the segment at `base` is dropped. Raises as `append` does."""
        with self._lock:
            self._append(EntryKind.DROP, base)

    def beat(self, quiet: float = 0.0, **said: Any) -> None:
        """Append that this engine is alive, unless it has appended anything in the last `quiet`
        seconds. What is `said` is added to its OWN. Raises as `append` does.
        """
        data = json.dumps({**said, "beat_us": self._clock.time_us()}).encode()
        with self._lock:
            self._is_watched = self._is_watched or not said
            is_known = not said and self._clock.monotonic() - self._appended_at < quiet
            if self._ended is not None or not is_known:
                self._append(EntryKind.BEAT, data=data)

    def end(self) -> None:
        """If a standby watches, say that this engine has ended, so that it need not wait."""
        if self._is_watched and self._ended is None:
            with suppress(FmqError, OSError):
                self.beat(ended=True)

    def publish(self, address: str) -> None:
        """Say in the home that this engine serves at `address`. Raises as `append` does."""
        if self.history.said.get("address") != address:
            self.beat(address=address)
        objects, said = self._objects, json.dumps(self.history.said).encode()
        name = f"{self.history.term:010d}-{self.history.next:020d}"
        self._asked(lambda: self._put(f"owners/{name}", said))
        older = [each for each in self._asked(lambda: objects.names("owners")) if each < name]
        self._asked(lambda: objects.remove([f"owners/{each}" for each in older]))

    def _append(
        self,
        kind: EntryKind,
        base: int = 0,
        offset: int = 0,
        data: bytes = b"",
        *,
        last: bool = True,
    ) -> None:
        """The caller holds the lock."""
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        history = self.history
        entry = encode_entry(
            *(kind, history.term, history.home, self.owner, history.chain),
            base=base, offset=offset, data=data, last=last,
        )  # fmt: skip
        began = self._clock.monotonic()
        try:
            found = self._fill(history.next, entry)
            if found is not None:
                raise TakenOver(self._objects.address, *_owner_in(found))
            history.apply(entry)
            self._appended_at = now = self._clock.monotonic()
            self._latency += (now - began - self._latency) / (
                LATENCY_ENTRIES if self._latency else 1
            )
        except BaseException as error:
            logger.warning("%s: this engine writes nothing more: %s", self._objects.address, error)
            # What the slot has now is unknown, or another machine's: nothing may follow it.
            if not isinstance(error, Exception):  # a signal handler's: not an answer of the home
                self._ended = OSError(ECANCELED, "an entry was interrupted")
            else:
                self._ended = error
            raise

    # --- freeing ----------------------------------------------------------------------------------

    def raise_floor(self, cache: HomeCache) -> None:
        """Raise the floor if enough lies above it, and remove what is below.

        An error is only logged: all that it costs is room in the home, and a later call tries it
        again. An engine that another machine has fenced learns that by its next append.
        """
        history = self.history
        slots = len(history.kinds)
        if slots < self._floor_slots and history.bytes_since_floor < self._floor_bytes:
            return
        if self._ended is not None or not self._raising.acquire(blocking=False):
            return
        try:
            self._raise_floor(cache)
        except (FmqError, OSError, NoAnswer) as error:
            logger.warning("%s: the floor was not raised: %s", self._objects.address, error)
        finally:
            self._raising.release()

    def _raise_floor(self, cache: HomeCache) -> None:
        with self._lock:
            # This entry proves that the engine is the owner. So what it says next is true.
            self._append(EntryKind.CHECKPOINT)
            floor, kinds = _noted(self.history), self.history.kinds
        most = self._objects.object_bytes_max
        for base, segment in floor.segments.items():
            start = segment.pieces[-1].end if segment.pieces else 0
            for at in range(start, segment.end, most):
                data = cache.read(base, at, min(at + most, segment.end))
                piece = HomePiece(at, at + len(data), crc32(data))
                self._put(piece.key(base), data)
                segment.pieces.append(piece)
        key = f"floors/{floor.next:020d}"
        # Only now: a floor must not name what is not there.
        self._put(key, encode_floor(floor))
        with self._lock:
            for base, segment in floor.segments.items():
                if base in self.history.segments:
                    self.history.segments[base].pieces = [*segment.pieces]
            self.history.kinds = {n: kind for n, kind in kinds.items() if n >= floor.next}
            self.history.bytes_since_floor = 0
        cache.note(floor)
        self._free_below(floor, dict(kinds))

    def _put(self, key: str, data: bytes) -> None:
        with suppress(KeyTaken):  # an earlier try has made it, with the same bytes
            self._objects.create(key, data)

    def _free_below(self, floor: HomeHistory, kinds: dict[int, EntryKind]) -> None:
        """Remove what no reader needs that begins at `floor` or a later one. Another machine may
        have raised a higher floor meanwhile. So only what is below this one may go.
        """
        objects = self._objects
        older = [name for name in objects.names("floors") if int(name) < floor.next]
        objects.remove([f"floors/{name}" for name in older])
        first = min(floor.segments, default=0)
        gone = [name for name in objects.names("pieces") if int(name[:20]) < first]
        objects.remove([f"pieces/{name}" for name in gone])
        objects.remove([_slot(n) for n in self._slots_below(floor.next, kinds)])

    def _slots_below(self, end: int, kinds: dict[int, EntryKind]) -> list[int]:
        """Return the slots below `end` that may be removed: all but those with an OWN."""
        free = []
        for name in self._objects.names("slots"):
            n = int(name)
            if n >= end or n in self._owns_seen:
                continue
            kind = kinds.get(n)
            if kind is None:  # left by an earlier owner, or by a machine that has read an old floor
                data = self._objects.read(_slot(n))
                kind = None if data is None else decode_entry(data, _slot(n)).kind
            if kind is EntryKind.OWN:  # rule 1
                self._owns_seen.add(n)
            else:
                free.append(n)
        return free

    def close(self) -> None:
        """Close the storage. Nothing can be appended from now on."""
        # Without the lock: in the child of a fork, a thread that does not exist may hold it.
        if self._ended is None:
            self._ended = OSError("the home is closed")
        self._objects.close()


class _Gone(FileNotFoundError):
    """An object is missing."""


class _Retries:
    """Waits before the next try, ever longer, until it has been for too long."""

    def __init__(self, clock: Clock, seconds: float, address: str) -> None:
        self._clock = clock
        self._seconds = seconds
        self._until = clock.monotonic() + seconds
        self._pause = FIRST_PAUSE_SECONDS
        self._address = address

    def wait(self, error: Exception) -> None:
        """Raises OSError with `error` once there is no more time."""
        if self._clock.monotonic() >= self._until:
            text = f"no answer in {self._seconds:g} s ({error})"
            raise OSError(ETIMEDOUT, text, self._address) from error
        sleep(self._clock, self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)


def _slot(n: int) -> str:
    return f"slots/{n:020d}"


def _noted(history: HomeHistory) -> HomeHistory:
    """Return a copy of `history` as it is now, for a floor."""
    noted = HomeHistory()
    noted.owns = {**history.owns}
    for name in ("home", "next", "term", "owner", "chain", "said"):
        setattr(noted, name, getattr(history, name))
    for base, segment in history.segments.items():
        copied = noted.segments[base] = HomeSegment(segment.capacity)
        copied.end, copied.pieces = segment.end, [*segment.pieces]
    return noted


def _owner_in(found: bytes) -> tuple[str, str | None]:
    """Return who has taken over and where it serves, as the entry `found` says."""
    with suppress(FmqError, ValueError):
        entry = decode_entry(found, "a slot")
        if entry.kind is EntryKind.OWN:
            said = json.loads(entry.data)
            return owner_text(said), said.get("address")
    return "another machine", None


def owner_text(said: dict[str, Any]) -> str:
    """Return who an OWN names, and since when, for a person."""
    when = as_text(as_datetime(said["time_us"]))
    at = f" at {said['address']}" if "address" in said else ""
    return f"process {said['pid']} on {said['host']}{at}, since {when},"

"""What the owner of a home appends: entries under the next numbers, two of them on their way at a
time, and each acknowledged after all before it.

    begin                the place of the entry is fixed: its slot, and the chain before it
    in any thread        the slot is created, while that of the entry before may be on its way
    in order             the entry counts; the cache is written; the caller goes on

So slot n + 1 may be filled while n is not, and another machine takes over at n. Its OWN there makes
the entry in n + 1 dead, because an older term comes after a newer one. The new owner fills n + 1
before anything else (home_log.py), or finds that it is filled. No entry of an older term can come
to any later slot, because n + 2 is not begun before n counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from errno import ECANCELED, ETIMEDOUT
from functools import partial
from threading import Condition, Lock, RLock, get_ident
from typing import Any

from fmq.basics.clock import as_datetime, as_text
from fmq.basics.results import HomeStats
from fmq.errors import FmqError, StorageError, TakenOver
from fmq.home.home_calls import HomeCalls
from fmq.home.home_history import HomeHistory
from fmq.home.slot_entry import HEAD_BYTES, EntryKind, chain_in, decode_entry, encode_entry

logger = logging.getLogger("fmq.home")
LATENCY_ENTRIES = 16  # about so many entries are in the average of the latency
ON_THEIR_WAY = 2
"""How many entries at most. A take-over counts on it, that of an older fmq with one."""


class HomeOwner:
    """The slots of a home that this engine owns. Any thread may append."""

    def __init__(self, calls: HomeCalls, history: HomeHistory, owner: bytes) -> None:
        """`owner` is the id that this engine has drawn."""
        self.calls = calls
        self.history = history
        """What counts. Changed under `lock`."""
        self._owner = owner
        # A lock of its own, as an interrupt may come before a Condition is left.
        self.lock = Lock()
        # Notified when an entry counts, or none will count any more.
        self._turn = Condition(self.lock)
        # Why this engine may not append any more.
        self.ended: Exception | None = None
        # The next place: behind all that was begun.
        self._next, self._chain = history.next, history.chain
        self._ends = {base: segment.end for base, segment in history.segments.items()}
        self._appended_at = calls.clock.monotonic()
        self._is_watched = False  # whether a standby has asked for signs of life
        self._latency = 0.0
        self.writing: dict[int, RLock] = {}
        """For each thread that appends an entry of its own, the lock that it holds meanwhile.
        What a signal handler of that thread sends would wait for the entry, and so for itself.
        """

    @property
    def address(self) -> str:
        return self.calls.address

    def end_of(self, base: int) -> int | None:
        """Return how many bytes of the segment at `base` were begun; None if there is no such
        segment.
        """
        return self._ends.get(base)

    def apart(self) -> RLock:
        """Return the lock that this thread holds while it appends entries of its own."""
        return self.writing.setdefault(get_ident(), RLock())

    # --- entries ----------------------------------------------------------------------------------

    def begin(
        self, base: int, offset: int, data: bytes, write: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Fix the place of bytes of a segment behind all that was begun before.

        Call what is returned once, in any thread: it returns when the bytes, and all that was begun
        before, are durable in the home, and `write` was called. Or raises TakenOver or OSError, and
        then this engine appends nothing more.
        """
        most = self.calls.objects.object_bytes_max - HEAD_BYTES
        entries = []
        try:
            with self.lock:
                for start in range(0, len(data), most):
                    part, is_last = data[start : start + most], start + most >= len(data)
                    entries.append(
                        self._begun(EntryKind.DATA, base, offset + start, part, last=is_last)
                    )
                self._ends[base] = offset + len(data)
        except BaseException as error:
            self._end(error)  # a slot that was begun stays empty
            raise
        return partial(self._land, entries, write)

    def append(self, base: int, offset: int, data: bytes) -> None:
        """Append bytes of a segment: durable in the home on return. Raises as `begin` says."""
        self.begin(base, offset, data)()

    def drop(self, base: int) -> None:
        """Say that the segment at `base` is dropped. Raises as `begin` says."""
        with self.apart():
            self._append_one(EntryKind.DROP, base)

    def checkpoint(self, then: Callable[[], None]) -> None:
        """Say that this engine is the owner. `then` is called while the entry is the last one that
        counts. Raises as `begin` says.
        """
        self._append_one(EntryKind.CHECKPOINT, then=then)

    def beat(self, quiet: float = 0.0, **said: Any) -> None:
        """Append that this engine is alive, unless it has appended anything in the last `quiet`
        seconds. What is `said` is added to its OWN. Raises as `begin` says.
        """
        clock = self.calls.clock
        data = json.dumps({**said, "beat_us": clock.time_us()}).encode()
        with self.apart():
            with self.lock:
                self._is_watched = self._is_watched or not said
                is_known = not said and clock.monotonic() - self._appended_at < quiet
                if self.ended is None and is_known:
                    return
            self._append_one(EntryKind.BEAT, data=data)

    def _append_one(
        self,
        kind: EntryKind,
        base: int = 0,
        data: bytes = b"",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Begin an entry, and return once it counts."""
        try:
            with self.lock:
                entry = self._begun(kind, base, data=data)
                if kind is EntryKind.DROP:
                    self._ends.pop(base, None)
        except BaseException as error:
            self._end(error)  # a slot that was begun stays empty
            raise
        self._land([entry], then=then)

    def _begun(
        self,
        kind: EntryKind,
        base: int = 0,
        offset: int = 0,
        data: bytes = b"",
        *,
        last: bool = True,
    ) -> tuple[int, bytes]:
        """Return the next slot and its entry. The caller holds the lock."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        history = self.history
        entry = encode_entry(
            *(kind, history.term, history.home, self._owner, self._chain),
            base=base, offset=offset, data=data, last=last,
        )  # fmt: skip
        n, self._next, self._chain = self._next, self._next + 1, chain_in(entry)
        return n, entry

    def _land(
        self,
        entries: list[tuple[int, bytes]],
        write: Callable[[], None] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Create entries that were begun, one after the other. Return once they count. The last one
        counts after `write`, which writes the cache, and before `then`.
        """
        try:
            for n, entry in entries:
                self._wait_for(n + 1 - ON_THEIR_WAY)
                began = self.calls.clock.monotonic()
                found = self.calls.fill(n, entry)
                seconds = self.calls.clock.monotonic() - began
                overtaken = None if found is None else self._overtaken(n, found)
                self._wait_for(n)
                with self.lock:
                    if overtaken is not None:
                        raise overtaken
                    is_last = n == entries[-1][0]
                    if write is not None and is_last:
                        write()  # or else a floor could name bytes that the cache lacks
                    self.history.apply(entry, is_mine=True)
                    self._appended_at = began + seconds
                    share = LATENCY_ENTRIES if self._latency else 1
                    self._latency += (seconds - self._latency) / share
                    if then is not None and is_last:
                        then()
                    self._turn.notify_all()
        except BaseException as error:
            # What the slot has now is unknown, or another machine's: nothing may follow it.
            self._end(error)
            raise

    def _overtaken(self, n: int, found: bytes) -> Exception:
        """Return the error of an entry whose slot has `found`, which another machine has put."""
        with suppress(StorageError):  # a floor of a newer fmq cannot be read
            floor = self.calls.floor()
            if floor is None or floor.next <= n or n in floor.owns:
                return TakenOver(self.address, *_owner_in(found))
        # A try without an answer may have filled the slot, before it was freed and filled again.
        return OSError(ECANCELED, "another machine has taken over and freed the slot", self.address)

    def _wait_for(self, n: int) -> None:
        """Wait until all slots before `n` count."""
        with self.lock:
            while self.history.next < n and self.ended is None:
                before = self.history.next
                # No entry is awaited for longer than its own calls may take.
                self._turn.wait(timeout=2 * self.calls.seconds)
                if self.history.next == before:
                    break
            if self.history.next >= n:
                return
            if self.ended is not None:
                raise self.ended.with_traceback(None)
        raise OSError(ETIMEDOUT, "the entry before has not come", self.address)

    def _end(self, error: BaseException) -> None:
        """Append nothing more, because of `error`."""
        with self.lock:
            if self.ended is None:
                logger.warning("%s: this engine writes nothing more: %s", self.address, error)
                # All else is what a signal handler has raised, and no answer of the home.
                interrupted = OSError(ECANCELED, f"an entry was interrupted ({error!r})")
                self.ended = error if isinstance(error, (StorageError, OSError)) else interrupted
            self._turn.notify_all()

    # --- what it says of itself -------------------------------------------------------------------

    def publish(self, address: str, *, tls: bool = False) -> None:
        """Say in the home that this engine serves at `address`, and whether over TLS. Raises as
        `begin` says.
        """
        with self.apart():
            before = self.history.said
            if before.get("address") != address or before.get("tls", False) != tls:
                self.beat(address=address, tls=tls)
            calls, said = self.calls, json.dumps(self.history.said).encode()
            objects = calls.objects
            name = f"{self.history.term:010d}-{self.history.next:020d}"
            calls.asked(lambda: calls.put(f"owners/{name}", said))
            older = [each for each in calls.asked(lambda: objects.names("owners")) if each < name]
            calls.asked(lambda: objects.remove([f"owners/{each}" for each in older]))

    def end(self) -> None:
        """If a standby watches, say that this engine has ended, so that it need not wait."""
        if self._is_watched and self.ended is None:
            with suppress(FmqError, OSError):
                self.beat(ended=True)

    def stats(self) -> HomeStats:
        """Return what this engine knows of its home."""
        history = self.history
        return HomeStats(
            self.address,
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

    def close(self) -> None:
        """Append nothing more."""
        # Without the lock: in the child of a fork, a thread that does not exist may hold it.
        if self.ended is None:
            self.ended = OSError("the home is closed")


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

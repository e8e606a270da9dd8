"""The log of a home, as one machine sees it: following it, and taking it over.

    slots/N      entries, each filled once; see slot_entry.py
    floors/N     what was true before slot N; see home_floor.py
    pieces/...   bytes of segments that lie below a floor
    files/...    the checkpoint of the owner, and what belongs to it; see floor_files.py
    probes/...   made and removed by each take-over, to see that the storage keeps conditions
    owners/...   where the owner serves; the last name counts. Only a hint, for clients

These rules keep a machine that paused from acknowledging what is lost. The model of the protocol
(tests/home/protocol_model.py) tries all interleavings, and finds a fault without any one of them:

    1. An OWN is never removed. So the slot that a paused owner would fill stays filled.
    2. A machine that has created its OWN looks at the floor once more. If that is above its OWN,
       the slot was free only because it had been freed. The machine begins again at the floor.
    3. What was read counts only if the floor, looked at afterwards, is not above it.
    4. At most two entries are on their way, and they are acknowledged in order (home_owner.py).
    5. A machine that has created its OWN fills the slot after it, too. If it is filled already,
       that is by the second entry that the owner before had on its way. It is dead.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any
from zlib import crc32

from fmq.basics.clock import Clock
from fmq.errors import Damaged, HomeRefused, TakenOver
from fmq.home.files_taken import Wanted
from fmq.home.floor_files import NO_FILES
from fmq.home.home_cache import HomeCache
from fmq.home.home_calls import HomeCalls, slot_key
from fmq.home.home_history import HomeAppend, HomeHistory
from fmq.home.home_owner import HomeOwner, owner_text
from fmq.home.objects import KeyTaken, NoAnswer, Objects
from fmq.home.slot_entry import ID_BYTES, EntryKind, encode_entry

logger = logging.getLogger("fmq.home")
LOOKS_AT_FLOOR = 10  # how many looks of a standby at the next slot have one at the floor, too
READ_AT_ONCE = 256  # how many objects one call to the home reads, at most
# And how many bytes of pieces, if it is not one object; a storage of small ones is asked for fewer.
FETCH_BYTES, FETCH_OBJECTS = 16 << 20, 8
FLOOR_SLOTS, FLOOR_BYTES = 1000, 16 << 20


class HomeLog:
    """The slots of one home, as far as this machine has read them."""

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
        `retry_seconds`. An owner raises the floor once so many slots, or bytes, lie above it.
        """
        self._calls = HomeCalls(objects, clock, retry_seconds)
        self._objects = objects
        self._random = random
        self._clock = clock
        self._said = said
        self._id = random(ID_BYTES)
        self.floor_slots, self.floor_bytes = floor_slots, floor_bytes
        self.history = HomeHistory()
        # What was read of the home, and is not in the cache yet.
        self._appends: list[HomeAppend] = []
        # The pieces that the cache may lack.
        self._at_floor: HomeHistory | None = None
        self._has_mirrored = False
        # Those derived files of the home that were offered to the cache.
        self._taken = NO_FILES
        self._looks = 0
        self.owner: HomeOwner | None = None

    @property
    def address(self) -> str:
        return self._objects.address

    # --- following --------------------------------------------------------------------------------

    def follow(self, cache: HomeCache | None) -> None:
        """Read the entries up to the end, and compare them with what `cache` says. Nothing is
        written.
        """
        while True:
            history = self.history
            keys = [slot_key(n) for n in range(history.next, history.next + READ_AT_ONCE)]
            entries = self._calls.asked(partial(self._objects.read_run, keys))
            floor = self._calls.floor()
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
                floor = self._calls.floor()
                if floor is None or floor.next <= self._at_floor.next:
                    raise Damaged(str(gone), 0, f"{self._objects.address} lacks it") from None
                return False
            self._at_floor = None
        for append in self._appends:
            segment = self.history.segments.get(append.base)
            if segment is not None:  # else it was dropped since
                cache.write(append, segment)
        self._appends = []
        if self._taken is not self.history.files:
            self._taken = self.history.files
            try:
                cache.take_files(self.history, self.fetch)
            except OSError as error:
                if error.filename == self.address:  # it gives no answer
                    raise
                # Without them a replay finds all that they say.
                logger.warning("%s: its checkpoint was not taken: %s", self.address, error)
        return True

    def mirror(self, cache: HomeCache) -> bool:
        """Write to the cache what is new in the home, unsynced. Return whether anything was. A
        machine that stands by calls this again and again.
        """
        self._looks += 1
        # A slot may also be empty because it was freed. Then there is a higher floor.
        if self._has_mirrored and self._looks % LOOKS_AT_FLOOR:
            key = slot_key(self.history.next)
            if self._calls.asked(lambda: self._objects.read(key)) is None:
                return False
        before = self.history.next
        self.follow(cache)
        while not self._fill_cache(cache):
            self.follow(cache)
        self._has_mirrored = True
        cache.remove_dropped(self.history)
        return self.history.next != before

    def fetched(self, wanted: Sequence[Wanted]) -> Iterator[bytes]:
        """Yield objects of which all are needed, as `fetch` does."""
        for each, data in zip(wanted, self.fetch(wanted), strict=True):
            if data is None:
                if self._calls.asked(partial(self._objects.read, each.key)) is None:
                    raise _Gone(each.key)
                address = self._objects.address
                raise Damaged(each.key, 0, f"its checksum in {address} does not match")
            yield data

    def fetch(self, wanted: Sequence[Wanted]) -> Iterator[bytes | None]:
        """Yield what is `wanted`, in its order; None for an object that is missing, or has not
        the checksum at the end of its key. Several are read at a time.
        """
        at, most = 0, min(FETCH_BYTES, FETCH_OBJECTS * self._objects.object_bytes_max)
        while at < len(wanted):
            sizes = accumulate(each.size for each in wanted[at : at + READ_AT_ONCE])
            many = max(1, sum(size <= most for size in sizes))
            keys = [each.key for each in wanted[at : at + many]]
            found = self._calls.asked(partial(self._objects.read_run, keys))
            for key, data in zip(keys, found, strict=False):
                yield data if crc32(data) == int(key.rpartition("-")[2], 16) else None
            if len(found) < len(keys):
                yield None
            at += min(many, len(found) + 1)

    # --- taking over ------------------------------------------------------------------------------

    def take_over(self, cache: HomeCache, at: int | None = None) -> HomeOwner:
        """Make the cache equal to the home, and become its owner.

        Raises TakenOver if another machine has taken over at the same moment. With `at`, only by
        filling this slot: raises TakenOver if it is filled already.
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
        return self._become_owner()

    def claim(self, **says: str) -> HomeOwner:
        """Become the owner of the home that was followed so far, without a cache. Raises TakenOver
        if it has changed since.
        """
        self._probe()
        n = self.history.next
        if not self._own(says, None) or self.history.next != n + 2:
            raise TakenOver(self.address, "another machine")
        return self._become_owner()

    def _become_owner(self) -> HomeOwner:
        self.owner = HomeOwner(self._calls, self.history, self._id)
        return self.owner

    def _own(self, says: dict[str, str], cache: HomeCache | None) -> bool:
        """Fill the next slot with an OWN. Return False if that has failed: then follow again."""
        history = self.history
        n, home = history.next, history.home or self._random(ID_BYTES)
        now = {"time_us": self._clock.time_us(), "ends_at": history.position}
        said = json.dumps({**self._said, **says, **now}).encode()
        term, chain = history.term + 1, history.chain
        entry = encode_entry(EntryKind.OWN, term, home, self._id, chain, data=said)
        if self._calls.fill(n, entry) is not None:
            return False  # another machine was faster, or the owner has appended
        # Rule 2: perhaps slot `n` was free only because it had been freed.
        floor = self._calls.floor()
        if floor is not None and floor.next > n:
            self._begin_at(floor, cache)
            return False
        history.apply(entry)
        # Rule 5: nothing of an older owner can come after the next slot.
        beat = encode_entry(EntryKind.BEAT, term, home, self._id, history.chain)
        history.apply(self._calls.fill(n + 1, beat) or beat)
        if history.owner != self._id:  # trying again could go on without end, if both do
            raise TakenOver(self.address, owner_text(history.said), history.said.get("address"))
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

        self._calls.asked(lambda: create(data))
        twice = self._calls.asked(lambda: create(data[::-1]))
        kept = self._calls.asked(lambda: self._objects.read(key))
        with suppress(NoAnswer):
            self._objects.remove([key])
        if twice or kept != data:
            raise HomeRefused(
                f"{address}: this storage ignores conditions: it has made one object twice. So two "
                "machines could own the home at once. Nothing was changed. Name another storage."
            )

    def close(self) -> None:
        """Close the storage. Nothing can be appended from now on."""
        if self.owner is not None:
            self.owner.close()
        self._objects.close()


class _Gone(FileNotFoundError):
    """An object is missing."""

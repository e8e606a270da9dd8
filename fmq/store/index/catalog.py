"""The indexes of the sealed segments: which segment holds which messages, and which indexes are in
memory.

Opening a directory reads none of them. The first look below the segment being written reads the
front of each index file, which lists its lanes. Entries are loaded when a message is wanted, and
the least recently used ones are dropped. The first look for a decision reads the keys of all
decisions in each segment, 4 bytes each. They stay in memory, of the newest segments if there are
too many. After that, only an index that may hold the decision is read again. An index that is
missing or not sound is built again from its segment.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from typing import TypeVar

from fmq.errors import Damaged, NewerFormat
from fmq.machine.disk import Directory, replace
from fmq.store.index.id_table import IdTable
from fmq.store.index.index import LaneSummary, QueueKey, SegmentIndex, outcome_key
from fmq.store.index.index_blocks import (
    BadIndex,
    BlockHead,
    decode_head,
    decode_ids_of,
    decode_outcomes,
    encode_index,
)
from fmq.store.index.index_check import check_beside
from fmq.store.index.index_file import index_in, read_block, read_front
from fmq.store.journal.section import OwnedLock
from fmq.store.journal.segment import SEGMENT_MISSING, segment_name

SUFFIX = ".idx"
TEMPORARY = ".idx.new"
LOADED_MAX = 8
# Limit of keys in memory, 16 MiB; further ones are read from files at each look-up.
KEYS_MAX = 1 << 22
RUN_KEYS = 1 << 13  # keys that are sorted in one step, while other threads wait

Rebuild = Callable[[int], SegmentIndex]
P = TypeVar("P")
_base_of = itemgetter(1)  # takes the base of a pair in _lanes


class Catalog:
    """The indexes of the sealed segments of one directory. Any thread may call it."""

    def __init__(
        self, directory: Directory, store: bytes, rebuild: Rebuild, keys_max: int = KEYS_MAX
    ) -> None:
        self._directory = directory
        self._store = store
        self._rebuild = rebuild
        self.lock = OwnedLock()
        # Held while a decision is searched for. No other call takes this lock.
        self.looking = threading.Lock()
        self._bases: list[int] = []
        self._chains: dict[int, int] = {}
        self._tables: dict[int, dict[QueueKey, LaneSummary]] = {}
        self._loaded: OrderedDict[int, SegmentIndex] = OrderedDict()
        # the keys of the decisions in each segment, in sorted parts
        self._keys: dict[int, list[array[int]]] = {}
        self._keys_max = keys_max
        self._kept_keys = 0
        # For each queue, pairs of first offset and base, in order. A pair is added in one step, and
        # an interrupted call is repeated, so no pair is missing or there twice.
        self._lanes: dict[QueueKey, list[tuple[int, int]]] = {}
        # The queues of all segments below this base are in _lanes.
        self._mapped = -1
        # The segments whose indexes cannot be read, each with its error.
        self._unmapped: dict[int, Damaged | NewerFormat | OSError] = {}
        self.rebuilt = 0

    def add(self, base: int, chain: int = 0) -> None:
        """Add the segment at `base`, which was sealed after all others.

        `chain` is the checksum of its records, if it is known. Its index must have the same.
        """
        with self.lock:
            self._chains[base] = chain
            self._bases.append(base)

    def write(self, index: SegmentIndex) -> None:
        """Write `index` to the file of its segment, durably."""
        name = segment_name(index.base, SUFFIX)
        temporary = segment_name(index.base, TEMPORARY)
        replace(self._directory, name, temporary, encode_index(index, self._store))

    def drop(self, base: int) -> None:
        """Remove the segment at `base`, which is the oldest one."""
        with self.lock:
            assert self._bases[0] == base
            self._bases.pop(0)
            self._chains.pop(base, None)
            self._tables.pop(base, None)
            self._loaded.pop(base, None)
            self._forget_keys(base)
            self._unmapped.pop(base, None)
            for pairs in self._lanes.values():
                while pairs and pairs[0][1] <= base:
                    del pairs[0]

    def chain_of(self, base: int) -> int:
        """Return the checksum of the records of the segment at `base`; 0 if the checksum is not
        known.
        """
        with self.lock:
            return self._chains.get(base, 0)

    def bases(self) -> list[int]:
        with self.lock:
            return list(self._bases)

    def check_dropped(self, base: int) -> None:
        """Raise Damaged if a file of the segment at `base` is missing and retention has not dropped
        the segment.
        """
        if base in self.bases():
            raise Damaged(segment_name(base), base, SEGMENT_MISSING) from None

    def find(self, key: QueueKey, offset: int, since: int = 0) -> SegmentIndex | None:
        """Return the index of the sealed segment that holds `offset` of the queue. Skip segments
        that end at or before `since`, where the topic was deleted.

        Raises Damaged or Unreadable if that may be a segment whose index cannot be built.
        """
        with self.lock:
            for base in self._bases[bisect_right(self._bases, self._mapped) :]:
                self._map(base)
                self._mapped = base
            index = self._mapped_index(key, offset, since)
            if index is None and self._unmapped:
                # An error of the machine may be over, so try again. Damage stays.
                for base, error in [*self._unmapped.items()]:
                    if isinstance(error, OSError):
                        self._map(base)
                index = self._mapped_index(key, offset, since)
                if index is None:
                    for error in self._unmapped.values():
                        # Drop earlier tracebacks, which would grow without end.
                        raise error.with_traceback(None)
            return index

    def _mapped_index(self, key: QueueKey, offset: int, since: int) -> SegmentIndex | None:
        pairs = self._lanes.get(key, ())
        low = 0
        if since:
            # Segments before the one that holds `since` have only messages of the deleted topic.
            begins = self._bases[max(0, bisect_right(self._bases, since) - 1)] if self._bases else 0
            low = bisect_left(pairs, begins, key=_base_of)
        i = bisect_left(pairs, (offset + 1,), low) - 1
        if i >= low:
            index = self._load(pairs[i][1])
            lane = index.lanes.get(key)
            if lane is not None and lane.first <= offset < lane.next and index.end > since:
                return index
        return None

    def summary(self, base: int) -> dict[QueueKey, LaneSummary]:
        """Return the summary of each queue in the segment at `base`: first and next offset, and
        times.
        """
        with self.lock:
            return self._table(base)

    def index(self, base: int) -> SegmentIndex:
        """Return the whole index of the segment at `base`."""
        with self.lock:
            return self._load(base)

    def find_outcomes(self, tx_id: str) -> Iterator[int]:
        """Yield positions of decisions that may be those of `tx_id`, the newest first.

        Raises Damaged or Unreadable when it comes to a segment whose index cannot be built.
        """
        key = outcome_key(tx_id)
        with self.lock:
            known = [(base, self._keys.get(base)) for base in reversed(self._bases)]
        for base, runs in known:
            if runs is None or any(_holds(run, key) for run in runs):
                with self.looking:
                    places = self._places(base, key)
                yield from (base + place for place in places)

    def _places(self, base: int, key: int) -> list[int]:
        """Return the places of the decisions with this key in the segment at `base`, the newest
        first.
        """
        with self.lock:
            runs = self._keys.get(base)  # another thread has read the keys meanwhile
        if runs is not None and not any(_holds(run, key) for run in runs):
            return []
        try:
            keys, places = self._outcomes(base)
        except FileNotFoundError:
            self.check_dropped(base)
            return []
        self._keep_keys(base, keys)
        return [places[i] for i in reversed(_all_of(key, keys))]

    def _outcomes(self, base: int) -> tuple[array[int], array[int]]:
        """Return the keys and the places of the decisions in a segment, in their order."""
        none = array("I"), array("I")
        return self._part(base, attrgetter("outcomes"), decode_outcomes, _outcomes_of, none)

    def ids(self, base: int) -> IdTable:
        """Return the message ids that were taken in, or carried into, the segment at `base`.

        Raises FileNotFoundError if retention has dropped the segment.
        """
        return self._part(base, attrgetter("ids"), decode_ids_of, attrgetter("ids"), IdTable(base))

    def _part(
        self,
        base: int,
        counted: Callable[[BlockHead], int],
        decode: Callable[[bytes, bytes, int, int], P],
        part_of: Callable[[SegmentIndex], P],
        none: P,
    ) -> P:
        """Return a part of a segment's index: from memory, from the file, or from an index that is
        built again. Return `none` if the head states that `counted` is 0.

        This is not done under the lock, so readers go on meanwhile.
        """
        with self.lock:
            index = self._loaded.get(base)
        if index is None:
            try:
                chain = self._chains.get(base, 0)
                block = self._block_with(base, counted, chain)
                return decode(block, self._store, base, chain) if block else none
            except (OSError, BadIndex):
                index = self._rebuild(base)
            with self.lock:
                self.rebuilt += 1
                if base in self._bases:
                    self._keep(index)
        return part_of(index)

    def _block_with(self, base: int, counted: Callable[[BlockHead], int], chain: int) -> bytes:
        """Return the block in an index file; None if its head states that `counted` is 0."""
        file = self._directory.open(segment_name(base, SUFFIX))
        try:
            front = read_front(file)
            if not counted(decode_head(front, 0, self._store, base, chain)):
                return b""
            return read_block(file, front)  # one checksum covers the whole block
        finally:
            file.close()

    def _keep_keys(self, base: int, keys: array[int]) -> None:
        """Keep the keys of the segment at `base` in memory, if newer segments leave room.

        A look goes from the newest segment to the oldest. Dropping the least recently used keys
        would drop each just before it is needed again.
        """
        if base in self._keys:
            return
        with self.lock:
            while (
                self._kept_keys + len(keys) > self._keys_max
                and (oldest := min(self._keys, default=base)) < base
            ):
                self._forget_keys(oldest)
            if self._kept_keys + len(keys) > self._keys_max:
                return
        starts = range(0, len(keys), RUN_KEYS)
        runs = [array("I", sorted(keys[start : start + RUN_KEYS])) for start in starts]
        with self.lock:
            if base in self._bases:
                self._keys[base] = runs
                self._kept_keys += len(keys)

    def _forget_keys(self, base: int) -> None:
        self._kept_keys -= sum(map(len, self._keys.pop(base, ())))

    def _map(self, base: int) -> None:
        """Note which queues the segment at `base` holds, or the error that hides it."""
        try:
            table = self._table(base)
        except (Damaged, NewerFormat, OSError) as error:
            self._unmapped[base] = error
            return
        for key, summary in table.items():
            pairs = self._lanes.setdefault(key, [])
            i = bisect_left(pairs, base, key=_base_of)
            if i == len(pairs) or _base_of(pairs[i]) != base:
                pairs.insert(i, (summary.first, base))
        self._unmapped.pop(base, None)

    def _table(self, base: int) -> dict[QueueKey, LaneSummary]:
        table = self._tables.get(base)
        if table is None:
            loaded = self._loaded.get(base)
            table = loaded.summary() if loaded else self._read_table(base)
            self._tables[base] = table
        return table

    def _read_table(self, base: int) -> dict[QueueKey, LaneSummary]:
        try:
            file = self._directory.open(segment_name(base, SUFFIX))
            try:
                data = read_front(file)
            finally:
                file.close()
            head = decode_head(data, 0, self._store, base, self._chains.get(base, 0))
            return {key: summary for key, summary, _, _ in head.lanes}
        except (OSError, BadIndex):
            return self._load(base).summary()

    def _load(self, base: int) -> SegmentIndex:
        index = self._loaded.get(base)
        if index is None:
            index = self._read(base)
            self._keep(index)
        self._loaded.move_to_end(base)
        return index

    def _keep(self, index: SegmentIndex) -> None:
        self._loaded[index.base] = index
        while len(self._loaded) > LOADED_MAX:
            self._loaded.popitem(last=False)

    def _read(self, base: int) -> SegmentIndex:
        try:
            file = self._directory.open(segment_name(base, SUFFIX))
            try:
                index = index_in(file, self._store, base, self._chains.get(base, 0))
            finally:
                file.close()
        except (OSError, BadIndex):
            self.rebuilt += 1
            return self._rebuild(base)
        check_beside(index, self._directory, self._store)
        return index


def _all_of(key: int, keys: array[int]) -> list[int]:
    """Return all places where `key` is in `keys`, which are not sorted. Searching their bytes is
    fastest.
    """
    data, wanted = keys.tobytes(), array("I", [key]).tobytes()
    found = []
    at = data.find(wanted)
    while at >= 0:
        place, beside = divmod(at, keys.itemsize)
        if not beside:
            found.append(place)
        at = data.find(wanted, at + 1)
    return found


def _holds(run: array[int], key: int) -> bool:
    i = bisect_left(run, key)
    return i < len(run) and run[i] == key


def _outcomes_of(index: SegmentIndex) -> tuple[array[int], array[int]]:
    return index.outcome_keys, index.outcome_places

"""The sealed segments' indexes: which holds what, and the few that are in memory.

Opening reads none of them. The first look below the segment being written reads the tables of
lanes, the front of each file; entries are loaded when a message is wanted, and the least
recently used ones are dropped. An index that is missing or not sound is built again from its
segment, which needs nothing else.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable

from fmq.disk import Directory
from fmq.errors import Damaged
from fmq.store.index import (
    BadIndex,
    LaneKey,
    LaneSummary,
    SegmentIndex,
    decode_blocks,
    decode_head,
    head_size_of,
    outcome_key,
)
from fmq.store.segment import segment_name

SUFFIX = ".idx"
TEMPORARY = ".idx.new"
FRONT_BYTES = 4096
LOADED_MAX = 8
KEYS_MAX = 512

Rebuild = Callable[[int], SegmentIndex]


class Catalog:
    """The indexes of the sealed segments of one directory. Safe for threads."""

    def __init__(self, directory: Directory, store: bytes, rebuild: Rebuild) -> None:
        self._directory = directory
        self._store = store
        self._rebuild = rebuild
        self.lock = threading.Lock()
        self._bases: list[int] = []
        self._tables: dict[int, dict[LaneKey, LaneSummary]] = {}
        self._loaded: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._keys: OrderedDict[int, array[int]] = OrderedDict()
        self._lanes: dict[LaneKey, tuple[list[int], list[int]]] = {}  # firsts, bases
        self._mapped = 0  # how many of _bases are in _lanes
        self._unmapped: dict[int, Damaged] = {}  # or would be, were they not damaged
        self.rebuilt = 0

    def add(self, base: int) -> None:
        """The segment at `base` is sealed, newer than all before."""
        with self.lock:
            self._bases.append(base)

    def write(self, index: SegmentIndex) -> None:
        """Make `index` the durable index of its segment."""
        name = segment_name(index.base, SUFFIX)
        temporary = segment_name(index.base, TEMPORARY)
        if temporary in self._directory.names():
            self._directory.remove(temporary)
        file = self._directory.create(temporary)
        try:
            file.write(0, (index.encode(self._store),), sync=True)
            file.sync()
        finally:
            file.close()
        self._directory.rename(temporary, name)
        self._directory.sync()

    def drop(self, base: int) -> None:
        """The segment at `base`, the oldest, is gone."""
        with self.lock:
            assert self._bases[0] == base
            self._bases.pop(0)
            self._tables.pop(base, None)
            self._loaded.pop(base, None)
            self._keys.pop(base, None)
            self._unmapped.pop(base, None)
            for firsts, bases in self._lanes.values():
                if bases and bases[0] == base:
                    del firsts[0], bases[0]
            self._mapped = max(0, self._mapped - 1)

    def bases(self) -> list[int]:
        with self.lock:
            return list(self._bases)

    def find(self, key: LaneKey, offset: int) -> SegmentIndex | None:
        """The index of the sealed segment that holds `offset` of the queue; Damaged if that may be
        one whose index cannot be built.
        """
        with self.lock:
            self._map()
            firsts, bases = self._lanes.get(key, ((), ()))
            i = bisect_right(firsts, offset) - 1
            if i >= 0:
                index = self._load(bases[i])
                lane = index.lanes.get(key)
                if lane is not None and lane.first <= offset < lane.next:
                    return index
            for error in self._unmapped.values():
                raise error
            return None

    def summary(self, base: int) -> dict[LaneKey, LaneSummary]:
        """What the segment at `base` holds of each queue."""
        with self.lock:
            return self._table(base)

    def index(self, base: int) -> SegmentIndex:
        """The whole index of the segment at `base`."""
        with self.lock:
            return self._load(base)

    def find_outcomes(self, tx_id: str) -> list[int]:
        """Positions of decisions that may be those of `tx_id`, the newest first."""
        key = outcome_key(tx_id)
        with self.lock:
            return [
                position
                for base in reversed(self._bases)
                if _holds(self._outcome_keys(base), key)
                for position in self._load(base).find_outcomes(tx_id)
            ]

    def _outcome_keys(self, base: int) -> array[int]:
        keys = self._keys.get(base)
        if keys is None:
            keys = self._keys[base] = array("I", sorted(self._load(base).outcome_keys))
            while len(self._keys) > KEYS_MAX:
                self._keys.popitem(last=False)
        self._keys.move_to_end(base)
        return keys

    def _map(self) -> None:
        """Know, for each queue, which segments hold it."""
        for base in self._bases[self._mapped :]:
            try:
                table = self._table(base)
            except Damaged as error:
                self._unmapped[base], table = error, {}
            for key, summary in table.items():
                firsts, bases = self._lanes.setdefault(key, ([], []))
                firsts.append(summary.first)
                bases.append(base)
            self._mapped += 1

    def _table(self, base: int) -> dict[LaneKey, LaneSummary]:
        table = self._tables.get(base)
        if table is None:
            loaded = self._loaded.get(base)
            table = loaded.summary() if loaded else self._read_table(base)
            self._tables[base] = table
        return table

    def _read_table(self, base: int) -> dict[LaneKey, LaneSummary]:
        try:
            file = self._directory.open(segment_name(base, SUFFIX))
            try:
                data = file.read(0, FRONT_BYTES)
                size = head_size_of(data)
                if size > len(data):
                    data = file.read(0, min(size, file.size()))
            finally:
                file.close()
            return {key: summary for key, summary, _, _ in
                    decode_head(data, 0, self._store, base).lanes}  # fmt: skip
        except (OSError, BadIndex):
            return self._load(base).summary()

    def _load(self, base: int) -> SegmentIndex:
        index = self._loaded.get(base)
        if index is None:
            index = self._read(base)
            self._loaded[base] = index
            while len(self._loaded) > LOADED_MAX:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(base)
        return index

    def _read(self, base: int) -> SegmentIndex:
        try:
            file = self._directory.open(segment_name(base, SUFFIX))
            try:
                return decode_blocks(file.read(0, file.size()), self._store, base)
            finally:
                file.close()
        except (OSError, BadIndex):
            self.rebuilt += 1
            return self._rebuild(base)


def _holds(keys: array[int], key: int) -> bool:
    i = bisect_left(keys, key)
    return i < len(keys) and keys[i] == key

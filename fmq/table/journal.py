"""A directory as it was seen at one instant, without a lock and without writing.

What is seen is what can be vouched for, as a read-only engine sees it. From here on nothing is
asked of the engine: the splits of a journal are read wherever, and whenever, there is time.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fmq.disk import Disk, File
from fmq.errors import NotAStore, Unreadable
from fmq.message import UndecidedTransaction
from fmq.real_disk import RealDisk
from fmq.recovery.follow import Follower
from fmq.recovery.layout import look
from fmq.store.catalog import Catalog
from fmq.store.index import LaneKey, LaneSummary, SegmentIndex
from fmq.store.record import COMMON, FIRST, HEAD_BYTES_MIN, PREFIX_BYTES
from fmq.store.segment import HEADER_BYTES, Segment
from fmq.table.split import Split, opened_file
from fmq.table.wanted import Wanted
from fmq.tx.outcomes import undecided_view

SPLIT_BYTES = 32 << 20


class Seen(NamedTuple):
    """A segment, as far as it can be vouched for."""

    segment: Segment
    end: int
    sealed: bool
    lanes: dict[LaneKey, LaneSummary]
    large: SegmentIndex | None
    """The index, of a segment so large that it is split."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What was seen, and which parts of it there are to read."""

    path: str
    store: bytes
    visible_to: int
    segments: tuple[Seen, ...]
    undecided: tuple[UndecidedTransaction, ...]
    engine: str = ""
    host: str | None = None

    @property
    def first(self) -> int:
        """The position below which nothing is left."""
        return self.segments[0].segment.base

    def whole(self) -> Split:
        """Where this is, for rows that no part of it holds."""
        end = self.visible_to
        return Split(self.path, self.store, self.first, self.first, end, 0, self.engine, self.host)

    def splits(
        self,
        wanted: Wanted,
        *,
        start: int = 0,
        end: int | None = None,
        lanes: bool = True,
        disk: Disk | None = None,
    ) -> list[Split]:
        """What has to be read for the rows that are wanted, between two positions where appends
        begin. Without `lanes` the rows are not messages, so that their queues tell nothing.
        """
        stop = self.visible_to if end is None else min(end, self.visible_to)
        found: list[Split] = []
        for seen in self.segments:
            low = max(start, seen.segment.base + HEADER_BYTES)
            high = min(stop, seen.end)
            if low >= high or not wanted.stretch(low, high):
                continue
            if lanes and not any(wanted.lane(*lane) for lane in seen.lanes.items()):
                continue
            for first, last in self._pieces(seen, low, high, disk):
                data_end = seen.end if seen.sealed else 0
                found.append(
                    Split(
                        self.path,
                        self.store,
                        seen.segment.base,
                        first,
                        last,
                        data_end,
                        self.engine,
                        self.host,
                    )
                )
        return found

    def _pieces(self, seen: Seen, low: int, high: int, disk: Disk | None) -> list[tuple[int, int]]:
        if seen.large is None or high - low <= SPLIT_BYTES:
            return [(low, high)]
        with opened_file(self.path, seen.segment.name, disk) as file:
            edges = [low, *_boundaries(file, seen.large, low, high), high]
        return list(itertools.pairwise(edges))


def see(
    path: str, engine: str | None = None, host: str | None = None, *, disk: Disk | None = None
) -> Journal:
    """The journal in the directory at `path`, now; Damaged and the like as they are met."""
    directory = (disk or RealDisk()).directory(path, make=False)
    try:
        if look(directory).fresh:
            raise NotAStore(
                f"{path}: no journal was ever begun here, so there is nothing to read. Name the "
                "directory that a program gives to fmq.open()."
            )
        lock = threading.Lock()
        follower = Follower(directory, lock)
        try:
            if follower.damage is not None:
                raise follower.damage
            return _seen(path, follower, engine, host)
        finally:
            follower.close()
    except OSError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(path, error) from error
    finally:
        directory.close()


def _seen(path: str, follower: Follower, engine: str | None, host: str | None) -> Journal:
    ledger = follower.ledger
    in_memory = {index.base: index for index in (*ledger.sealed, ledger.index)}
    last = ledger.index.base
    segments = tuple(
        Seen(
            segment,
            segment.end if segment.base < last else ledger.applied_upto,
            segment.base < last,
            _lanes(segment, in_memory, follower.catalog),
            _index_to_split(segment, in_memory, follower.catalog),
        )
        for segment in follower.segments
        if segment.limit > ledger.floor and segment.base <= last
    )
    undecided = tuple(undecided_view(entry) for _, entry in sorted(ledger.undecided.items()))
    name = engine if engine is not None else path.rstrip("/").rpartition("/")[2]
    return Journal(path, follower.store, ledger.applied_upto, segments, undecided, name, host)


def _lanes(
    segment: Segment, in_memory: dict[int, SegmentIndex], catalog: Catalog
) -> dict[LaneKey, LaneSummary]:
    index = in_memory.get(segment.base)
    return catalog.summary(segment.base) if index is None else index.summary()


def _index_to_split(
    segment: Segment, in_memory: dict[int, SegmentIndex], catalog: Catalog
) -> SegmentIndex | None:
    if segment.end - segment.base <= SPLIT_BYTES:
        return None
    return in_memory.get(segment.base) or catalog.index(segment.base)


def _boundaries(file: File, index: SegmentIndex, low: int, high: int) -> Iterator[int]:
    """Positions about as far apart as a split is long, at each of which an append begins."""
    places = sorted(place for lane in index.lanes.values() for place in lane.records)
    base, target = index.base, low + SPLIT_BYTES
    while target + SPLIT_BYTES // 2 < high:
        i = bisect_left(places, target - base)
        while i < len(places) and not _begins_append(file, places[i]):
            i += 1
        if i == len(places):
            return
        yield base + places[i]
        target = base + places[i] + SPLIT_BYTES


def _begins_append(file: File, place: int) -> bool:
    front = file.read(place, HEAD_BYTES_MIN)
    *_, flags, _ = COMMON.unpack_from(front, PREFIX_BYTES)
    return bool(flags & FIRST)

"""A directory as it was at one moment, read without a lock and without writing.

It shows what is proven durable, as a read-only engine does. After that nothing is asked of a
running engine: the splits can be read on any machine at any time.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fmq.basics.results import TopicCodec, UndecidedTransaction
from fmq.buckets import in_bucket
from fmq.errors import CheckpointLost, Damaged, NewerFormat, NotAStore
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk, File
from fmq.recovery.follow import Follower
from fmq.recovery.layout import LOCK, LOCK_BYTES, Layout, lock_says, look
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.record import FIRST, BadRecord, Misplaced, Newer
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.table.extents import SPLIT_BYTES, Extent, LeftOut
from fmq.table.journal_places import directory_at
from fmq.table.selection import Selection
from fmq.table.split import Split, lanes_in, opened_file, read_index, seed_of
from fmq.table.survey import is_shipped, survey
from fmq.table.table_errors import located
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.looks.outcomes import undecided_view

# How many bytes are read to see whether an append begins there: enough for most heads.
HEAD_BYTES = 4 << 10


class Undecided(NamedTuple):
    """An undecided transaction with its PRE_MESSAGEs."""

    seen: UndecidedTransaction
    runs: tuple[Run, ...]


def undecided_in(ledger: Ledger) -> tuple[Undecided, ...]:
    """Return the undecided transactions of `ledger`, in the order of their numbers."""
    entries = [entry for _, entry in sorted(ledger.undecided.items())]
    return tuple(Undecided(undecided_view(entry), tuple(entry.runs)) for entry in entries)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a directory held at one moment, and which parts of the journal can be read."""

    path: str
    store: bytes
    visible_to: int
    segments: tuple[Extent, ...]
    undecided: tuple[Undecided, ...] | None
    """None: nobody has read the records that tell; fmq/table/undecided.py does."""
    engine: str = ""
    host: str | None = None
    left_out: tuple[LeftOut, ...] = ()
    """What planning met of damage; whoever reads the splits may meet more."""
    codecs: Mapping[str, TopicCodec] = field(default_factory=dict)
    """The stored codecs by topic. None are known of a directory that has only segments."""

    @property
    def first(self) -> int:
        """Return the position below which nothing is kept."""
        return self.segments[0].segment.base if self.segments else self.visible_to

    def whole(self) -> Split:
        """Return a split for the whole journal, for rows that come from no single split."""
        end = self.visible_to
        return Split(self.path, self.store, self.first, self.first, end, 0, self.engine, self.host)

    def splits(
        self,
        wanted: Selection,
        *,
        start: int = 0,
        end: int | None = None,
        lanes: bool = True,
        split_bytes: int = SPLIT_BYTES,
        disk: Disk | None = None,
    ) -> list[Split]:
        """Return the splits that may hold wanted rows. Each begins and ends between two appends.
        Without `lanes`, rows are not messages, so queues are not used to skip segments.
        """
        stop = self.visible_to if end is None else min(end, self.visible_to)
        found: list[Split] = []
        for seen in self.segments:
            low = max(start, seen.segment.base + HEADER_BYTES)
            high = min(stop, seen.end)
            if low >= high or not wanted.stretch(low, high):
                continue
            if lanes and not self._has_any(seen, wanted, disk):
                continue
            for first, last in self._pieces(seen, low, high, split_bytes, disk):
                if wanted.stretch(first, last):
                    found.append(self._split(seen, first, last))
        return found

    def _has_any(self, seen: Extent, wanted: Selection, disk: Disk | None) -> bool:
        """Return whether a segment may hold wanted messages."""
        lanes = lanes_in(seen, self.store, disk)
        return lanes is None or any(wanted.lane(*lane) for lane in lanes.items())

    def _split(self, seen: Extent, first: int, last: int) -> Split:
        data_end = seen.end if seen.sealed else 0
        where = seen.path, self.store, seen.segment.base
        chain = seen.segment.chain if seen.sealed else 0
        known = seen.segment.epoch, chain
        return Split(*where, first, last, data_end, self.engine, self.host, *known)

    def _pieces(
        self, seen: Extent, low: int, high: int, split_bytes: int, disk: Disk | None
    ) -> list[tuple[int, int]]:
        if high - low <= split_bytes + split_bytes // 2:
            return [(low, high)]
        base, index = seen.segment.base, seen.in_memory
        if index is None:
            chain = seen.segment.chain if seen.sealed else 0
            index = read_index(seen.path, base, self.store, disk, chain)
        if index is None:
            return [(low, high)]
        # A file that cannot be read raises its error later, when the split is read.
        edges = [low]
        with suppress(OSError), opened_file(seen.path, segment_name(base), disk, high) as file:
            edges += _boundaries(file, index, low, high, split_bytes, seed_of(self.store))
        return list(itertools.pairwise((*edges, high)))


def _boundaries(
    file: File, index: SegmentIndex, low: int, high: int, split_bytes: int, seed: int
) -> Iterator[int]:
    """Yield positions at which appends begin, about `split_bytes` apart."""
    places = sorted(place for lane in index.lanes.values() for place in lane.records)
    base, target = index.base, low + split_bytes
    while target + split_bytes // 2 < high:
        i = bisect_left(places, target - base)
        while i < len(places) and not flags_at(file, base, places[i], seed) & FIRST:
            i += 1
        if i == len(places) or base + places[i] >= high:
            return
        yield base + places[i]
        target = base + places[i] + split_bytes


def flags_at(file: File, base: int, place: int, seed: int) -> int:
    """Return the flags of the sound record at `place`; 0 if there is none."""
    try:
        record = decode(file.read(place, HEAD_BYTES), 0, base + place, seed, bodies=False)
    except (BadRecord, Misplaced, Newer):
        return 0  # the head may be longer than the bytes read, so take another record
    return record.flags


# --- seeing a directory -------------------------------------------------------------------------


def see(
    path: str,
    engine: str | None = None,
    host: str | None = None,
    *,
    permissive: bool = False,
    undecided: bool = False,
    disk: Disk | None = None,
) -> Snapshot:
    """Return the journal in the directory at `path`, as it is now.

    Raise Damaged and the like, or, if `permissive`, leave out what is not sound. With `undecided`
    the journal is read from the oldest undecided transaction on, else from the checkpoint on.
    """
    name = engine if engine is not None else path.rstrip("/").rpartition("/")[2]
    with located(path), unreadable_within(path):
        directory = directory_at(path, disk)
        try:
            where = name, host or _host_of(directory)
            return _seen(directory, *where, permissive=permissive, undecided=undecided)
        finally:
            directory.close()


def _seen(
    directory: Directory, engine: str, host: str | None, *, permissive: bool, undecided: bool
) -> Snapshot:
    try:
        layout = _layout_of(directory)
        if not is_shipped(layout):
            return _followed(directory, engine, host, undecided=undecided)
    except (CheckpointLost, Damaged, NewerFormat, OSError):
        if not permissive:
            raise
    store, segments, left_out = survey(directory, permissive=permissive)
    end = segments[-1].end if segments else 0
    return Snapshot(directory.path, store, end, segments, None, engine, host, left_out)


def _layout_of(directory: Directory) -> Layout:
    """Return the layout of the directory. Raises NotAStore if there is no journal in it."""
    with suppress(NotAStore):
        layout = look(directory)
        if not layout.fresh:
            return layout
    path = directory.path
    front, mark, query = path.partition("?") if in_bucket(path) else (path, "", "")
    raise NotAStore(
        f"{path}: no journal was ever begun here, so there is nothing to read. Name the directory "
        f"that a program gives to fmq.open(), or {front}/*{mark}{query} for all of those in it."
    )


def _host_of(directory: Directory) -> str | None:
    """Return the host that last had the directory open for writing."""
    try:
        file = directory.open(LOCK)
    except OSError:
        return None
    try:
        return lock_says(file.read(0, LOCK_BYTES)).host
    finally:
        file.close()


def _followed(directory: Directory, engine: str, host: str | None, *, undecided: bool) -> Snapshot:
    """Return the snapshot of a directory in which an engine is or was running."""
    follower = Follower(directory, threading.RLock(), undecided=undecided)
    try:
        if follower.damage is not None:
            raise follower.damage
        journal = _as_followed(directory, follower, engine, host)
        return journal if undecided else replace(journal, undecided=None)
    finally:
        follower.close()


def _as_followed(
    directory: Directory, follower: Follower, engine: str, host: str | None
) -> Snapshot:
    ledger = follower.ledger
    in_memory = {index.base: index for index in (*ledger.sealed, ledger.index)}
    last = ledger.index.base
    segments = []
    for segment in follower.segments:
        if segment.limit <= ledger.floor or segment.base > last:
            continue
        sealed = segment.base < last
        reach = segment.end if sealed else ledger.shown_to
        index = in_memory.get(segment.base)
        segments.append(Extent(directory.path, segment, reach, sealed, index))
    end, undecided = ledger.shown_to, undecided_in(ledger)
    codecs = {topic.name: topic.codec for topic in ledger.made_topics() if topic.codec}
    where = directory.path, follower.store, end
    return Snapshot(*where, tuple(segments), undecided, engine, host, codecs=codecs)

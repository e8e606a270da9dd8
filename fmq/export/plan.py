"""The plan of an export: chunks of splits. Each chunk is written, and then published as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fmq.export.errors import Behind
from fmq.store.journal.segment import Segment
from fmq.table.read import read_split
from fmq.table.schema import schema_of
from fmq.table.selection import EVERYTHING
from fmq.table.snapshot import Snapshot
from fmq.table.split import Split, lanes_in
from fmq.table.stream import ReadPoint, go_on

CHUNK_BYTES = 4 << 30
TOPIC = schema_of("messages", ["topic"], fleet=False)


class Gap(NamedTuple):
    """Positions that retention dropped before they were exported."""

    path: str
    start: int
    end: int


class Chunk(NamedTuple):
    splits: tuple[Split, ...]
    reached: dict[str, int]
    """By store, how far it is exported once the chunk is."""

    @property
    def bytes(self) -> int:
        return sum(size_of(split) for split in self.splits)


class Plan(NamedTuple):
    chunks: tuple[Chunk, ...]
    gaps: tuple[Gap, ...]

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)


def plan(
    journals: Sequence[Snapshot],
    reached: Mapping[str, int],
    view: str,
    *,
    skip_gaps: bool,
    chunk_bytes: int = CHUNK_BYTES,
) -> Plan:
    """Return what to export of `journals` beyond `reached`. Raises Behind if some of it was
    dropped.
    """
    splits: list[Split] = []
    gaps: list[Gap] = []
    ends: dict[str, int] = {}
    for journal in journals:
        store = journal.store.hex()
        start = reached.get(store, 0)
        # A copy of a store may end before a position that was exported from the store.
        ends[store] = max(start, journal.visible_to)
        if gap := _gap(journal, start):
            if not skip_gaps:
                raise Behind(*gap)
            gaps.append(gap)
        splits += journal.splits(EVERYTHING, start=start, lanes=view == "messages")
    chunks = [
        Chunk(tuple(part), {split.store.hex(): split.end for split in part})
        for part in packed(splits, chunk_bytes)
    ]
    if not chunks and any(reached.get(store) != end for store, end in ends.items()):
        chunks = [Chunk((), {})]
    if chunks:
        # Records without rows may follow the last messages. Count them as exported, too.
        chunks[-1].reached.update(ends)
    return Plan(tuple(chunks), tuple(gaps))


def _gap(journal: Snapshot, start: int) -> Gap | None:
    """Return the positions from `start` on that retention has dropped, or None."""
    lost = go_on(journal, ReadPoint(start), journal.visible_to, skip=True).skipped_bytes
    return Gap(journal.path, start, start + lost) if start and lost else None


def topics_of(journals: Iterable[Snapshot], *, permissive: bool) -> tuple[str, ...]:
    """Return all topics that have messages, sorted."""
    found: set[str] = set()
    for journal in journals:
        unknown = []
        for seen in journal.segments:
            if (lanes := lanes_in(seen, journal.store, None)) is None:
                unknown.append(seen.segment)
            else:
                found.update(topic for topic, _ in lanes)
        for segment in unknown:
            found |= _topics_in(journal, segment, permissive=permissive)
    return tuple(sorted(found))


def _topics_in(journal: Snapshot, segment: Segment, *, permissive: bool) -> set[str]:
    """Return the topics in a segment without an index, by reading its records."""
    found: set[str] = set()
    for split in journal.splits(EVERYTHING, start=segment.base, end=segment.limit):
        for batch in read_split(split, "messages", TOPIC, permissive=permissive):
            found.update(batch.column(0).dictionary_encode().dictionary.to_pylist())
    return found


def packed(splits: Iterable[Split], bytes_min: int) -> Iterator[list[Split]]:
    """Yield runs of consecutive splits, each of at least `bytes_min` bytes except for the last."""
    part: list[Split] = []
    size = 0
    for split in splits:
        part.append(split)
        size += size_of(split)
        if size >= bytes_min:
            yield part
            part, size = [], 0
    if part:
        yield part


def size_of(split: Split) -> int:
    """Return how many bytes of the journal `split` covers."""
    return split.end - split.start

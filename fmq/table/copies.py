"""Several copies of one store, read as one journal: each segment from the copy that has the most of
it.

A copy is a prefix of the store that it was taken from, less what retention has dropped here or
there since. Two that are no prefixes of one another were both written to, and no reader can
tell which of them counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fmq.errors import Damaged
from fmq.machine.disk import Disk
from fmq.store.journal.scan import Finding, Scan
from fmq.store.journal.segment import HEADER_BYTES
from fmq.table.extents import Extent, LeftOut
from fmq.table.snapshot import Snapshot
from fmq.table.split import opened_file, seed_of
from fmq.table.table_errors import Diverged, Unsound

BLOCK_BYTES = 1 << 20


def as_one(copies: Sequence[Snapshot], disk: Disk | None = None) -> Snapshot:
    """Return one journal made of `copies`. Raises Diverged."""
    furthest, *others = sorted(copies, key=_reach, reverse=True)
    segments = {seen.segment.base: seen for seen in furthest.segments}
    for other in others:
        for seen in other.segments:
            known = segments.get(seen.segment.base)
            if known is None:
                _check_is_older(seen, other, furthest)
            else:
                _check_same(seen, known, furthest.store, disk)
            if known is None or known.end < seen.end:
                segments[seen.segment.base] = seen
    ordered = tuple(seen for _, seen in sorted(segments.items()))
    missing = dict.fromkeys(part for copy in (furthest, *others) for part in copy.left_out)
    hosts = (copy.host for copy in (furthest, *others) if copy.host is not None)
    codecs = {name: codec for copy in (*others, furthest) for name, codec in copy.codecs.items()}
    return replace(
        furthest,
        codecs=codecs,
        segments=ordered,
        host=next(hosts, None),
        left_out=tuple(part for part in missing if not _is_there(part, ordered)),
    )


def _reach(journal: Snapshot) -> tuple[int, int]:
    return journal.visible_to, journal.segments[-1].segment.base if journal.segments else 0


def _is_there(part: LeftOut, segments: Sequence[Extent]) -> bool:
    """Return whether `segments` of other copies contain what one copy left out."""
    at = part.position
    for seen in segments:
        if seen.segment.base <= at < seen.segment.limit:
            at = seen.segment.limit if seen.sealed else seen.end
    return at >= part.position + max(1, part.skipped_bytes)


# --- have they parted? --------------------------------------------------------------------------


def _check_is_older(seen: Extent, other: Snapshot, furthest: Snapshot) -> None:
    """Raise Diverged unless the segment `seen`, which the furthest copy lacks, lies below all of
    its segments.
    """
    if furthest.first < seen.segment.base < furthest.visible_to and not furthest.left_out:
        raise Diverged(other.path, furthest.path, seen.segment.name, "only one has this segment")


def _check_same(one: Extent, two: Extent, store: bytes, disk: Disk | None) -> None:
    """Raise Diverged unless the longer of the two segments begins with the bytes of the shorter
    one.
    """
    name = one.segment.name
    longest = max(one.end, two.end)
    if any(seen.sealed and seen.end < longest for seen in (one, two)):
        raise Diverged(one.path, two.path, name, f"one ends at {one.end}, the other at {two.end}")
    if (chain := _chain(one)) is not None and (other := _chain(two)) is not None:
        if chain != other:
            raise Diverged(one.path, two.path, name, "the records are not the same")
        return
    at = _first_difference(one, two, disk)
    if at is None:
        return
    # Bytes that differ may be damage. Sound records that differ mean that the stores have diverged.
    for seen in (one, two):
        _check_sound(seen, min(one.end, two.end), store, disk)
    raise Diverged(one.path, two.path, name, f"the records differ, at or behind position {at}")


def _chain(seen: Extent) -> int | None:
    """Return the checksum of a segment, if the next segment's header states it."""
    return seen.segment.chain if seen.sealed and seen.segment.end == seen.end else None


def _first_difference(one: Extent, two: Extent, disk: Disk | None) -> int | None:
    """Return the position where the two segments differ, rounded down to a block; None if they do
    not.
    """
    base, end = one.segment.base, min(one.end, two.end)
    with (
        opened_file(one.path, one.segment.name, disk, end) as file,
        opened_file(two.path, two.segment.name, disk, end) as other,
    ):
        if file.identity() == other.identity():
            return None
        for at, size in _blocks(base + HEADER_BYTES, end):
            if file.read(at - base, size) != other.read(at - base, size):
                return at
    return None


def _blocks(start: int, end: int) -> Iterator[tuple[int, int]]:
    return ((at, min(BLOCK_BYTES, end - at)) for at in range(start, end, BLOCK_BYTES))


def _check_sound(seen: Extent, end: int, store: bytes, disk: Disk | None) -> None:
    base = seen.segment.base
    with opened_file(seen.path, seen.segment.name, disk, end) as file:
        scan = _exhausted(Scan(file, base, end, base + HEADER_BYTES, seed_of(store)))
    assert scan.ending is not None
    if scan.ending.finding is not Finding.END:
        damage = Damaged(seen.segment.name, scan.ending.position, scan.ending.reason)
        raise Unsound(seen.path, damage)


def _exhausted(scan: Scan) -> Scan:
    for _ in scan:
        pass
    return scan

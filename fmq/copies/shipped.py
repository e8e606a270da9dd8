"""What was shipped to a place, as a backup that can be restored: its pieces, put together."""

from __future__ import annotations

from bisect import bisect_right

from fmq.copies.contents import Contents, SegmentCopy
from fmq.copies.segments import OnlyRead, prove
from fmq.copies.ship_pieces import SHIP, ShippedPiece, ShippingPlace, listing, whole_run
from fmq.errors import BackupRefused, Damaged
from fmq.machine.disk import File
from fmq.store.journal.segment import (
    HEADER_BYTES,
    Header,
    base_of,
    decode_header,
    segment_name,
)


class PieceFile(OnlyRead):
    """A segment that lies in pieces."""

    def __init__(self, place: ShippingPlace, pieces: list[ShippedPiece]) -> None:
        self._place, self._pieces = place, pieces
        self._base = pieces[0].base
        self._starts = [piece.start for piece in pieces]

    def read(self, offset: int, size: int) -> bytes:
        found, at, end = [], self._base + offset, min(self._base + offset + size, self._end)
        while at < end:
            piece = self._pieces[bisect_right(self._starts, at) - 1]
            data = self._place.read(piece.name, at - piece.start, min(end, piece.end) - at)
            if not data:
                raise Damaged(piece.name, at, "the piece is shorter than its name says")
            found.append(data)
            at += len(data)
        return b"".join(found)

    @property
    def _end(self) -> int:
        return self._pieces[-1].end

    def size(self) -> int:
        return self._end - self._base


class ShippedSegments:
    """The segments at a place, as files of a directory."""

    def __init__(self, place: ShippingPlace, run: list[list[ShippedPiece]]) -> None:
        self.path = place.path
        self._place = place
        self._run = {pieces[0].base: pieces for pieces in run}

    def open(self, name: str) -> File:
        return PieceFile(self._place, self._run[base_of(name)])


def shipped(place: ShippingPlace) -> tuple[ShippedSegments, Contents] | None:
    """Return what was shipped to `place`; None if nothing is. Raises BackupRefused if no
    generation is complete yet, Damaged if a piece is missing between others.
    """
    if SHIP not in place.names():
        return None
    store = place.store()
    assert store is not None
    found = listing(place.names(), ready=True)
    run = whole_run(found.pieces) if found.is_ready else []
    if not run:
        raise BackupRefused(
            f"{place.path}: the first shipping has not come to its end, so nothing can be restored "
            "from it yet. Nothing was changed. Run fmq ship once more."
        )
    segments = ShippedSegments(place, run)
    beyond = max(found.pieces, key=lambda piece: piece.end)
    if beyond.end > run[-1][-1].end:
        raise Damaged(beyond.name, run[-1][-1].end, "a piece before it is missing")
    headers = [header_of(segments, pieces[0].base) for pieces in run]
    chains = [header.previous_chain for header in headers[1:]]
    for pieces, following in zip(run, headers[1:], strict=False):
        if pieces[-1].end != following.previous_end:
            raise Damaged(pieces[-1].name, pieces[-1].end, "a piece after it is missing")
    last = run[-1][-1]
    name = segment_name(last.base)
    chains.append(prove(segments, name, bytes.fromhex(store), last.base, last.end).chain)
    copies = [
        SegmentCopy(pieces[0].base, header.capacity, pieces[-1].end, chain, header.epoch, "")
        for pieces, header, chain in zip(run, headers, chains, strict=True)
    ]
    return segments, Contents(store, copies[-1].end, 0, tuple(copies))


def header_of(segments: ShippedSegments, base: int) -> Header:
    name = segment_name(base)
    return decode_header(segments.open(name).read(0, HEADER_BYTES), name)

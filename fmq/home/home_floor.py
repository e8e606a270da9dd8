"""The floor of a home: what was true before a slot, so that older slots may be removed.

A floor is an object of its own, `floors/N`: JSON behind its checksum. It names the pieces that have
all bytes of the journal before slot N, and derived files (floor_files.py). The floor with the
largest N counts. An older one that is made later changes nothing.

Storage may take less at once than a floor has. Then it is in pieces, `files/N-floor-...`, which are
made first, and `floors/N` only says how large all of them are. They carry the number of their
floor, so only an owner with a newer one removes them.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from fmq.errors import Damaged, NewerFormat
from fmq.home.floor_files import FilePiece, FloorFiles
from fmq.home.home_history import HomeHistory, HomePiece, HomeSegment

FORMAT, IN_PIECES = 1, 2


def encode_floor(history: HomeHistory, most: int) -> dict[str, bytes]:
    """Return the floor at the next slot of `history` as objects of at most so many bytes, to be
    made in this order. All its bytes must be in pieces.
    """
    said = {
        "format": FORMAT, "home": history.home.hex(), "next": history.next, "term": history.term,
        "owner": history.owner.hex(), "chain": history.chain.hex(), "said": history.said,
        "owns": [*history.owns.items()],
        "segments": [
            [base, segment.capacity, [list(piece) for piece in segment.pieces]]
            for base, segment in sorted(history.segments.items())
        ],
    }  # fmt: skip
    if history.files.pieces:
        said |= {"upto": history.files.upto, "files": history.files.pieces}
    key, floor = f"floors/{history.next:020d}", _with_checksum(said)
    if len(floor) <= most:
        return {key: floor}
    how = {"size": len(floor), "piece_bytes": most, "crc": zlib.crc32(floor)}
    keys = _keys_of_pieces(key, **how)
    pieces = {each: floor[at * most : (at + 1) * most] for at, each in enumerate(keys)}
    return {**pieces, key: _with_checksum({"format": IN_PIECES, **how})}


def _with_checksum(said: dict[str, Any]) -> bytes:
    text = json.dumps(said).encode()
    return b"%08x %s" % (zlib.crc32(text), text)


def _keys_of_pieces(key: str, size: int, piece_bytes: int, crc: int) -> list[str]:
    """Return the keys of the pieces of the floor `key`. `crc` is that of all of it."""
    ends = [*range(piece_bytes, size, piece_bytes), size]
    number = key.partition("/")[2]
    starts = (0, *ends)
    return [
        f"files/{number}-floor-{start:010d}-{end:010d}-{crc:08x}"
        for start, end in zip(starts, ends, strict=False)
    ]


def pieces_of_floor(data: bytes, key: str) -> list[str]:
    """Return the keys of the pieces of a floor; none if `data` is all of it. Raises as
    `decode_floor` does.
    """
    said = _said_in(data, key)
    if said["format"] < IN_PIECES:
        return []
    return _keys_of_pieces(key, said["size"], said["piece_bytes"], said["crc"])


def decode_floor(data: bytes, name: str) -> HomeHistory:
    """Return the history as a whole floor states it. Raises Damaged or NewerFormat."""
    said = _said_in(data, name)
    history = HomeHistory()
    history.home, history.owner = bytes.fromhex(said["home"]), bytes.fromhex(said["owner"])
    history.chain, history.said = bytes.fromhex(said["chain"]), said["said"]
    history.next, history.term = said["next"], said["term"]
    history.owns = dict(said["owns"])
    for base, capacity, pieces in said["segments"]:
        segment = history.segments[base] = HomeSegment(capacity)
        segment.pieces = [HomePiece(*each) for each in pieces]
        segment.end = segment.pieces[-1].end
    if "files" in said:  # an older fmq puts none
        files = said["files"].items()
        pieces = {name: [FilePiece(*each) for each in of_file] for name, of_file in files}
        history.files = FloorFiles(history.position, said["upto"], pieces)
    return history


def _said_in(data: bytes, name: str) -> dict[str, Any]:
    crc, _, text = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(text):
        raise Damaged(name, 0, "the checksum of the floor does not match")
    said: dict[str, Any] = json.loads(text)
    if said["format"] > IN_PIECES:
        raise NewerFormat(name, 0, f"a floor of format {said['format']}")
    return said

"""The floor of a home: what was true before a slot, so that older slots may be removed.

A floor is an object of its own, `floors/N`: JSON behind its checksum. It names the pieces that have
all bytes of the journal before slot N, and derived files (floor_files.py). The floor with the
largest N counts. An older one that is made later changes nothing.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from fmq.errors import Damaged, NewerFormat
from fmq.home.floor_files import FilePiece, FloorFiles
from fmq.home.home_history import HomeHistory, HomePiece, HomeSegment

FORMAT = 1


def encode_floor(history: HomeHistory) -> bytes:
    """Return the floor at the next slot of `history`. All its bytes must be in pieces."""
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
    text = json.dumps(said).encode()
    return b"%08x %s" % (zlib.crc32(text), text)


def decode_floor(data: bytes, name: str) -> HomeHistory:
    """Return the history as a floor states it. Raises Damaged or NewerFormat."""
    crc, _, text = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(text):
        raise Damaged(name, 0, "the checksum of the floor does not match")
    said: dict[str, Any] = json.loads(text)
    if said["format"] > FORMAT:
        raise NewerFormat(name, 0, f"a floor of format {said['format']}")
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

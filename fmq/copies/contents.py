"""BACKUP, the file that says what a backup holds: its segments, and how far each goes.

It is written last, under another name, and renamed. So a backup is what BACKUP says, and whatever
else lies beside it, from a run that was killed, does not count.

The file has two lines: a CRC-32 of the second one as eight digits, and the second one, JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from fmq.errors import Damaged
from fmq.machine.disk import Directory, replace
from fmq.store.journal.segment import HEADER_BYTES

NAME = "BACKUP"
NEW = NAME + ".new"
FORMAT = 1


class SegmentCopy(NamedTuple):
    """A segment in a backup."""

    base: int
    capacity: int
    end: int
    """The position after its last byte in the backup."""
    chain: int
    """The checksum over its records up to there."""
    epoch: int
    damage: str
    """What is wrong with it, here and in the journal; "" if it is sound."""


class Contents(NamedTuple):
    """What a backup holds: the journal of one store up to one position."""

    store: str
    """The UUID of the store, as hexadecimal digits."""
    position: int
    taken_us: int
    pieces: tuple[SegmentCopy, ...]

    @property
    def bytes(self) -> int:
        """How many bytes of journal the backup holds."""
        return sum(piece.end - piece.base for piece in self.pieces)


def write(directory: Directory, held: Contents) -> None:
    """Write `held` to the BACKUP of `directory`, durably and at one instant."""
    said = {"format": FORMAT, **held._asdict()}
    body = json.dumps(said).encode() + b"\n"
    replace(directory, NAME, NEW, b"%08x\n" % zlib.crc32(body) + body)


def read(directory: Directory) -> Contents | None:
    """Return what the backup in `directory` holds; None if there is no backup. Raises Damaged."""
    try:
        file = directory.open(NAME)
    except FileNotFoundError:
        return None
    with closing(file):
        data = file.read(0, file.size())
    crc, _, body = data.partition(b"\n")
    try:
        if int(crc, 16) != zlib.crc32(body):
            raise ValueError("its checksum does not match")
        return _contents(json.loads(body))
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(NAME, 0, f"{error}, so nothing tells what the backup holds") from error


def _contents(said: Mapping[str, Any]) -> Contents:
    if said["format"] != FORMAT:
        raise ValueError(f"it has the format {said['format']}, which a newer fmq has written")
    pieces = tuple(SegmentCopy(*piece) for piece in said["pieces"])
    if not pieces or any(piece.end < piece.base + HEADER_BYTES for piece in pieces):
        raise ValueError("it names no segment, or an impossible one")
    return Contents(said["store"], said["position"], said["taken_us"], pieces)

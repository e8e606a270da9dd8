"""ERASING: the file that says which bytes of the journal an erasure is about to overwrite.

Records are overwritten in place, and a power cut may tear such a write. So what they will be is
durable in this file first. From then on the erasure has happened: an opening that finds the file
writes all of it again, before it reads the journal.

    offset  size  field
         0     4  magic    b"fmqE"
         4     4  crc      CRC-32 of everything after this field
         8    16  store
        24     8  number   of the ERASE that the engine appends once all is overwritten
        32     4  size     of the JSON that follows: what the ERASE says
         .     *  the JSON; then for each record: u64 base, u64 place, u32 size, its bytes

The bytes in it are those that stay: nothing of what is erased is in this file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from fmq.machine.disk import Directory, free, replace
from fmq.store.bytes.kinds import AckRange
from fmq.store.journal.segment import segment_name

logger = logging.getLogger("fmq.recovery")
ERASING = "ERASING"
ERASING_NEW = ERASING + ".new"
MAGIC = b"fmqE"
HEAD = Struct("<4sI16sQI")
CRC_END = 8
IMAGE = Struct("<QQI")


class NewRecord(NamedTuple):
    """A record as it will be after the erasure."""

    base: int
    place: int
    data: bytes


class Erasing(NamedTuple):
    """An erasure that is decided."""

    number: int
    ranges: Sequence[AckRange]
    """The messages that readers had seen, of no group."""
    images: Sequence[NewRecord]

    @property
    def segments(self) -> list[int]:
        """The bases of the segments that it writes to."""
        return sorted({image.base for image in self.images})


def begin(directory: Directory, store: bytes, erasing: Erasing) -> None:
    """Make an erasure durable. From here on it happens, whatever becomes of the machine."""
    said = json.dumps([each.key()[1:] for each in erasing.ranges]).encode()
    parts = [said]
    for base, place, data in erasing.images:
        parts += IMAGE.pack(base, place, len(data)), data
    body = b"".join(parts)
    head = HEAD.pack(MAGIC, 0, store, erasing.number, len(said))
    crc = crc32(body, crc32(head[CRC_END:]))
    data = MAGIC + crc.to_bytes(4, "little") + head[CRC_END:] + body
    replace(directory, ERASING, ERASING_NEW, data)


def read(directory: Directory) -> Erasing | None:
    """Return the erasure that is under way; None if there is none."""
    try:
        file = directory.open(ERASING)
    except FileNotFoundError:
        return None
    with closing(file):
        data = file.read(0, file.size())
    try:
        magic, crc, _, number, size = HEAD.unpack_from(data)
        if magic != MAGIC or crc32(memoryview(data)[CRC_END:]) != crc:
            raise ValueError("the checksum does not match")
        at = HEAD.size + size
        ranges = [AckRange("", *each) for each in json.loads(data[HEAD.size : at])]
        images = []
        while at < len(data):
            base, place, size = IMAGE.unpack_from(data, at)
            at += IMAGE.size + size
            images.append(NewRecord(base, place, data[at - size : at]))
    except (StructError, ValueError, TypeError) as error:
        # The file was durable before it got its name, so this is damage. Not all of the messages
        # that it names are erased, and the call of `erase` has not returned.
        logger.error("%s/%s: %s. Erase the messages again.", directory.path, ERASING, error)
        return None
    return Erasing(number, ranges, images)


def overwrite(directory: Directory, images: Iterable[NewRecord]) -> None:
    """Write each record over the one in its place, durably."""
    for base, group in groupby(sorted(images), attrgetter("base")):
        try:
            file = directory.open(segment_name(base), write=True)
        except FileNotFoundError:
            continue  # retention has dropped the segment
        with closing(file):
            for image in group:
                file.write(image.place, (image.data,), sync=True)
            file.sync()


def carry_on(directory: Directory) -> None:
    """Overwrite again what an interrupted erasure had to overwrite. The caller holds the lock."""
    found = read(directory)
    if found is not None:
        overwrite(directory, found.images)


def end(directory: Directory) -> None:
    """Note that the erasure is recorded in the journal."""
    free(directory, ERASING)

"""Reads the index of a sealed segment from its file, which is one block.

The block states its own size; checksums.py verifies it.
"""

from __future__ import annotations

from zlib import crc32

from fmq.machine.disk import File
from fmq.store.bytes.checksums import read_checked
from fmq.store.index.index import SegmentIndex
from fmq.store.index.index_blocks import (
    CRC_END,
    HEAD_1,
    BadIndex,
    block_size_of,
    decode_blocks,
    head_size_of,
)

FRONT_BYTES = 4096


def read_front(file: File) -> bytes:
    """Return the verified front of the index, and the bytes after it that were read along. Raises
    BadIndex.
    """
    data = file.read(0, FRONT_BYTES)
    size, crc = head_size_of(data), int.from_bytes(data[4:CRC_END], "little")
    if HEAD_1.size <= size <= len(data):
        if crc32(data[CRC_END:size]) == crc:
            return data
    elif size > len(data):
        checked = read_checked(file, CRC_END, size - CRC_END, crc)
        if checked is not None:
            return data[:CRC_END] + checked
    raise BadIndex("the head's checksum does not match")


def read_block(file: File, front: bytes) -> bytes:
    """Return the whole block that begins with `front`. Raises BadIndex."""
    size = block_size_of(front)
    if size != file.size():
        raise BadIndex("shorter or longer than it says")
    return front if len(front) == size else front + file.read(len(front), size - len(front))


def index_in(file: File, store: bytes, base: int, chain: int = 0) -> SegmentIndex:
    """Return the index of the segment at `base`. Raises BadIndex.

    `chain` is the checksum of the segment's records, if it is known.
    """
    return decode_blocks(read_block(file, read_front(file)), store, base, chain)

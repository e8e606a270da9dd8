"""Reads bytes whose size is stored with them, when that size may be damaged.

The number is believed only if the checksum of that many bytes is right. Until then no more memory
is taken than for one block, however large the number is.
"""

from __future__ import annotations

from zlib import crc32

from fmq.machine.disk import File

AT_ONCE_BYTES = 1 << 20


def read_checked(file: File, start: int, size: int, crc: int) -> bytes | None:
    """Return the `size` bytes from `start` on if their CRC-32 is `crc`; else None."""
    if size > AT_ONCE_BYTES and _crc_of(file, start, size) != crc:
        return None
    data = file.read(start, size)
    return data if len(data) == size and crc32(data) == crc else None


def _crc_of(file: File, start: int, size: int) -> int | None:
    """Return the CRC-32 of `size` bytes, read block by block; None if there are fewer."""
    crc = 0
    while size:
        data = file.read(start, min(size, AT_ONCE_BYTES))
        if not data:
            return None
        crc = crc32(data, crc)
        start += len(data)
        size -= len(data)
    return crc

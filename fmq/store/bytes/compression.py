"""Compresses and decompresses bodies with lz4. No other file knows of lz4."""

from __future__ import annotations

import lz4.block

RAW_BYTES_MAX = 1 << 30
# lz4 never makes bytes smaller than by this factor.
LZ4_RATIO_MAX = 255


def compress(raw: bytes) -> bytes:
    """Return `raw` as an lz4 block, which does not state the size of `raw`."""
    packed: bytes = lz4.block.compress(raw, store_size=False)
    return packed


class BadBodies(Exception):
    """Raised for bytes that `compress` did not make. The caller adds which record they are in."""


def decompress(stored: bytes, raw_bytes: int) -> bytes:
    """Return the `raw_bytes` bytes that were compressed to `stored`. Raises BadBodies."""
    if raw_bytes > min(RAW_BYTES_MAX, LZ4_RATIO_MAX * len(stored)):
        # Refuse before allocating memory.
        raise BadBodies(f"{len(stored)} bytes cannot hold {raw_bytes}")
    try:
        raw: bytes = lz4.block.decompress(stored, uncompressed_size=raw_bytes)
    except MemoryError:
        raise BadBodies(f"no memory for the {raw_bytes:,} bytes of its bodies") from None
    except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
        raise BadBodies(f"the bodies do not decompress: {error}") from None
    if len(raw) != raw_bytes:
        raise BadBodies(f"{len(raw)} bytes decompressed where {raw_bytes} were named")
    return raw

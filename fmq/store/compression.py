"""Compressing bodies with lz4, and decompressing them. No other file knows of lz4."""

from __future__ import annotations

import lz4.block

RAW_BYTES_MAX = 1 << 30
LZ4_RATIO_MAX = 255  # lz4 cannot compress better than that


def compress(raw: bytes) -> bytes:
    """Return `raw` as an lz4 block, which does not say how long `raw` is."""
    packed: bytes = lz4.block.compress(raw, store_size=False)
    return packed


class BadBodies(Exception):
    """Raised for bytes that `compress` has not made. The caller knows in which record they are."""


def decompress(stored: bytes, raw_bytes: int) -> bytes:
    """Return the `raw_bytes` bytes that were compressed to `stored`; raise BadBodies."""
    if raw_bytes > min(RAW_BYTES_MAX, LZ4_RATIO_MAX * len(stored)):
        # Refuse before memory is allocated.
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

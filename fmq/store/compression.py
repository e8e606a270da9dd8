"""Bodies compressed by lz4, and back: nobody else knows by what."""

from __future__ import annotations

import lz4.block

RAW_BYTES_MAX = 1 << 30
LZ4_RATIO_MAX = 255  # of a block: no byte of it stands for more


def compress(raw: bytes) -> bytes:
    """`raw` as a block, which does not say how long it was."""
    packed: bytes = lz4.block.compress(raw, store_size=False)
    return packed


class BadBodies(Exception):
    """The bytes are not what `compress` has made; the caller knows in which record they lie."""


def decompress(stored: bytes, raw_bytes: int) -> bytes:
    """The bytes that were compressed to `stored`, `raw_bytes` of them; BadBodies."""
    if raw_bytes > min(RAW_BYTES_MAX, LZ4_RATIO_MAX * len(stored)):
        # Refused before anything is allocated.
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

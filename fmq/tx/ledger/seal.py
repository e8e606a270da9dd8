"""The seal of a transaction: a digest over its runs of messages.

PREPARE states it, COMMIT repeats it, and a decision from outside may name it. So neither a crash
nor a late answer can commit a part of what was prepared, or another transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct

from fmq.store.bytes.kinds import Run
from fmq.store.bytes.record import utf8

SEAL_BYTES = 16
SEALED = Struct("<HIII")


def seal_of(runs: Iterable[Run]) -> bytes:
    """Return the seal over `runs`, in their order."""
    sealed, pack = b"", SEALED.pack
    for run in runs:
        sealed += pack(run.queue, run.count, run.bodies_crc, run.columns_crc) + utf8(run.topic)
    return blake2b(sealed, digest_size=SEAL_BYTES).digest()


def seal_text(seal: bytes) -> str:
    """Return a seal as text, in hex."""
    return seal.hex()

"""The seal of a transaction: a digest over what its runs of messages hold.

PREPARE states it, COMMIT repeats it, and a decision from outside names it. So neither a crash
nor a late answer can ever make half a transaction, or another one, of what was prepared.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct

from fmq.store.kinds import Run
from fmq.store.record import utf8

SEAL_BYTES = 16
SEALED = Struct("<HIII")


def seal_of(runs: Iterable[Run]) -> bytes:
    """The seal over `runs`, in their order."""
    parts: list[bytes] = []
    for run in runs:
        parts.append(SEALED.pack(run.queue, run.count, run.bodies_crc, run.columns_crc))
        parts.append(utf8(run.topic))
    return blake2b(b"".join(parts), digest_size=SEAL_BYTES).digest()

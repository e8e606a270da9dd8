"""How often the device under a directory was told to flush, as the kernel counts it.

Every process on the machine is in this number, so it is honest only on a quiet machine; the
count that is exact comes from `durability.py`, which watches the system calls themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

FLUSHES_FIELD = 15  # of the 17 in the kernel's Documentation/block/stat.rst


def counter(directory: Path) -> Callable[[], int] | None:
    """A function that reads the device's flush count so far, or None where nothing counts it."""
    device = os.stat(directory).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if (block / "partition").exists():
        block = block.resolve().parent  # a partition has no such count, its disk has
    stat = block / "stat"
    if not stat.exists() or len(stat.read_text().split()) <= FLUSHES_FIELD:
        return None
    return lambda: int(stat.read_text().split()[FLUSHES_FIELD])

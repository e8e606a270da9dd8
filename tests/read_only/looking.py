"""How these tests look at a directory without an engine of their own."""

from __future__ import annotations

import errno
from typing import Any

import fmq
from fmq import ReadOnlyEngine
from fmq.store.journal.durable_page import PAGE
from fmq.testing import FaultDisk
from tests.small import FakeClock


def looking(disk: Any) -> ReadOnlyEngine:
    return fmq.open("data", read_only=True, disk=disk, clock=FakeClock())


def without_pages(disk: Any) -> FaultDisk:
    """The disk for a reader that follows the records and the checkpoints alone."""
    faults = disk if isinstance(disk, FaultDisk) else FaultDisk(disk)
    faults.fail("open", names=f"*/{PAGE}", error=errno.EACCES, persistently=True)
    return faults

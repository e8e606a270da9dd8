"""A read during which the engine is closed raises the error that it is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fmq
from fmq.errors import Closed
from fmq.machine.disk import Directory, Disk
from fmq.testing import CrashDisk, FaultDisk
from fmq.testing.fault_disk import FaultDirectory, FaultFile
from fmq.testing.faults import Faults
from tests.interrupts import in_thread
from tests.small import fill, opened


class MetDirectory(FaultDirectory):
    """Calls `meet` before each file is opened."""

    def __init__(self, faults: Faults, directory: Directory, meet: Callable[[str], None]) -> None:
        super().__init__(faults, directory)
        self._meet = meet

    def open(self, name: str, *, write: bool = False) -> FaultFile:
        self._meet(name)
        return super().open(name, write=write)


class ClosingDisk(FaultDisk):
    """Has another thread close `engine` when it is about to open the index of a segment."""

    engine: fmq.Engine | fmq.ReadOnlyEngine | None = None

    def directory(self, path: str, *, make: bool) -> FaultDirectory:
        return MetDirectory(self._faults, self.disk.directory(path, make=make), self._meet)

    def _meet(self, name: str) -> None:
        if self.engine is not None and name.endswith(".idx"):
            engine, self.engine = self.engine, None
            in_thread(engine.close, "the close")


READS: dict[str, Callable[[Any], object]] = {
    "read": lambda engine: engine.read("t"),
    "poll": lambda engine: engine.consumer("t", group="g").poll(),
    "outcome": lambda engine: engine.outcome("order-1"),
}


def filled(disk: Disk) -> None:
    """A directory in which what was sent and decided first lies in a sealed segment."""
    with opened(disk) as engine:
        engine.send("t", b"first")
        tx = engine.transaction(tx_id="order-1")
        tx.prepare()
        tx.commit()
        fill(engine)


@pytest.mark.parametrize("read", READS)
def test_a_read_that_a_close_overtakes_raises_closed(read: str) -> None:
    """The read began before the close and finds its files closed."""
    disk = ClosingDisk(CrashDisk())
    filled(disk)
    disk.engine = engine = opened(disk)
    with pytest.raises(Closed, match="engine is closed"):
        READS[read](engine)
    assert disk.engine is None


@pytest.mark.parametrize("read", ["read", "outcome"])
def test_a_read_of_a_read_only_engine_during_a_close_raises_closed(read: str) -> None:
    disk = ClosingDisk(CrashDisk())
    filled(disk)
    engine = fmq.open("data", disk=disk, read_only=True)
    engine.read("t", offset=1)
    disk.engine = engine
    with pytest.raises(Closed, match="opens it again"):
        READS[read](engine)
    assert disk.engine is None

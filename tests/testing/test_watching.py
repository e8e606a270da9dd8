"""Watching a disk, stopping it, and telling its situations apart."""

from __future__ import annotations

import pytest

from fmq.testing import CrashDisk, PowerLoss
from tests.testing.outcomes import made


def act(disk: CrashDisk) -> None:
    """Operations of all sorts, among them a synced write, which may be interrupted in between."""
    directory = made(disk)
    file = directory.create("a")
    file.allocate(2000)
    file.write(0, (b"x" * 700,), sync=True)
    file.write(700, (b"y" * 10,), sync=False)
    directory.sync()
    file.sync()
    directory.rename("a", "b")
    directory.remove("b")


def states(disk: CrashDisk) -> set[str]:
    """Everything that a crash may leave of `disk`."""
    kills = (disk.after_kill(written=written) for written in (True, False))
    return {state.fingerprint() for state in (*kills, *disk.states())}


def test_stopped_disks_have_the_states_of_a_loss_at_each_operation() -> None:
    """Method: compare one run with a watcher with a run for each `crash_at`."""
    watched: list[CrashDisk] = []
    disk = CrashDisk()
    disk.watch(lambda _: watched.append(disk.stopped()))
    act(disk)
    assert len(watched) == disk.operations > 8
    for crash_at, seen in enumerate(watched):
        crashed = CrashDisk(crash_at=crash_at)
        with pytest.raises(PowerLoss):
            act(crashed)
        assert states(seen) == states(crashed), crash_at
        assert seen.situation() == crashed.situation(), crash_at


def test_a_stopped_disk_refuses_operations_and_keeps_its_states() -> None:
    disk = CrashDisk()
    act(disk)
    before = states(disk)
    copy = disk.stopped()
    disk.stop()
    for each in (copy, disk):
        with pytest.raises(PowerLoss):
            made(each)
        assert states(each) == before


def test_a_situation_differs_if_durable_bytes_differ() -> None:
    """The two disks show the same bytes, but one may still lose some."""
    disk = CrashDisk()
    file = made(disk).create("a")
    made(disk).sync()
    file.write(0, (b"abc",), sync=False)
    seen, situation = disk.fingerprint(), disk.situation()
    file.sync()
    assert disk.fingerprint() == seen
    assert disk.situation() != situation


def test_a_situation_can_leave_out_a_file() -> None:
    disk = CrashDisk()
    made(disk).create("a")
    without, other = disk.situation(but="x"), disk.situation(but="a")
    made(disk).create("x").write(0, (b"abc",), sync=False)
    assert disk.situation(but="x") == without
    assert disk.situation(but="a") != other

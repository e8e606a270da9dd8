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


def test_a_watcher_sees_what_a_power_loss_at_each_operation_would_leave() -> None:
    """Method: once for each operation with `crash_at`, and once for all with a watcher."""
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


def test_a_stopped_disk_does_nothing_any_more_and_can_be_copied() -> None:
    disk = CrashDisk()
    act(disk)
    before = states(disk)
    copy = disk.stopped()
    disk.stop()
    for each in (copy, disk):
        with pytest.raises(PowerLoss):
            made(each)
        assert states(each) == before


def test_a_situation_tells_durable_from_seen() -> None:
    """Two disks with the same bytes, of which one may still lose some."""
    disk = CrashDisk()
    file = made(disk).create("a")
    made(disk).sync()
    file.write(0, (b"abc",), sync=False)
    seen, situation = disk.fingerprint(), disk.situation()
    file.sync()
    assert disk.fingerprint() == seen
    assert disk.situation() != situation


def test_a_situation_leaves_out_what_does_not_matter() -> None:
    disk = CrashDisk()
    made(disk).create("a")
    without, other = disk.situation(but="x"), disk.situation(but="a")
    made(disk).create("x").write(0, (b"abc",), sync=False)
    assert disk.situation(but="x") == without
    assert disk.situation(but="a") != other

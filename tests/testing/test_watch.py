"""A watched disk shows its watcher what a crash would leave, and then goes on as if unwatched."""

from __future__ import annotations

import contextlib

import pytest

from fmq.testing import CrashDisk, PowerLoss
from tests.testing.outcomes import made

STEPS = 14


def work(disk: CrashDisk) -> None:
    """Every operation that there is; synced writes over and behind what is pending."""
    directory = made(disk)
    directory.subdirectory("there", make=True)
    file = directory.create("a")
    file.allocate(2000)
    file.write_zeros(1000)
    file.write(0, (b"pending",), sync=False)
    file.write(3, (b"synced" * 200,), sync=True)
    directory.sync()
    file.write(7, (b"again",), sync=True)
    file.sync()
    file.write(9, (b"alone",), sync=True)
    directory.rename("a", "b")
    directory.remove("b")


def left_by(disk: CrashDisk) -> list[object]:
    """All that a crash may leave now."""
    killed = [disk.after_kill(written=written).fingerprint() for written in (True, False)]
    states = [(state.loss, state.fingerprint()) for state in disk.after_kill().states()]
    return [*killed, *states]


@pytest.mark.parametrize("crash_at", range(STEPS))
def test_a_watcher_sees_what_a_crash_at_this_operation_leaves(crash_at: int) -> None:
    """The same kills and the same power cuts as of a disk that crashes there."""
    watched, seen = CrashDisk(), []
    watched.watch(lambda _: seen.append(left_by(watched)))
    work(watched)
    crashed = CrashDisk(crash_at=crash_at)
    with contextlib.suppress(PowerLoss):
        work(crashed)
    assert len(seen) == STEPS
    assert seen[crash_at] == left_by(crashed)


def test_a_watched_disk_does_and_promises_the_same() -> None:
    """After every operation: the bytes, what is pending, and what a power cut may leave."""
    disks = CrashDisk(), CrashDisk()
    told: list[str] = []
    disks[1].watch(told.append)
    for disk in disks:
        work(disk)
    assert disks[0].history == disks[1].history == told
    assert left_by(disks[0]) == left_by(disks[1])


def test_a_disk_that_is_not_watched_any_more_tells_nothing() -> None:
    """And a watched one that is to crash tells of the operation at which it does."""
    disk, told = CrashDisk(crash_at=2), list[str]()
    disk.watch(told.append)
    directory = made(disk)
    with pytest.raises(PowerLoss):
        directory.create("a")
    assert told == [*disk.history, "create data/a"]
    other = CrashDisk()
    other.watch(told.append)
    other.watch(None)
    made(other)
    assert len(told) == 3


def test_a_number_in_a_loss_has_a_name() -> None:
    """Also if it was left pending by an earlier life."""
    disk = CrashDisk()
    made(disk).create("a").write(0, (b"x",), sync=False)
    *_, change = disk.pending()
    assert disk.name_of(change.number) == "write data/a 0+1"
    killed = disk.after_kill()
    assert killed.name_of(change.number) == "write data/a 0+1"
    made(killed).create("b")
    *_, change = killed.pending()
    assert killed.name_of(change.number) == "create data/b"

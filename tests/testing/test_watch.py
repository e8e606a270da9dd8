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
def test_a_watcher_sees_the_states_that_a_crash_there_leaves(crash_at: int) -> None:
    """Compare kills and power cuts with those of a disk that crashes at the operation."""
    watched, seen = CrashDisk(), []
    watched.watch(lambda _: seen.append(left_by(watched)))
    work(watched)
    crashed = CrashDisk(crash_at=crash_at)
    with contextlib.suppress(PowerLoss):
        work(crashed)
    assert len(seen) == STEPS
    assert seen[crash_at] == left_by(crashed)


def test_a_watched_disk_behaves_like_one_without_a_watcher() -> None:
    """The history, the bytes and the possible losses are the same."""
    disks = CrashDisk(), CrashDisk()
    told: list[str] = []
    disks[1].watch(told.append)
    for disk in disks:
        work(disk)
    assert disks[0].history == disks[1].history == told
    assert left_by(disks[0]) == left_by(disks[1])


def test_a_removed_watcher_is_not_called() -> None:
    """A watcher is also called for the operation at which its disk crashes."""
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


def test_a_number_of_a_change_has_a_name() -> None:
    """This includes a change left pending from before a kill."""
    disk = CrashDisk()
    made(disk).create("a").write(0, (b"x",), sync=False)
    *_, change = disk.pending()
    assert disk.name_of(change.number) == "write data/a 0+1"
    killed = disk.after_kill()
    assert killed.name_of(change.number) == "write data/a 0+1"
    made(killed).create("b")
    *_, change = killed.pending()
    assert killed.name_of(change.number) == "create data/b"

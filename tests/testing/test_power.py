"""When the power fails, what a kill leaves, and one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fmq.machine.disk import Directory, File
from fmq.testing import CrashDisk, Loss, PowerLoss
from tests.testing.outcomes import content, made, outcomes

OPERATIONS: dict[str, Callable[[Directory, File], object]] = {
    "write": lambda directory, file: file.write(0, (b"y",), sync=False),
    "synced write": lambda directory, file: file.write(0, (b"y",), sync=True),
    "sync": lambda directory, file: file.sync(),
    "allocate": lambda directory, file: file.allocate(10),
    "write zeros": lambda directory, file: file.write_zeros(10),
    "create": lambda directory, file: directory.create("b"),
    "rename": lambda directory, file: directory.rename("a", "b"),
    "remove": lambda directory, file: directory.remove("a"),
    "directory sync": lambda directory, file: directory.sync(),
    "mkdir": lambda directory, file: directory.subdirectory("below", make=True),
}
QUESTIONS: dict[str, Callable[[Directory, File], object]] = {
    "read": lambda directory, file: file.read(0, 1),
    "size": lambda directory, file: file.size(),
    "identity": lambda directory, file: file.identity(),
    "pin": lambda directory, file: file.pin(exclusive=False),
    "names": lambda directory, file: directory.names(),
    "open": lambda directory, file: directory.open("a"),
    "subdirectory": lambda directory, file: directory.subdirectory("there", make=True),
    "lock": lambda directory, file: directory.lock("LOCK")(),
}


def start(disk: CrashDisk) -> tuple[Directory, File]:
    """Five operations, all durable: the directories data and data/there, the file data/a."""
    directory = made(disk)
    directory.subdirectory("there", make=True)
    file = directory.create("a")
    directory.sync()
    return directory, file


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_change_counts_as_one_operation(name: str) -> None:
    disk = CrashDisk()
    parts = start(disk)
    assert disk.operations == 5
    OPERATIONS[name](*parts)
    assert disk.operations == len(disk.history) == 6


def test_history_lists_operations_under_the_files_current_names() -> None:
    disk = CrashDisk()
    directory, file = start(disk)
    file.write(7, (b"ab", b"c"), sync=True)
    directory.rename("a", "b")
    file.sync()
    assert disk.history == [
        "mkdir data",
        "directory sync .",
        "mkdir data/there",
        "create data/a",
        "directory sync data",
        "write data/a 7+3 sync",
        "rename data/a b",
        "sync data/b",
    ]


@pytest.mark.parametrize("name", QUESTIONS)
def test_reading_does_not_count_as_an_operation(name: str) -> None:
    disk = CrashDisk()
    parts = start(disk)
    QUESTIONS[name](*parts)
    assert disk.operations == 5


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_operation_at_which_the_power_fails_does_not_happen(name: str) -> None:
    disk = CrashDisk(crash_at=5)
    parts = start(disk)
    before = disk.fingerprint()
    with pytest.raises(PowerLoss, match="before operation 5"):
        OPERATIONS[name](*parts)
    assert disk.fingerprint() == before
    assert disk.operations == 5
    assert (disk.pending() != []) == (name == "synced write")


@pytest.mark.parametrize("name", OPERATIONS | QUESTIONS)
def test_after_a_power_loss_every_operation_raises(name: str) -> None:
    disk = CrashDisk(crash_at=5)
    parts = start(disk)
    with pytest.raises(PowerLoss):
        parts[0].sync()
    with pytest.raises(PowerLoss):
        (OPERATIONS | QUESTIONS)[name](*parts)
    with pytest.raises(PowerLoss):
        disk.directory("data", make=False)


def test_closing_and_releasing_work_without_power() -> None:
    """They run in `finally` blocks, where another error would hide the first."""
    disk = CrashDisk(crash_at=5)
    directory, file = start(disk)
    release = directory.lock("LOCK")
    with pytest.raises(PowerLoss):
        directory.sync()
    file.close()
    release()
    directory.close()


def test_except_exception_does_not_catch_a_power_loss() -> None:
    assert not issubclass(PowerLoss, Exception)


def test_an_interrupted_synced_write_is_whole_or_torn_or_absent() -> None:
    disk = CrashDisk(crash_at=6)
    _, file = start(disk)
    file.write(0, (b"old",), sync=True)
    with pytest.raises(PowerLoss):
        file.write(3, (b"new",), sync=True)
    seen = outcomes(disk, "a")
    assert {b"old", b"oldnew", b"oldn", b"old\0\0\0"} <= seen
    assert all(data and data.startswith(b"old") for data in seen)


def test_an_interrupted_sync_leaves_writes_pending() -> None:
    disk = CrashDisk(crash_at=6)
    _, file = start(disk)
    file.write(0, (b"x",), sync=False)
    with pytest.raises(PowerLoss):
        file.sync()
    assert {b"", b"x"} <= outcomes(disk, "a")


def test_a_power_loss_reaches_every_thread() -> None:
    disk = CrashDisk(crash_at=400)
    _, file = start(disk)
    felt = []

    def work(place: int) -> None:
        try:
            while True:
                file.write(place, (b"x",), sync=True)
        except PowerLoss:
            felt.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(felt) == [0, 1, 2, 3]
    assert disk.operations == 400


# --- kills ----------------------------------------------------------------------------------


def test_after_a_kill_everything_visible_is_still_there() -> None:
    disk = CrashDisk()
    directory, file = start(disk)
    file.write(0, (b"x",), sync=False)
    directory.rename("a", "b")
    later = disk.after_kill()
    assert content(later, "b") == b"x"
    assert later.fingerprint() == disk.fingerprint()
    assert later.operations == 0


def test_after_a_kill_pending_changes_are_still_pending() -> None:
    disk = CrashDisk()
    directory, file = start(disk)
    file.write(0, (b"x",), sync=False)
    directory.rename("a", "b")
    later = disk.after_kill().after_kill()
    assert {None, b"", b"x"} <= outcomes(later, "b")
    made(later).sync()
    assert {b"", b"x"} <= outcomes(later, "b")
    made(later).open("b").sync()
    assert outcomes(later, "b") == {b"x"}


@pytest.mark.parametrize("written", [True, False])
def test_a_kill_may_come_before_or_after_an_interrupted_write(written: bool) -> None:
    disk = CrashDisk(crash_at=5)
    _, file = start(disk)
    with pytest.raises(PowerLoss):
        file.write(0, (b"x",), sync=True)
    later = disk.after_kill(written=written)
    assert content(later, "a") == (b"x" if written else b"")
    assert outcomes(later, "a") >= ({b"", b"x"} if written else {b""})
    assert (later.pending() != []) == written


def test_numbers_of_changes_are_not_reused_after_a_kill() -> None:
    """A Loss names changes by number, also those from before a kill."""
    disk = CrashDisk(crash_at=6)
    _, file = start(disk)
    file.write(0, (b"x",), sync=False)
    with pytest.raises(PowerLoss):
        file.write(1, (b"y",), sync=True)
    later = disk.after_kill()
    made(later).open("a", write=True).write(2, (b"z",), sync=False)
    assert len({change.number for change in later.pending()}) == len(later.pending()) == 3
    assert {b"", b"x", b"xy", b"xyz", b"\0\0z"} <= outcomes(later, "a")


def test_a_crash_releases_locks_and_pins() -> None:
    disk = CrashDisk()
    directory, file = start(disk)
    directory.lock("LOCK")
    file.pin(exclusive=True)
    for later in (disk.after_kill(), disk.after_power_loss(0)):
        made(later).lock("LOCK")
        assert made(later).open("a").pin(exclusive=True)


def test_a_disk_after_a_crash_may_lose_power_again() -> None:
    disk = CrashDisk()
    start(disk)
    for later in (
        disk.after_kill(crash_at=2),
        disk.after_power_loss(0, crash_at=2),
        disk.after(Loss(), crash_at=2),
    ):
        directory = made(later)  # which syncs its parent
        directory.sync()
        with pytest.raises(PowerLoss):
            directory.sync()

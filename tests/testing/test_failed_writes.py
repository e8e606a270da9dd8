"""What a write or sync that failed leaves: visible, pending or durable bytes, or none."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fmq.posix import RealDisk
from fmq.testing import FaultDisk
from tests.testing.outcomes import content, failing, made, outcomes, without_faults


def test_a_failed_synced_write_is_visible_but_never_durable() -> None:
    """Linux marks pages clean when writing them has failed, so later syncs report success."""
    crash, disk, file = without_faults(b"old")
    disk.fail("write")
    assert failing(lambda: file.write(0, (b"new",), sync=True)) == errno.EIO
    assert content(disk, "a") == b"new"
    file.sync()
    file.write(3, (b"!",), sync=True)
    assert content(crash.after_kill(), "a") == b"new!"
    assert outcomes(crash, "a") == outcomes(crash.after_kill(), "a") == {b"old!"}


def test_a_failed_sync_loses_pending_writes() -> None:
    crash, disk, file = without_faults(b"old")
    file.write(0, (b"n",), sync=False)
    file.write(2, (b"w",), sync=True)
    disk.fail("sync")
    assert failing(file.sync) == errno.EIO
    file.sync()
    assert content(disk, "a") == b"nlw"
    assert outcomes(crash, "a") == {b"olw"}


def test_a_failed_sync_loses_no_writes_of_other_files() -> None:
    crash, disk, file = without_faults(b"old")
    made(disk).create("b").write(0, (b"x",), sync=False)
    made(disk).sync()
    disk.fail("sync")
    assert failing(file.sync) == errno.EIO
    made(disk).open("b").sync()
    assert outcomes(crash, "b") == {b"x"}


@pytest.mark.parametrize("spoils", [False, True])
def test_repeating_a_failed_write_helps_unless_the_file_is_spoiled(spoils: bool) -> None:
    """On ext4 it did not help for appended files. Only a new file always did."""
    crash, disk, file = without_faults(b"old")
    disk.fail("write", spoils=spoils)
    assert failing(lambda: file.write(0, (b"new",), sync=True)) == errno.EIO
    crash = crash.after_kill()
    made(crash).open("a", write=True).write(0, (b"new",), sync=True)
    made(crash).open("a").sync()
    assert outcomes(crash, "a") == ({b"old"} if spoils else {b"new"})
    copy = made(crash).create("copy")
    copy.write(0, (b"new",), sync=True)
    made(crash).rename("copy", "a")
    made(crash).sync()
    assert outcomes(crash, "a") == {b"new"}


def test_a_failed_sync_may_spoil_its_file_for_later_writes() -> None:
    crash, disk, file = without_faults(b"old")
    disk.fail("sync", spoils=True)
    assert failing(file.sync) == errno.EIO
    file.write(0, (b"new",), sync=True)
    file.allocate(10)
    file.sync()
    assert outcomes(crash, "a") == {b"old"}


def test_a_file_spoiled_by_a_failed_sync_works_after_a_power_cut() -> None:
    crash, disk, file = without_faults(b"old")
    disk.fail("sync", spoils=True)
    assert failing(file.sync) == errno.EIO
    later = crash.after_power_loss(0)
    made(later).open("a", write=True).write(0, (b"new",), sync=True)
    assert outcomes(later, "a") == {b"new"}


@pytest.mark.parametrize(("short", "seen"), [(None, b"new"), (0, b"old"), (2, b"ned")])
def test_a_failed_synced_write_may_be_visible_in_part(short: int | None, seen: bytes) -> None:
    crash, disk, file = without_faults(b"old")
    disk.fail("write", short=short)
    assert failing(lambda: file.write(0, (b"n", b"ew"), sync=True)) == errno.EIO
    assert content(disk, "a") == seen
    assert outcomes(crash, "a") == {b"old"}


@pytest.mark.parametrize(("short", "seen"), [(None, b"old"), (0, b"old"), (2, b"ned")])
@pytest.mark.parametrize("sync", [True, False])
def test_a_write_to_a_full_disk_leaves_pending_the_part_that_fitted(
    short: int | None, seen: bytes, sync: bool
) -> None:
    crash, disk, file = without_faults(b"old")
    disk.fail("write", error=errno.ENOSPC, short=short)
    assert failing(lambda: file.write(0, (b"n", b"ew"), sync=sync)) == errno.ENOSPC
    assert content(disk, "a") == seen
    assert {b"old", seen} <= outcomes(crash, "a")
    file.sync()
    assert outcomes(crash, "a") == {seen}


@pytest.mark.parametrize("short", [None, 5, 100])
@pytest.mark.parametrize("zeros", [True, False])
def test_an_allocation_that_fails_may_have_grown_the_file(short: int | None, zeros: bool) -> None:
    _, disk, file = without_faults(b"old")
    make = file.write_zeros if zeros else file.allocate
    disk.fail("allocate", error=errno.ENOSPC, short=short)
    assert failing(lambda: make(10)) == errno.ENOSPC
    assert file.size() == {None: 3, 5: 5, 100: 10}[short]
    assert file.read(0, 3) == (bytes(3) if zeros and short else b"old")


def test_names_stay_pending_after_a_failed_directory_sync() -> None:
    crash, disk, _ = without_faults(b"x")
    made(disk).rename("a", "b")
    disk.fail("directory sync")
    assert failing(made(disk).sync) == errno.EIO
    assert outcomes(crash, "b") == {None, b"x"}
    made(disk).sync()
    assert outcomes(crash, "b") == {b"x"}


def test_a_failed_write_counts_as_an_operation_of_the_disk() -> None:
    crash, disk, file = without_faults(b"x")
    before = crash.operations
    disk.fail("write")
    disk.fail("sync")
    assert failing(lambda: file.write(0, (b"y",), sync=True)) == errno.EIO
    assert failing(file.sync) == errno.EIO
    assert crash.operations == before + 2


def test_a_real_disk_can_be_made_to_fail(tmp_path: Path) -> None:
    disk = FaultDisk(RealDisk())
    directory = disk.directory(str(tmp_path / "data"), make=True)
    file = directory.create("a")
    disk.fail("write", nth=1, short=2)
    disk.fail("sync")
    file.write(0, (b"old",), sync=True)
    assert failing(lambda: file.write(0, (b"new",), sync=True)) == errno.EIO
    assert failing(file.sync) == errno.EIO
    assert file.read(0, 10) == b"ned"
    file.close()
    directory.close()

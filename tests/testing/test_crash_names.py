"""The persistence model, for names: a name is durable once its directory was synced."""

from __future__ import annotations

from fmq.testing import CrashDisk
from tests.testing.outcomes import content, listings, made, outcomes


def write(disk: CrashDisk, name: str, data: bytes) -> None:
    file = made(disk).create(name)
    file.write(0, (data,), sync=True)
    file.close()


def names(*each: str) -> frozenset[str]:
    return frozenset(each)


def test_a_synced_file_may_be_gone_until_the_directory_is_synced() -> None:
    disk = CrashDisk()
    write(disk, "a", b"x")
    assert outcomes(disk, "a") == {None, b"x"}
    made(disk).sync()
    assert outcomes(disk, "a") == {b"x"}


def test_a_durable_name_may_lead_to_an_empty_file() -> None:
    disk = CrashDisk()
    made(disk).create("a").write(0, (b"x",), sync=False)
    made(disk).sync()
    assert {b"", b"x"} <= outcomes(disk, "a")
    assert None not in outcomes(disk, "a")


def test_a_renamed_file_may_have_either_name_until_the_directory_is_synced() -> None:
    disk = CrashDisk()
    write(disk, "old", b"x")
    made(disk).sync()
    made(disk).rename("old", "new")
    assert listings(disk) == {names("old"), names("new")}
    made(disk).sync()
    assert listings(disk) == {names("new")}


def test_a_file_has_at_most_one_name_after_any_loss() -> None:
    disk = CrashDisk()
    write(disk, "a", b"x")
    made(disk).rename("a", "b")
    made(disk).rename("b", "c")
    assert listings(disk) == {names(), names("a"), names("b"), names("c")}


def test_a_replaced_file_is_the_old_or_new_one_until_a_directory_sync() -> None:
    disk = CrashDisk()
    write(disk, "checkpoint", b"old")
    made(disk).sync()
    write(disk, "new", b"new")
    made(disk).rename("new", "checkpoint")
    assert outcomes(disk, "checkpoint") == {b"old", b"new"}
    assert listings(disk) == {names("checkpoint"), names("checkpoint", "new")}
    made(disk).sync()
    assert outcomes(disk, "checkpoint") == {b"new"}


def test_a_rename_may_survive_the_loss_of_an_earlier_write() -> None:
    """The new name is durable and the bytes under it are not, which empties a checkpoint file."""
    disk = CrashDisk()
    write(disk, "checkpoint", b"old")
    made(disk).sync()
    made(disk).create("new").write(0, (b"new!",), sync=False)
    made(disk).rename("new", "checkpoint")
    seen = outcomes(disk, "checkpoint")
    assert {b"old", b"", bytes(4), b"ne", b"new!"} <= seen


def test_a_removed_file_may_come_back_until_the_directory_is_synced() -> None:
    disk = CrashDisk()
    write(disk, "a", b"x")
    made(disk).sync()
    made(disk).remove("a")
    assert outcomes(disk, "a") == {None, b"x"}
    made(disk).sync()
    assert outcomes(disk, "a") == {None}


def test_any_of_several_removals_may_be_lost() -> None:
    """Retention that does not sync in between may leave a missing segment."""
    disk = CrashDisk()
    for name in "abc":
        write(disk, name, b"x")
    made(disk).sync()
    for name in "ab":
        made(disk).remove(name)
    assert listings(disk) == {names(*left) for left in ("abc", "bc", "ac", "c")}


def test_a_reused_name_leads_to_the_old_file_the_new_one_or_none() -> None:
    disk = CrashDisk()
    write(disk, "a", b"old")
    made(disk).sync()
    made(disk).remove("a")
    write(disk, "a", b"new")
    assert outcomes(disk, "a") == {b"old", None, b"new"}


def test_a_directory_sync_and_a_file_sync_do_not_replace_each_other() -> None:
    disk = CrashDisk()
    file = made(disk).create("a")
    file.write(0, (b"x",), sync=False)
    file.sync()
    assert None in outcomes(disk, "a")
    file.write(0, (b"y",), sync=False)
    made(disk).sync()
    assert b"x" in outcomes(disk, "a")


def test_a_new_subdirectory_is_durable_after_a_sync_of_its_parent() -> None:
    disk = CrashDisk()
    below = made(disk).subdirectory("below", make=True)
    below.create("a").write(0, (b"x",), sync=True)
    below.sync()
    assert listings(disk) == {names(), names("below")}
    made(disk).sync()
    assert listings(disk) == {names("below")}
    for state in disk.states():
        assert made(state).subdirectory("below", make=False).names() == ["a"]


def test_names_in_a_subdirectory_need_its_own_sync() -> None:
    disk = CrashDisk()
    below = made(disk).subdirectory("below", make=True)
    made(disk).sync()
    below.create("a")
    made(disk).sync()
    found = {len(made(state).subdirectory("below", make=False).names()) for state in disk.states()}
    assert found == {0, 1}


def test_a_removed_file_has_no_pending_changes() -> None:
    """Its changes must not multiply the states."""
    disk = CrashDisk()
    file = made(disk).create("a")
    file.write(0, (b"x",), sync=False)
    made(disk).remove("a")
    made(disk).sync()
    file.write(0, (b"y",), sync=False)
    assert disk.pending() == []


def test_the_file_of_a_lock_is_durable_at_once() -> None:
    disk = CrashDisk()
    directory = made(disk)
    before = disk.operations
    directory.lock("LOCK")
    assert disk.operations == before
    assert listings(disk) == {names("LOCK")}


def test_a_file_keeps_its_identity_after_a_crash() -> None:
    disk = CrashDisk()
    write(disk, "a", b"x")
    made(disk).sync()
    identity = made(disk).open("a").identity()
    for later in (disk.after_kill(), disk.after_power_loss(1), disk.after_kill().after_kill()):
        write(later, "b", b"y")
        assert made(later).open("a").identity() == identity
        assert made(later).open("b").identity() != identity
        assert content(later, "b") == b"y"

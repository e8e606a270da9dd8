"""The persistence model, for bytes: what is durable when, and what a power cut leaves.

The claims are checked over all states that a CrashDisk enumerates. Where a rule says that
something may be lost, a state in which it is lost must be among them, and one in which it is
not: a disk that keeps too much finds no bugs, one that loses too much finds some that are none.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fmq.machine.disk import File
from fmq.testing import CrashDisk, Tear
from tests.testing.outcomes import content, made, outcomes


def synced_file(disk: CrashDisk, data: bytes = b"") -> File:
    """The file "a", durable with its name."""
    file = made(disk).create("a")
    if data:
        file.write(0, (data,), sync=True)
    made(disk).sync()
    return file


def test_a_synced_write_survives_power_loss() -> None:
    disk = CrashDisk()
    synced_file(disk).write(0, (b"abc", b"def"), sync=True)
    assert outcomes(disk, "a") == {b"abcdef"}


def test_a_write_that_is_not_synced_may_be_lost_kept_or_torn() -> None:
    disk = CrashDisk()
    synced_file(disk).write(0, (b"abcdef",), sync=False)
    seen = outcomes(disk, "a")
    assert {b"", b"abcdef"} <= seen
    assert {b"a", b"abc", b"abcde"} <= seen, "short"
    assert {bytes(6), b"a" + bytes(5), b"abc" + bytes(3)} <= seen, "length without data"
    assert {b"\0bcdef", b"\0\0\0def"} <= seen, "head lost"
    for head in (b"", b"a", b"abc"):
        rests = {data[len(head) :] for data in seen if data and data.startswith(head)}
        assert any(rest and not set(rest) & set(b"\0abcdef") for rest in rests), "garbage"


def test_sync_makes_all_that_was_written_to_the_file_durable() -> None:
    disk = CrashDisk()
    file = synced_file(disk)
    file.write(0, (b"abc",), sync=False)
    file.write(6, (b"ghi",), sync=False)
    file.sync()
    assert outcomes(disk, "a") == {b"abc\0\0\0ghi"}


def test_a_sync_of_one_file_makes_no_other_durable() -> None:
    disk = CrashDisk()
    synced_file(disk).write(0, (b"x",), sync=False)
    other = made(disk).create("b")
    other.write(0, (b"y",), sync=True)
    other.sync()
    assert b"" in outcomes(disk, "a")


def test_a_sync_through_any_handle_syncs_the_whole_file() -> None:
    disk = CrashDisk()
    synced_file(disk).write(0, (b"x",), sync=False)
    made(disk).open("a").sync()
    assert outcomes(disk, "a") == {b"x"}


def test_a_synced_write_makes_durable_only_what_it_wrote() -> None:
    """RWF_DSYNC promises nothing about bytes that an earlier call left pending."""
    disk = CrashDisk()
    file = synced_file(disk)
    file.write(0, (b"abc",), sync=False)
    file.write(3, (b"def",), sync=True)
    seen = outcomes(disk, "a")
    assert {b"\0\0\0def", b"abcdef"} <= seen
    assert all(data and data[3:] == b"def" for data in seen)


def test_a_synced_write_overrides_a_pending_one_below_it() -> None:
    disk = CrashDisk()
    file = synced_file(disk)
    file.write(0, (b"xxxxxx",), sync=False)
    file.write(1, (b"bcd",), sync=True)
    seen = outcomes(disk, "a")
    assert {b"\0bcd", b"xbcdxx"} <= seen
    assert all(data and data[1:4] == b"bcd" for data in seen)


def test_a_write_after_a_sync_is_pending_again() -> None:
    disk = CrashDisk()
    file = synced_file(disk, b"old")
    file.write(0, (b"new",), sync=False)
    assert {b"old", b"new", b"nld", b"oew"} <= outcomes(disk, "a")


def test_a_later_write_may_survive_an_earlier_one() -> None:
    disk = CrashDisk()
    file = synced_file(disk)
    file.write(0, (b"1",), sync=False)
    file.write(1, (b"2",), sync=False)
    assert {b"", b"1", b"12", b"\x002"} <= outcomes(disk, "a")


def test_a_torn_write_may_come_before_a_whole_one() -> None:
    disk = CrashDisk()
    file = synced_file(disk)
    file.write(0, (b"1111",), sync=False)
    file.write(4, (b"2222",), sync=False)
    assert {b"11", b"11\0\x002222"} <= outcomes(disk, "a")


def test_data_may_survive_without_the_new_length_of_the_file() -> None:
    """Of a write across the end of the file, the part beyond the old end may be lost."""
    disk = CrashDisk()
    synced_file(disk, b"0123456").write(4, (b"abcdefghijklmnop",), sync=False)
    assert b"0123abc" in outcomes(disk, "a")


def test_allocated_room_may_be_lost() -> None:
    disk = CrashDisk()
    synced_file(disk, b"abc").allocate(5)
    assert outcomes(disk, "a") == {b"abc", b"abc\0\0"}


def test_a_synced_write_makes_durable_only_the_length_it_needs() -> None:
    disk = CrashDisk()
    file = synced_file(disk)
    file.allocate(9)
    file.write(2, (b"abc",), sync=True)
    assert outcomes(disk, "a") == {b"\0\0abc", b"\0\0abc\0\0\0\0"}
    file.sync()
    assert outcomes(disk, "a") == {b"\0\0abc\0\0\0\0"}


def test_written_zeros_may_be_lost_or_survive_in_part() -> None:
    disk = CrashDisk()
    file = synced_file(disk)
    file.write_zeros(8)
    assert outcomes(disk, "a") == {b"", bytes(1), bytes(4), bytes(7), bytes(8)}
    file.sync()
    assert outcomes(disk, "a") == {bytes(8)}


def test_writes_are_torn_at_sector_boundaries_of_the_file() -> None:
    """Each sector is written or not, wherever the write began. One sector may be a hole."""
    disk = CrashDisk()
    synced_file(disk).write(500, (b"x" * 2000,), sync=False)
    seen = outcomes(disk, "a")
    for end in (512, 1024, 1536, 2048):
        assert bytes(500) + b"x" * (end - 500) in seen
        if end + 512 <= 2500:
            hole = bytes(500) + b"x" * (end - 500) + bytes(512) + b"x" * (2500 - end - 512)
            assert hole in seen


def test_a_large_write_leaves_a_bounded_number_of_states() -> None:
    disk = CrashDisk()
    synced_file(disk).write(0, (b"x" * 1_000_000,), sync=False)
    cuts = {loss.torn.cut for loss in disk.losses() if loss.torn is not None}
    assert 16 < len(cuts) < 24
    assert cuts != {loss.torn.cut for loss in disk.losses(seed=1) if loss.torn is not None}


def test_every_kind_of_tear_is_tried() -> None:
    disk = CrashDisk()
    synced_file(disk).write(0, (b"x" * 1000,), sync=False)
    assert {loss.torn.tear for loss in disk.losses() if loss.torn is not None} == set(Tear)


def test_changes_of_a_disk_do_not_affect_its_copies() -> None:
    """Copies share unchanged data. An open file sees the changes of its own disk."""
    disk = CrashDisk()
    synced_file(disk, b"abc")
    made(disk).create("b")
    one, other = disk.after_kill(), disk.after_kill().after_power_loss(0)
    later = one.after_kill()
    reader = made(one).open("a")
    made(one).open("a", write=True).write(0, (b"xyz",), sync=False)
    assert reader.read(0, 3) == b"xyz"
    assert content(disk, "a") == content(other, "a") == content(later, "a") == b"abc"
    assert outcomes(one, "a") >= {b"abc", b"xyz"}
    made(one).rename("b", "c")
    made(one).rename("c", "b")
    made(one).open("b", write=True).write(0, (b"new",), sync=True)
    made(one).sync()
    assert outcomes(one, "b") == {b"new"}
    assert outcomes(later, "b") == {None, b""}


def test_on_a_dishonest_disk_nothing_becomes_durable() -> None:
    """This is the negative control: a test of durability that passes on it tests nothing."""
    disk = CrashDisk(honest=False)
    file = synced_file(disk, b"x")
    file.sync()
    found = set()
    for state in disk.states():
        there = "data" in state.directory(".", make=False).names()
        found.add(content(state, "a") if there else "no directory")
    assert {"no directory", None, b"", b"x"} <= found


WRITES = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from(["write", "write", "synced write", "sync"]),
    ),
    max_size=9,
)


@settings(deadline=None)
@given(WRITES, st.integers())
def test_bytes_whose_last_write_was_synced_survive_every_loss(
    writes: list[tuple[int, int, str]], seed: int
) -> None:
    """The write or a later sync made them durable.

    Method: a model keeps each byte, and whether it is durable.
    """
    disk = CrashDisk()
    file = synced_file(disk)
    certain: dict[int, int] = {}
    pending: dict[int, int] = {}
    for number, (offset, size, how) in enumerate(writes, 1):
        cells = dict.fromkeys(range(offset, offset + size), number)
        if how == "sync":
            file.sync()
            certain |= pending
            pending.clear()
            continue
        file.write(offset, (bytes([number]) * size,), sync=how == "synced write")
        if how == "synced write":
            certain |= cells
            for place in cells:
                pending.pop(place, None)
        else:
            pending |= cells
    for state in (*disk.states(seed), disk.after_power_loss(seed)):
        data = content(state, "a")
        assert data is not None
        for place in certain.keys() - pending.keys():
            assert data[place] == certain[place], state.loss
    everything = max(certain.keys() | pending.keys(), default=-1) + 1
    assert disk.after_kill().fingerprint() in {state.fingerprint() for state in disk.states()}
    assert len(content(disk, "a") or b"") == everything

"""Indexes are derived: lost, damaged or of another time, they are built again from the journal."""

from __future__ import annotations

import pytest

from fmq.errors import Unreadable
from fmq.store.index.index_blocks import decode_blocks
from fmq.store.journal.segment import decode_header
from fmq.testing import FaultDisk
from fmq.testing.faults import Operation
from tests.recovery.sights import OPTIONS, finished, interrupted, sight
from tests.small import (
    CrashDisk,
    check,
    content,
    fill,
    flip,
    opened,
    overwrite,
    remove,
    segments,
    truncate,
)


def derived(disk: CrashDisk, *suffixes: str) -> list[str]:
    return sorted(name for name in content(disk) if name.endswith(suffixes))


def spoil(disk: CrashDisk, name: str, how: str) -> None:
    size = len(content(disk)[name])
    match how:
        case "removed":
            remove(disk, name)
        case "emptied":
            truncate(disk, name, 0)
        case "cut short":
            truncate(disk, name, size - 5)
        case "zeroed":
            overwrite(disk, name, 0, bytes(size))
        case "head flipped":
            flip(disk, name, 30)
        case "end flipped":
            flip(disk, name, size - 3)
        case "longer":
            overwrite(disk, name, size, b"\x5a" * 100)


HOW = ["removed", "emptied", "cut short", "zeroed", "head flipped", "end flipped", "longer"]


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("suffix", [".idx", ".part"])
def test_a_damaged_index_changes_no_message_that_is_read(
    suffix: str, how: str, unclean: bool
) -> None:
    disk = interrupted() if unclean else finished()
    names = derived(disk, suffix)
    assert names
    expected = sight(disk.after_kill())
    for name in names:
        spoil(disk, name, how)
    assert sight(disk) == expected
    assert sight(disk) == expected


def test_the_journal_alone_restores_everything() -> None:
    for disk in (finished(), interrupted()):
        expected = sight(disk.after_kill())
        remove(disk, *derived(disk, ".idx", ".part", ".0", ".1", ".spare"), "LOCK")
        assert sight(disk) == expected
        check(disk)
        assert sight(disk) == expected


def test_an_index_of_another_segment_is_ignored() -> None:
    disk = finished()
    expected = sight(disk.after_kill())
    one, other = derived(disk, ".idx")[:2]
    data = content(disk)[other]
    truncate(disk, one, 0)
    overwrite(disk, one, 0, data)
    assert sight(disk) == expected


def test_a_part_from_before_the_checkpoint_is_built_again() -> None:
    """An old copy of the part was put back."""
    disk = CrashDisk()
    with opened(disk, **OPTIONS) as engine:
        engine.send("t", b"0", queue=0)
        engine.checkpoint()
        (name,) = derived(disk, ".part")
        old = content(disk)[name]
        engine.send("t", b"1", queue=0)
    expected = sight(disk.after_kill())
    truncate(disk, name, 0)
    overwrite(disk, name, 0, old)
    assert sight(disk) == expected
    check(disk)


def test_a_recovery_over_a_roll_begins_a_new_part() -> None:
    """A part after a hole is not believed, and the index would be built again at each opening.

    Method: roll after a checkpoint that names a part, kill the engine, and open again.
    """
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"x")
        engine.checkpoint()
        fill(engine)
        disk = disk.after_kill()
    with opened(disk) as engine:
        engine.send("t", b"y")
        engine.checkpoint()
        upto = engine.stats().position
    newest = segments(disk)[-1]
    store = decode_header(content(disk)[newest], newest).store
    part = decode_blocks(content(disk)[newest.replace(".seg", ".part")], store, 4096)
    assert part.end == upto


def test_an_undecided_transaction_survives_a_lost_part() -> None:
    """The index is read again from the segment's start, and the transaction from its PREPARE."""
    disk = CrashDisk()
    with opened(disk, **OPTIONS) as engine:
        engine.send("t", b"0", queue=0)
        tx = engine.transaction(tx_id="open")
        tx.send("t", b"1", queue=0)
        tx.prepare()
        engine.send("t", b"2", queue=0)
        engine.checkpoint()
        engine.send("t", b"3", queue=0)
        left = disk.after_kill()
    remove(left, *derived(left, ".part"))
    with opened(left, **OPTIONS) as engine:
        engine.decide("open", "commit")
        assert [message.body for message in engine.read("t")] == [b"0", b"2", b"3", b"1"]
    check(left)


def test_parts_of_sealed_segments_are_removed_and_indexes_are_not() -> None:
    disk = finished()
    indexes, parts = derived(disk, ".idx"), derived(disk, ".part")
    assert len(indexes) == len(derived(disk, ".seg")) - 1
    assert len(parts) == 1
    assert parts[0][:20] == derived(disk, ".seg")[-1][:20]


def test_unfinished_temporary_files_are_removed() -> None:
    disk = finished()
    directory = disk.directory("data", make=False)
    junk = ["00000000000000000000.idx.new", "00000000000099999999.part", "000077.spare"]
    junk += ["00000000000000008192.copy", "00000000000099999999.idx"]
    for name in junk:
        directory.create(name).write(0, (b"junk",), sync=True)
    expected = sight(disk)
    assert not set(junk) & set(content(disk))
    assert sight(disk) == expected


@pytest.mark.parametrize("operation", ["open", "read"])
def test_an_index_that_can_be_neither_read_nor_built_is_unreadable(
    operation: Operation,
) -> None:
    """The error names the file. Once the disk works again, so does the read."""
    disk = FaultDisk(finished())
    with opened(disk) as engine:
        (queue, *_) = engine.queues()
        for names in ("*.idx", "*.seg"):
            disk.fail(operation, names=names, persistently=True)
        with pytest.raises(Unreadable, match=r"\.seg: Input/output error"):
            engine.read(queue.topic, queue=queue.queue, offset=queue.first)
        disk.heal()
        assert engine.read(queue.topic, queue=queue.queue, offset=queue.first)
    check(disk)

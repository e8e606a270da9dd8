"""The checkpoint is a hint: whatever becomes of it, the same state is found."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import fmq
from fmq import Options
from fmq.errors import Closed, EngineFailed, StorageFull
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import HEAD, SLOTS, Checkpoint, decode, encode
from fmq.testing import FakeClock, FaultDisk
from fmq.testing.inside import inside
from tests.recovery.sights import finished, interrupted, sight
from tests.small import (
    CrashDisk,
    bodies,
    check,
    content,
    flip,
    opened,
    overwrite,
    remove,
    truncate,
)

LEDGER = {"floor": 0, "last_us": 9, "topics": {"t": [[0, 3]]}, "acks": [["g", "t", 0, 1, [[2, 3]]]]}
EXAMPLE = Checkpoint("ab", 500, 400, 7, 10, [[0, 4096, 500, 7]], LEDGER, True, 3)


def newest(disk: CrashDisk) -> str:
    """The slot that counts."""
    slots = {name: decode(data) for name, data in content(disk).items() if name in SLOTS}
    assert set(slots) == set(SLOTS)
    return max(slots, key=lambda name: slots[name].generation)  # type: ignore[union-attr]


def test_a_decoded_checkpoint_equals_the_encoded_one() -> None:
    assert decode(encode(EXAMPLE)) == EXAMPLE
    assert decode(encode(EXAMPLE) + b"the rest of an older, longer one") == EXAMPLE


def test_a_checkpoint_with_a_flipped_bit_is_not_decoded() -> None:
    data = encode(EXAMPLE)
    for byte in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[byte] ^= 1 << bit
            assert decode(bytes(damaged)) is None, (byte, bit)


def test_a_checkpoint_that_is_cut_short_is_not_decoded() -> None:
    data = encode(EXAMPLE)
    assert [size for size in range(len(data)) if decode(data[:size]) is not None] == []


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("lost", [SLOTS[:1], SLOTS[1:], SLOTS])
@pytest.mark.parametrize("how", ["flipped", "emptied", "zeroed", "removed"])
def test_lost_slots_change_no_message_that_is_read(
    how: str, lost: tuple[str, ...], unclean: bool
) -> None:
    disk = interrupted() if unclean else finished()
    expected = sight(disk.after_kill())
    for name in lost:
        size = len(content(disk)[name])
        match how:
            case "flipped":
                flip(disk, name, size // 2)
            case "emptied":
                truncate(disk, name, 0)
            case "zeroed":
                overwrite(disk, name, 0, bytes(size))
            case "removed":
                remove(disk, name)
    assert sight(disk) == expected
    check(disk)


@pytest.mark.parametrize("name", SLOTS)
def test_a_slot_of_another_store_is_ignored(name: str) -> None:
    """After files were copied around, the state is that of the journal that is there."""
    disk = finished()
    expected = sight(disk.after_kill())
    stranger = EXAMPLE._replace(store="00" * 16, generation=1000)
    overwrite(disk, name, 0, encode(stranger))
    assert sight(disk) == expected


def test_the_slots_are_written_in_turn_and_the_newer_one_counts() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        generations = []
        for number in range(4):
            engine.send("t", b"%d" % number)
            engine.checkpoint()
            generations.append((newest(disk) if number else SLOTS[1], engine.stats().checkpoints))
    names = [name for name, _ in generations[1:]]
    assert names == [SLOTS[0], SLOTS[1], SLOTS[0]]
    flip(disk, newest(disk), HEAD.size + 5)
    with opened(disk) as engine:
        assert [message.body for message in engine.read("t")] == [b"0", b"1", b"2", b"3"]


def test_a_checkpoint_says_where_to_scan_and_what_was_applied() -> None:
    """A is prepared, then B. A commits, B stays undecided, then a checkpoint is taken.

    Replay begins at the PREPARE of B and meets the COMMIT of A without A's PREPARE. That was
    applied before, and must be neither refused nor applied again.
    """
    disk = CrashDisk()
    with opened(disk) as engine:
        for tx_id in "AB":
            tx = engine.transaction(tx_id=tx_id)
            tx.send("t", tx_id.encode())
            tx.prepare()
        a, b = engine.undecided()
        engine.decide("A", "commit")
        engine.checkpoint()
        position = engine.stats().position
        left = disk.after_kill()
    checkpoint = decode(content(left)[SLOTS[1]])
    assert checkpoint is not None
    assert a.position < checkpoint.scan_from == b.position < checkpoint.applied_upto == position
    with opened(left) as engine:
        assert [message.body for message in engine.read("t")] == [b"A"]
        assert [each.tx_id for each in engine.undecided()] == ["B"]
        engine.decide("B", "commit")
        assert [message.body for message in engine.read("t")] == [b"A", b"B"]
        assert engine.outcome("A").state == "committed"
    check(left)


def test_an_undecided_transaction_that_made_its_topic_is_recovered() -> None:
    """Its append begins with the TOPIC record, before its PREPARE, and replay begins there."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("before", b"0")
        tx = engine.transaction(tx_id="T")
        tx.send("new", b"1")
        tx.prepare()
        engine.send("behind", b"2")
    with opened(disk) as engine:
        assert [each.tx_id for each in engine.undecided()] == ["T"]
        engine.decide("T", "commit")
        assert [message.body for message in engine.read("new")] == [b"1"]
    check(disk)


def test_checkpoints_are_written_by_size_when_idle_and_at_a_close() -> None:
    from fmq.testing import FakeClock

    clock, disk = FakeClock(), CrashDisk()
    with opened(disk, clock, checkpoint_bytes=1000, checkpoint_idle_seconds=2) as engine:
        engine.send("t", b"x" * 100)
        assert engine.stats().checkpoints == 0
        engine.send("t", b"x" * 900)
        assert engine.stats().checkpoints == 1
        engine.send("t", b"x")
        clock.advance(2)
        engine.sync()
        assert engine.stats().checkpoints == 2
        assert engine.stats().checkpointed_upto == engine.stats().position
        engine.send("t", b"y")
    with opened(disk) as engine:
        report = engine.stats().recovery
        assert (report.clean, report.replayed_bytes, report.copied) == (True, 0, False)


def test_recovery_reads_little_more_than_checkpoint_bytes() -> None:
    disk = CrashDisk()
    with opened(disk, checkpoint_bytes=1000) as engine:
        for _ in range(100):
            engine.send("t", b"x" * 200)
            left = disk.after_kill()
    with opened(left) as engine:
        assert engine.stats().recovery.replayed_bytes < 1000 + 300
        assert engine.queues("t")[0].next == 100


def test_the_slot_with_the_larger_generation_is_read() -> None:
    disk = CrashDisk()
    directory = disk.directory("data", make=True)
    for name, generation in zip(SLOTS, (9, 8), strict=True):
        file = directory.create(name)
        each = EXAMPLE._replace(store="ab" * 16, generation=generation)
        file.write(0, (encode(each),), sync=True)
    found = checkpoints.read(directory, bytes.fromhex("ab" * 16))
    assert found is not None
    assert found.generation == 9
    assert checkpoints.read(directory, bytes(16)) is None


def test_a_new_checkpoint_is_read_before_an_unusable_older_one() -> None:
    """The newest slot was lost, and retention has dropped what the other one names. The slots of a
    later life must count more than that one, or a clean close would not be recognised.
    """
    disk = CrashDisk()
    with opened(disk, checkpoint_bytes=1 << 30) as engine:
        for _ in range(5):
            engine.send("t", b"x" * 900)
            engine.checkpoint()
        slots = [(decode(content(disk)[name]), content(disk)[name]) for name in SLOTS]
        stale, store = max(
            (newest.generation, data, bytes.fromhex(newest.store))
            for newest, data in slots
            if newest
        )[1:]
    with opened(disk, checkpoint_bytes=1 << 30, retain_bytes=4096) as engine:
        for _ in range(20):
            engine.send("t", b"x" * 900)
        assert engine.stats().first_position
    for name, data in zip(SLOTS, (stale, bytes(len(stale))), strict=True):
        remove(disk, name)
        overwrite_new(disk, name, data)
    directory = disk.directory("data", make=False)
    for life in range(3):
        with opened(disk) as engine:
            assert engine.stats().recovery.clean == (life > 0)
            engine.send("t", b"%d" % life)
            position = engine.stats().position
        found = checkpoints.read(directory, store)
        assert found is not None
        assert (found.clean, found.applied_upto) == (True, position)
    check(disk)


def overwrite_new(disk: CrashDisk, name: str, data: bytes) -> None:
    file = disk.directory("data", make=False).create(name)
    file.write(0, (data,), sync=True)


def test_a_checkpoint_holds_no_time_of_a_planned_append() -> None:
    """A planned append is lost with the process. With its time, the checkpoint would contradict the
    journal, and a check would report a sound directory.
    """
    disk, clock = CrashDisk(), FakeClock()
    options = Options(segment_bytes=4096)
    with fmq.open("data", options, disk=disk, clock=clock) as engine:
        engine.send("t", b"0")
        clock.advance(0.01)
        engine.send("t", b"1", sync=False)
        assert len(bodies(engine, "t")) == 1
        inside(engine).chores.checkpoint()
        check(disk.after_kill())


def test_nothing_is_written_after_the_checkpoint_of_a_close() -> None:
    """A call of another thread may still run, and another engine may have the directory."""
    disk = CrashDisk()
    engine = opened(disk)
    engine.close()
    before = disk.operations
    with pytest.raises(Closed):
        inside(engine).chores.checkpoint()
    assert not inside(engine).chores.attempt()
    assert disk.operations == before


def test_a_checkpoint_is_sound_if_all_of_the_newest_segment_is_still_planned() -> None:
    """A crash at a roll leaves that segment empty. The next engine has planned an append in it when
    it takes a checkpoint of what lies before.
    """
    crash = CrashDisk()
    disk = FaultDisk(crash)
    engine = opened(disk)
    while engine.stats().position < 3600:
        engine.send("t", b"x" * 100)
    disk.fail("write", names="*4096.seg", short=0)
    with pytest.raises(EngineFailed):
        engine.send("t", b"y" * 900)
    engine.close()
    disk.heal()
    with opened(disk, sync="interval", checkpoint_bytes=1 << 30) as engine:
        before = engine.stats()
        assert before.position == 4096 + 64 + 112  # a change that stores the options
        # Planned, and not yet on its way: as another thread's send may be at that moment.
        writer = inside(engine).writer
        append = inside(engine).sender.one("t", b"z", None, None, None, None, None)
        writer.commit_queue.run(writer.send, append, False)
        inside(engine).chores.checkpointer.take(clean=False)
        assert engine.stats().checkpoints == before.checkpoints + 1
        engine.sync()
        engine.send("t", b"next", sync=True)
        assert bodies(engine, "t")[-2:] == [b"z", b"next"]
    check(crash)


def test_blocks_of_an_older_part_are_never_read_as_new_ones() -> None:
    """On a full disk the new part is written over the old one. Sizes are such that sound blocks of
    both meet.
    """
    crash, topic = CrashDisk(), "topic_88"
    disk = FaultDisk(crash)
    sent = [b"message %d" % number for number in range(17)]
    with opened(disk, segment_bytes=1 << 16, checkpoint_bytes=1 << 30) as engine:
        for body in sent[:2]:
            engine.send(topic, body)
            engine.checkpoint()
        engine.checkpoint()  # nothing new: an empty block
        with no_room_for(disk, "*.part"):
            engine.checkpoint()
        for body in sent[2:16]:
            engine.send(topic, body)
        with no_room_for(disk, "*/checkpoint.*"):
            engine.checkpoint()  # the part is written, over the one that the slot still names
        engine.send(topic, sent[16])
        killed = crash.after_kill()
    with opened(killed, segment_bytes=1 << 16) as after:
        assert bodies(after, topic) == sent


@contextmanager
def no_room_for(disk: FaultDisk, names: str) -> Iterator[None]:
    """Once, where the block writes a file of these names; it says so."""
    disk.fail("write", names=names, error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        yield

"""Retention drops the oldest whole segments, never one that is needed, and takes no truth away."""

from __future__ import annotations

import copy
import errno
import json
from contextlib import suppress
from typing import Any

import pytest

import fmq
from fmq import Engine, GroupInfo, Options
from fmq.cli.walk import Walk
from fmq.errors import Damaged, OffsetGone, StorageFull, UnknownTransaction
from fmq.recovery.checkpoint import decode, encode
from fmq.store.journal import Append
from fmq.store.kinds import Carryover
from fmq.testing import FaultDisk, PowerLoss
from fmq.testing.inside import inside
from tests.small import (
    CrashDisk,
    FakeClock,
    bodies,
    check,
    content,
    fill,
    opened,
    overwrite,
    remove,
    segments,
)

KEEP = 12288  # three segments


def send(engine: Engine, count: int, topic: str = "t") -> None:
    for _ in range(count):
        engine.send(topic, b"x" * 500)


def first_of(engine: Engine, topic: str = "t") -> int:
    return engine.queues(topic)[0].first


def test_retain_bytes_drops_the_oldest_segments() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 60)
        stats = engine.stats()
        assert stats.segments == len(segments(disk)) == 3
        assert stats.first_position > 0
        (info,) = engine.queues("t")
        assert 0 < info.first < info.next == 60
        assert stats.messages == info.next - info.first
        assert [message.offset for message in engine.read("t", offset=info.first)] == [
            *range(info.first, 60)
        ]
    check(disk)
    with opened(disk) as engine:
        assert engine.queues("t") == [info]
        assert engine.send("t", b"").offset == 60


def test_retain_seconds_drops_segments_whose_newest_message_is_old() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=100) as engine:
        send(engine, 8)
        clock.advance(90)
        send(engine, 8)
        assert first_of(engine) == 0
        clock.advance(11)
        send(engine, 1)
        assert 0 < first_of(engine) <= 8
        clock.advance(100)
        send(engine, 8)
        assert first_of(engine) > 8
    check(disk)


def test_a_segment_without_messages_is_as_old_as_its_records() -> None:
    """A recent outcome stays known, though no message was sent beside it."""
    clock = FakeClock()
    with opened(CrashDisk(), clock, retain_seconds=100) as engine:
        for number in range(30):
            engine.transaction(tx_id=f"T{number}").prepare()
            engine.decide(f"T{number}", "rollback", reason="r" * 500)
            clock.advance(1)
        assert engine.stats().segments > 3
        assert engine.outcome("T0").state == "rolled back"
        send(engine, 10)
        clock.advance(101)
        send(engine, 10)
        assert engine.stats().first_position > 8192


def test_without_limits_nothing_is_dropped() -> None:
    with opened(CrashDisk()) as engine:
        send(engine, 60)
        assert first_of(engine) == 0
        assert len(bodies(engine, "t")) == 60


def test_a_dropped_offset_raises_with_the_first_offset_that_is_left() -> None:
    with opened(CrashDisk(), retain_bytes=KEEP) as engine:
        send(engine, 60)
        first = first_of(engine)
        for offset in (0, first - 1):
            with pytest.raises(OffsetGone, match=f"the first message there is {first}") as caught:
                engine.read("t", offset=offset)
            assert (caught.value.first, caught.value.offset) == (first, offset)
        assert engine.read("t", offset=first, limit=1)[0].offset == first


def test_an_unused_queue_keeps_its_offsets() -> None:
    """All its messages are gone, and the next one continues the offsets."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 3, "quiet")
        send(engine, 60)
        (info,) = engine.queues("quiet")
        assert (info.first, info.next) == (3, 3)
        with pytest.raises(OffsetGone):
            engine.read("quiet", offset=2)
        assert engine.read("quiet", offset=3) == []
    for _ in range(2):
        remove(disk, *[name for name in content(disk) if name.startswith("checkpoint")])
        with opened(disk, retain_bytes=KEEP) as engine:
            assert engine.queues("quiet") == [info]
            send(engine, 30)
    with opened(disk) as engine:
        assert engine.send("quiet", b"").offset == 3
    check(disk)


def test_outcomes_are_dropped_with_their_segment() -> None:
    with opened(CrashDisk(), retain_bytes=KEEP) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.send("t", b"")
        assert engine.outcome("T").state == "committed"
        send(engine, 60)
        first = engine.stats().first_position
        with pytest.raises(UnknownTransaction, match=f"at or after position {first}"):
            engine.outcome("T")


# --- what pins a segment --------------------------------------------------------------------------


def test_an_undecided_transaction_keeps_its_segment_and_stats_name_it() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"kept")
        tx.prepare()
        send(engine, 60)
        kept = engine.stats().kept
        assert kept is not None
        assert (kept.segment, kept.by) == (0, "undecided transaction 'T'")
        engine.decide("T", "commit")
        send(engine, 10)
        assert engine.stats().kept is None
        assert engine.stats().segments == 3
    check(disk)


def test_messages_that_a_group_has_not_acked_are_kept_and_stats_name_it() -> None:
    disk = CrashDisk()
    with (
        opened(disk, retain_bytes=KEEP) as engine,
        engine.consumer("t", group="billing") as consumer,
    ):
        send(engine, 60)
        first = first_of(engine)
        (delivery, *_) = consumer.poll(limit=1)
        send(engine, 60)
        kept = engine.stats().kept
        assert kept is not None
        assert "'billing'" in kept.by
        assert "t/0" in kept.by
        assert first_of(engine) == first == delivery.offset == 0
        delivery.ack()
        while deliveries := consumer.poll():
            for delivery in deliveries:
                delivery.ack()
        send(engine, 1)
        assert engine.stats().segments == 3
    with opened(disk) as engine, engine.consumer("t", group="billing") as consumer:
        assert len(consumer.poll()) == 1
    check(disk)


def test_unacked_messages_are_kept_in_each_queue_of_a_groups_topic() -> None:
    """This holds after a crash too, when it is lost that a group polled without an ack."""
    disk = CrashDisk()
    with (
        opened(disk, queues=2, checkpoint_bytes=1_000_000) as engine,
        engine.consumer("t", group="billing") as consumer,
    ):
        engine.send("t", b"unread", queue=1)
        for _ in range(60):
            engine.send("t", b"x" * 500, queue=0)
        while deliveries := consumer.poll():
            for delivery in deliveries:
                if delivery.queue == 0:
                    delivery.ack()
        killed = disk.after_kill()
    with opened(killed, queues=2, retain_bytes=KEEP) as engine:
        engine.send("t", b"x" * 500, queue=0)
        with engine.consumer("t", group="billing") as consumer:
            found = consumer.poll() + consumer.poll()
        assert (1, b"unread") in [(each.queue, each.body) for each in found]
    check(killed)


def test_a_group_without_acks_keeps_its_messages_until_it_is_deleted() -> None:
    """Such is a group whose name was misspelt once."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 1)
        with engine.consumer("t", group="biling") as consumer:
            [delivery] = consumer.poll()
            send(engine, 60)
            kept = engine.stats().kept
            assert kept is not None
            assert "'biling'" in kept.by
            delivery.release()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 60)
        assert first_of(engine) == 0
        engine.group("biling").delete()
        send(engine, 60)
        assert engine.stats().kept is None
        assert engine.stats().segments == 3
    with opened(disk, retain_bytes=KEEP) as engine:
        assert engine.groups("biling") == []
    check(disk)


def test_with_keep_unread_false_unread_messages_are_dropped() -> None:
    with (
        opened(CrashDisk(), retain_bytes=KEEP, keep_unread=False) as engine,
        engine.consumer("t", group="billing") as consumer,
    ):
        send(engine, 1)
        consumer.poll()
        send(engine, 60)
        assert first_of(engine) > 0


def test_a_pinned_segment_is_kept_and_stats_name_the_export() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 10)
        export = disk.directory("data", make=False).open(segments(disk)[0])
        assert export.pin(exclusive=False)
        send(engine, 60)
        kept = engine.stats().kept
        assert kept is not None
        assert (kept.segment, kept.by) == (0, "an export or backup that is running")
        assert bodies(engine, "t", offset=0)[:1] == [b"x" * 500]
        export.close()
        send(engine, 3)
        assert engine.stats().segments == 3
        assert engine.stats().kept is None
    check(disk)


def test_the_segment_that_a_checkpoint_replays_from_is_kept() -> None:
    """A crash at any moment finds every segment that its checkpoint names."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192, checkpoint_bytes=1 << 20) as engine:
        for number in range(40):
            engine.send("t", b"x" * 500)
            left = disk.after_power_loss(number)
            with opened(left) as after:
                assert after.queues("t")[0].next == number + 1
            check(left)


# --- truth carried over ---------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoints", [True, False])
def test_acks_topics_and_offsets_survive_dropped_segments(checkpoints: bool) -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP, topic_queues={"t": 3}) as engine:
        for queue in range(3):
            engine.send_many("t", [b"a", b"b", b"c"], queue=queue)
        with engine.consumer("t", group="g") as consumer:
            for _ in range(3):
                for delivery in consumer.poll():
                    delivery.ack()
        for _ in range(20):
            fill(engine)
        expected = set(engine.queues())
        assert engine.stats().first_position > 8192
    if not checkpoints:
        remove(disk, *[name for name in content(disk) if name.startswith("checkpoint")])
        remove(disk, *[name for name in content(disk) if name.endswith((".idx", ".part"))])
    check(disk)
    with opened(disk) as engine:
        assert set(engine.queues()) == expected
        for queue in range(3):
            assert engine.send("t", b"d", queue=queue).offset == 3
        with engine.consumer("t", group="g") as consumer:
            found = [delivery for _ in range(3) for delivery in consumer.poll()]
            assert [delivery.body for delivery in found] == [b"d"] * 3
    check(disk)


def test_time_never_goes_back_over_retention_and_restart() -> None:
    clock, disk = FakeClock(), CrashDisk()
    with opened(disk, clock, retain_bytes=KEEP) as engine:
        send(engine, 60)
        last = engine.read("t", offset=59)[0].time
    clock.set_wall_clock(1)
    with opened(disk, clock) as engine:
        engine.send("t", b"")
        message = engine.read("t", offset=60)[0]
        assert message.time is not None
        assert last is not None
        assert message.time >= last


# --- what groups are done with, of what is gone ---------------------------------------------------


UNREAD_GOES: dict[str, Any] = {"retain_bytes": KEEP, "keep_unread": False}


def ack_every_second(engine: Engine, rounds: int, group: str = "g") -> None:
    """Of what is sent, so that each round leaves gaps; what is dropped of them nobody ever acks."""
    for _ in range(rounds):
        engine.send_many("t", [b"x" * 30] * 10)
        with engine.consumer("t", group=group) as consumer:
            for delivery in consumer.poll(limit=1000)[-10::2]:
                delivery.ack()


def acks(engine: Engine) -> Any:
    """Of all groups, as a checkpoint carries it."""
    return inside(engine).ledger.carried()["acks"]


def derived(disk: CrashDisk) -> list[str]:
    """The files that a replay of all segments does without."""
    ends = (".idx", ".part", ".0", ".1")
    return [name for name in content(disk) if name.endswith(ends)]


def assert_the_same_after_a_restart(disk: CrashDisk, engine: Engine) -> None:
    """From the newest checkpoint, and from the segments alone."""
    expected = acks(engine)
    for replays_all in (False, True):
        left = disk.after_kill()
        if replays_all:
            remove(left, *derived(left))
        with opened(left) as again:
            assert acks(again) == expected, f"{replays_all=}"
            for group in {group for group, *_ in expected}:
                assert again.groups(group) == engine.groups(group), f"{replays_all=}"
        check(left)


def test_carried_acks_are_bounded_by_the_stored_messages() -> None:
    """Gaps between acks are dropped with their messages, so they do not grow for ever."""
    disk = CrashDisk()
    with opened(disk, **UNREAD_GOES) as engine:
        for _ in range(20):
            ack_every_second(engine, 10)
            stats = engine.stats()
            assert stats.trouble is None and stats.segments <= 3
            (lane,) = engine.queues("t")
            ((*_, floor, ranges),) = acks(engine)
            assert floor >= lane.first
            assert len(ranges) <= (lane.next - lane.first) / 2
        states = 0
        for append in Walk(disk.directory("data", make=False)):
            for record in append:
                if isinstance(record, Carryover):
                    carried = json.loads(record.json)
                    ((first, _),) = carried["topics"]["t"]
                    ((*_, floor, ranges),) = carried["acks"]
                    assert first <= floor and all(floor < low for low, _ in ranges)
                    states += 1
        assert states > 1
        assert_the_same_after_a_restart(disk, engine)
    check(disk)


def test_a_group_that_begins_after_a_retention_can_ack_everything() -> None:
    """This holds in the same engine, after a restart, and if nothing is dropped any more."""
    disk = CrashDisk()
    with opened(disk, **UNREAD_GOES) as engine:
        send(engine, 60)
        (lane,) = engine.queues("t")
        assert lane.first > 0
        with engine.consumer("t", group="late") as consumer:
            assert [each.unread for each in engine.groups()] == [lane.next - lane.first]
            while deliveries := consumer.poll(limit=1000):
                for delivery in deliveries:
                    delivery.ack()
        expected = [GroupInfo("late", "t", 0, acked_below=lane.next, acked_beyond=0, unread=0)]
        assert engine.groups() == expected
        assert_the_same_after_a_restart(disk, engine)
    with opened(disk) as engine:
        assert engine.groups() == expected


def test_every_moment_of_retention_survives_a_restart() -> None:
    """A reader sees the same. Groups begin early or late, stop, only poll, or ack late."""
    disk = CrashDisk()
    with (
        opened(disk, **UNREAD_GOES) as engine,
        fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader,
        engine.consumer("t", group="looks") as looks,
        engine.consumer("t", group="slow") as slow,
    ):
        ack_every_second(engine, 1, "stops")
        looks.poll(limit=3)
        held = slow.poll(limit=4)
        for number in range(30):
            ack_every_second(engine, 2)
            if number == 20:
                assert first_of(engine) > held[-1].offset
                held[2].ack()  # of nothing that is there, and yet an ack
            if number == 25:
                ack_every_second(engine, 1, "late")
            assert_the_same_after_a_restart(disk, engine)
            engine.checkpoint()
            for group in ("stops", "slow", "g", "late"):
                assert reader.groups(group) == engine.groups(group)
            assert all(each.acked_below >= first_of(engine) for each in engine.groups())
        assert {group for group, *_ in acks(engine)} == {"stops", "slow", "g", "late"}
        assert reader.groups("looks") == engine.groups("looks")
        assert engine.groups("looks") == [
            GroupInfo("looks", "t", 0, lane.first, 0, lane.next - lane.first, lost=lane.first)
            for lane in engine.queues("t")
        ]
    check(disk)


def test_a_group_of_dropped_messages_keeps_no_segment() -> None:
    """A group that acked dropped messages still keeps those that it has not acked."""
    disk = CrashDisk()
    with opened(disk, **UNREAD_GOES) as engine:
        send(engine, 1)
        with (
            engine.consumer("t", group="acks") as acking,
            engine.consumer("t", group="looks") as looking,
        ):
            acking.poll()[0].ack()
            looking.poll()
        send(engine, 60)
        assert first_of(engine) > 0
        assert [group for group, *_ in acks(engine)] == ["acks"]
        left = disk.after_kill()
    for each in (disk, left):
        with opened(each, retain_bytes=KEEP) as engine:
            engine.group("looks").delete()
            send(engine, 60)
            kept = engine.stats().kept
            assert kept is not None and "'acks'" in kept.by
            first = first_of(engine)
            with engine.consumer("t", group="acks") as consumer:
                while deliveries := consumer.poll():
                    for delivery in deliveries:
                        delivery.ack()
            send(engine, 1)
            assert first_of(engine) > first
        check(each)


def stale(carried: dict[str, Any]) -> None:
    """As an older fmq carried it, in which a floor was not raised by what was dropped."""
    ((first, after),) = carried["topics"]["t"]
    assert 20 < first < after - 5
    over, behind = [first - 3, first + 2], [after - 2, after - 1]
    carried["acks"] = [
        ["across", "t", 0, 0, [[5, 6], [8, 9], over, behind]],
        ["below", "t", 0, 0, [[5, 6], [8, 9]]],
        ["beyond", "t", 0, 4, [[8, 9], behind]],
        ["floor", "t", 0, 7, []],
    ]


def assert_nothing_is_stale(engine: Engine) -> None:
    (lane,) = engine.queues("t")
    behind = [[lane.next - 2, lane.next - 1]]
    assert acks(engine) == [
        ["across", "t", 0, lane.first + 2, behind],
        ["below", "t", 0, lane.first, []],
        ["beyond", "t", 0, lane.first, behind],
        ["floor", "t", 0, lane.first, []],
    ]


def append_stale_state(engine: Engine) -> None:
    writer = inside(engine).writer

    def plan(state: Carryover) -> None:
        carried = writer.ledger.carried()
        stale(carried)
        state.json = json.dumps(carried).encode()
        writer.send(Append([state]))

    writer.commit_queue.run(plan, Carryover(b"", 0), True)


def test_stale_acks_in_a_state_of_an_older_fmq_are_dropped_by_replay() -> None:
    """A running engine, a recovery and a reader all get the same result."""
    disk = CrashDisk()
    with opened(disk, **UNREAD_GOES) as engine:
        send(engine, 60)
        with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
            append_stale_state(engine)
            assert_nothing_is_stale(engine)
            assert_the_same_after_a_restart(disk, engine)
            engine.checkpoint()
            assert reader.groups() == engine.groups() != []
    check(disk)


def test_stale_acks_in_a_checkpoint_of_an_older_fmq_are_dropped_when_it_is_read() -> None:
    disk = CrashDisk()
    with opened(disk, **UNREAD_GOES) as engine:
        send(engine, 60)
        append_stale_state(engine)
        engine.checkpoint()
    for name in ("checkpoint.0", "checkpoint.1"):
        checkpoint = decode(content(disk)[name])
        assert checkpoint is not None
        carried = copy.deepcopy(checkpoint.ledger)  # nobody changes what `decode` gives
        stale(carried)
        overwrite(disk, name, 0, encode(checkpoint._replace(ledger=carried)))
    check(disk)
    with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
        seen = reader.groups()
    with opened(disk) as engine:
        assert_nothing_is_stale(engine)
        assert engine.groups() == seen


# --- crashes --------------------------------------------------------------------------------------


def test_a_crash_at_any_step_of_retention_loses_no_message() -> None:
    """Stop the power at every operation of a send that drops segments, and check every state."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        sent = 0
        while engine.stats().first_position == 0:
            first = disk.operations
            engine.send("t", b"x" * 500)
            sent += 1
        last = disk.operations
    assert last - first > 8
    floors = set()
    for crash_at in range(first, last):
        disk = CrashDisk(crash_at=crash_at)
        with pytest.raises(PowerLoss), opened(disk, retain_bytes=KEEP) as engine:
            send(engine, sent)
        for state in disk.states(crash_at):
            with opened(state) as engine:
                (info,) = engine.queues("t")
                floors.add(info.first)
                assert info.next >= sent - 1
                assert len(bodies(engine, "t", offset=info.first)) == info.next - info.first
                assert engine.send("t", b"").offset == info.next
            check(state)
    assert len(floors) == 2, "some crashed before and some behind the point of no return"


def test_an_interrupted_deletion_is_finished_at_the_next_open() -> None:
    """The segments below the floor that a crash left, and their indexes, are removed then."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 20)
        before = content(disk)
        while engine.stats().first_position == 0:
            before = content(disk)
            engine.send("t", b"x" * 500)
        left = disk.after_kill()
    directory = left.directory("data", make=False)
    gone = sorted(set(segments_in(before)) - set(segments(left)))
    assert gone
    for name in gone:
        directory.create(name).write(0, (before[name],), sync=True)
    with opened(left) as engine:
        assert not set(gone) & set(segments(left))
        assert engine.queues("t")[0].first > 0
    check(left)


def segments_in(files: dict[str, bytes]) -> list[str]:
    return [name for name in files if name.endswith(".seg")]


def test_a_missing_segment_above_the_floor_is_damage() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 60)
    remove(disk, segments(disk)[0])
    remove(disk, *[name for name in content(disk) if name.startswith("checkpoint")])
    with pytest.raises(Damaged, match="missing"):
        opened(disk)
    assert not fmq.check("data", disk=disk).ok


def test_on_a_full_disk_retention_makes_room() -> None:
    """This holds even if the current segment is full: a spare is set aside for the STATE."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    with opened(disk, clock, retain_seconds=60, keep_unread=False) as engine:
        send(engine, 60)
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        for size in (500, 100, 0):
            with pytest.raises(StorageFull):
                while True:
                    engine.send("t", b"x" * size)
        before = len(segments(disk))
        assert before > 5
        clock.advance(3600)
        engine.sync()  # all but the one that was being written
        engine.sync()
        assert len(segments(disk)) == engine.stats().segments == 1
        disk.heal()
        engine.send("t", b"there is room")
    check(disk)


def no_room_for_any_file(disk: FaultDisk) -> None:
    for operation in ("create", "allocate"):
        disk.fail(operation, error=errno.ENOSPC, persistently=True)
    disk.fail("write", error=errno.ENOSPC, persistently=True, names="*.part")


def drop_without_room(engine: Engine, disk: FaultDisk, clock: FakeClock) -> None:
    """Fill a disk that then takes no new file, and let retention make room on it."""
    send(engine, 30)
    engine.checkpoint()
    no_room_for_any_file(disk)
    with pytest.raises(StorageFull):
        while True:
            engine.send("t", b"x" * 500)
    clock.advance(3600)
    engine.sync()


BY_AGE: dict[str, Any] = {"retain_seconds": 60, "keep_unread": False}


def test_retention_makes_room_on_a_disk_without_room_for_a_file() -> None:
    """Neither an index nor a checkpoint can be written, and both come later."""
    power, clock = CrashDisk(), FakeClock()
    disk = FaultDisk(power)
    with opened(disk, clock, **BY_AGE) as engine:
        drop_without_room(engine, disk, clock)
        assert len(segments(disk)) == engine.stats().segments <= 3
        assert engine.stats().trouble is not None
        assert len(bodies(engine, "t", offset=first_of(engine))) > 0
        left = power.after_kill()
        disk.heal()
        engine.send("t", b"there is room")
        assert engine.stats().trouble is None
        assert engine.stats().segments == 1
    check(disk)
    check(left)


def test_a_crash_after_a_drop_without_a_checkpoint_loses_nothing() -> None:
    """Crash at each operation from the full disk on, and open every state.

    The newest checkpoint is an older one, and the STATE after it says what was dropped.
    """
    disk, clock = CrashDisk(), FakeClock()
    faulty = FaultDisk(disk)
    with opened(faulty, clock, **BY_AGE) as engine:
        drop_without_room(engine, faulty, clock)
    floors = set()
    removals = [i for i, line in enumerate(disk.history) if line.startswith("remove")]
    for crash_at in range(removals[0] - 4, removals[-1] + 4):
        disk, clock = CrashDisk(crash_at=crash_at), FakeClock()
        faulty = FaultDisk(disk)
        with suppress(PowerLoss), opened(faulty, clock, **BY_AGE) as engine:
            drop_without_room(engine, faulty, clock)
        for state in (*disk.states(crash_at), disk.after_kill()):
            with opened(state) as engine:
                (info,) = engine.queues("t")
                floors.add(info.first)
                assert len(bodies(engine, "t", offset=info.first)) == info.next - info.first
                assert engine.send("t", b"").offset == info.next
            check(state)
    assert len(floors) == 2, "some crashed before and some behind the point of no return"


def test_a_retry_of_retention_writes_no_second_state() -> None:
    """A STATE a second would fill the journal while no messages are sent."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    with opened(disk, clock, retain_seconds=60, checkpoint_bytes=100_000) as engine:
        send(engine, 20)
        engine.checkpoint()
        disk.fail("write", error=errno.EIO, persistently=True, names="*/checkpoint.*")
        clock.advance(3600)
        positions = set()
        for _ in range(5):
            clock.advance(10)
            engine.sync()
            positions.add(engine.stats().position)
        assert engine.stats().segments > 1
        assert len(positions) == 1
        disk.heal()
        engine.sync()
        assert engine.stats().segments == 1
    check(disk)


def test_messages_with_times_in_the_future_are_kept_and_reported() -> None:
    """Times never go back, so later messages get the same time until the clock has reached it."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=100) as engine:
        clock.set_wall_clock(clock.time_us() + 3600 * 1_000_000)
        send(engine, 1)
        clock.set_wall_clock(clock.time_us() - 3600 * 1_000_000)
        send(engine, 20)
        clock.advance(200)
        engine.sync()
        kept = engine.stats().kept
        assert kept is not None and first_of(engine) == kept.segment == 0
        assert kept.by.endswith("Z, which a clock gave that was ahead"), kept
        clock.advance(3600)
        engine.sync()
        assert first_of(engine) > 0
        assert engine.stats().kept is None
    check(disk)


def test_by_age_segments_are_dropped_even_if_nothing_is_published() -> None:
    """A rolled back transaction is as old as the beginning of the next segment."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=60) as engine:
        for number in range(30):
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("t", b"x" * 500)
            tx.prepare()
            tx.rollback()
            clock.advance(1)
        assert engine.stats().segments > 3
        clock.advance(3600)
        engine.sync()
        assert engine.stats().segments == 1
    check(disk)


def test_retention_never_takes_room_reserved_for_decisions() -> None:
    """This holds even if there was no room for a spare of its own."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    with opened(disk, clock) as engine:
        send(engine, 30)
        tx = engine.transaction(tx_id="T")
        tx.send("u", b"x" * 2000)
        tx.prepare()
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            while True:
                engine.send("t", b"x" * 100)
        with pytest.raises(StorageFull):
            while True:
                engine.send("t", b"")
    with opened(disk, clock, retain_seconds=60, keep_unread=False) as engine:
        reserved = engine.stats().spares_reserved
        assert engine.stats().spares == reserved > 0
        clock.advance(3600)
        for _ in range(3):
            engine.sync()
        assert engine.stats().spares == reserved
        assert engine.decide("T", "commit", reason="r" * 1000).messages == 1
    disk.heal()
    check(disk)


def test_an_engine_opened_over_its_limit_drops_segments_by_itself() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        send(engine, 60)
        assert engine.stats().segments > 5
    limited = Options(segment_bytes=4096, retain_bytes=KEEP)
    with fmq.open("data", limited, disk=disk, clock=clock) as engine:

        def kept() -> bool:
            clock.advance(60)
            return engine.stats().segments <= 3

        clock.until(kept)


def test_few_files_are_open_at_once_however_many_segments_are_dropped() -> None:
    """A new limit may drop more segments than a process may have open files."""

    class Counted(FaultDisk):
        """Knows how many files are open, and how many were."""

        def __init__(self) -> None:
            super().__init__(CrashDisk())
            self.now = self.most = 0

        def directory(self, path: str, *, make: bool) -> Any:
            disk, directory = self, super().directory(path, make=make)

            class File:
                def __init__(self, file: Any) -> None:
                    self._file = file
                    disk.now += 1
                    disk.most = max(disk.most, disk.now)

                def close(self) -> None:
                    disk.now -= 1
                    self._file.close()

                def __getattr__(self, name: str) -> Any:
                    return getattr(self._file, name)

            class Counting:
                def open(self, name: str, *, write: bool = False) -> Any:
                    return File(directory.open(name, write=write))

                def __getattr__(self, name: str) -> Any:
                    return getattr(directory, name)

            return Counting()

    disk = Counted()
    with opened(disk) as engine:
        for _ in range(60):
            fill(engine, "t", 3000)
        assert engine.stats().segments > 50
    disk.most = disk.now
    with opened(disk, retain_bytes=KEEP) as engine:
        engine.send("t", b"x")
        assert engine.stats().segments == 3
        assert disk.most < 25
    check(disk)

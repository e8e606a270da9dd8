"""What a STATE record carries over dropped segments, and what it no longer carries."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import fmq
from fmq import Engine, GroupInfo
from fmq.recovery.checkpoint import decode, encode
from fmq.recovery.walk import Walk
from fmq.store.bytes.kinds import Carryover
from fmq.testing.inside import inside
from fmq.tx.ledger.carryover import carried_of
from tests.retention.sending import KEEP, UNREAD_GOES, acks, first_of, send
from tests.small import (
    CrashDisk,
    FakeClock,
    check,
    content,
    fill,
    opened,
    overwrite,
    remove,
)


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


def ack_every_second(engine: Engine, rounds: int, group: str = "g") -> None:
    """Ack every second message, so that each round leaves gaps. Retention drops the others without
    an ack.
    """
    for _ in range(rounds):
        engine.send_many("t", [b"x" * 30] * 10)
        with engine.consumer("t", group=group) as consumer:
            for delivery in consumer.poll(limit=1000)[-10::2]:
                delivery.ack()


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


def stale(carried: dict[str, Any]) -> None:
    """Carry the acks as an older fmq did: it did not raise a floor when messages were dropped."""
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
        carried = carried_of(writer.ledger)
        stale(carried)
        state.json = json.dumps(carried).encode()
        writer.send([state])

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
        carried = copy.deepcopy(checkpoint.ledger)  # the result of `decode` must not be changed
        stale(carried)
        overwrite(disk, name, 0, encode(checkpoint._replace(ledger=carried)))
    check(disk)
    with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
        seen = reader.groups()
    with opened(disk) as engine:
        assert_nothing_is_stale(engine)
        assert engine.groups() == seen

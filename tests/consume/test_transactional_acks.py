"""Consume, transform and produce exactly once: an ack as part of a transaction."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import fmq
import fmq.tx.commands.writer
from fmq import Consumer, Engine
from fmq.errors import BadOption, LeaseLost, TooLarge, WrongState
from fmq.testing import PowerLoss
from tests.budget import BUDGET, SEED
from tests.small import CrashDisk, FakeClock, bodies, check, fill, opened

LINES_MAX = 1000
EVERY = max(1, round(4 / BUDGET))


def started(disk: CrashDisk, clock: FakeClock | None = None) -> Engine:
    engine = opened(disk, clock)
    engine.send_many("in", [b"0", b"1", b"2"])
    return engine


def offsets(consumer: Consumer) -> list[int]:
    """Return the offsets that can be polled now, and give each back."""
    found = []
    while deliveries := consumer.poll():
        found += deliveries
    for delivery in found:
        delivery.release(delay=0)
    return sorted(delivery.offset for delivery in found)


def prepared(engine: Engine, consumer: Consumer) -> None:
    """Prepare a transaction `T` that acks the first message and sends its result."""
    tx = engine.transaction(tx_id="T")
    (delivery,) = consumer.poll(limit=1)
    tx.ack(delivery)
    tx.send("out", delivery.body + b" done")
    tx.prepare()


def test_each_message_is_transformed_exactly_once_over_any_crash() -> None:
    """Method: cut the power at an operation, then go on with what is left until all is done. Each
    run tries one of `EVERY` operations, and the seed says which.
    """

    def work(engine: Engine, steps: int) -> None:
        with engine.consumer("in", group="g") as consumer:
            for _ in range(steps):
                for delivery in consumer.poll(limit=1):
                    with engine.transaction() as tx:
                        tx.ack(delivery)
                        tx.send("out", delivery.body)

    disk = CrashDisk()
    with started(disk):
        first = disk.operations
    with opened(disk) as engine:
        work(engine, 3)
    whole = disk.operations
    for crash_at in range(first + SEED % EVERY, whole, EVERY):
        disk = CrashDisk()
        with started(disk):
            pass
        again = disk.after_kill(crash_at=crash_at - first)
        with suppress(PowerLoss), opened(again) as engine:
            work(engine, 3)
        for state in again.states(crash_at):
            with opened(state) as engine:
                work(engine, 3)
                assert sorted(bodies(engine, "out")) == [b"0", b"1", b"2"], crash_at
            check(state)


@pytest.mark.parametrize("phases", [1, 2])
def test_the_commit_acks_and_publishes_at_one_instant(phases: int) -> None:
    disk = CrashDisk()
    with started(disk) as engine, engine.consumer("in", group="g") as consumer:
        tx = engine.transaction()
        (delivery,) = consumer.poll(limit=1)
        tx.ack(delivery)
        tx.send("out", b"x")
        if phases == 2:
            tx.prepare()
        assert offsets(consumer) == [1, 2]
        tx.commit()
        assert offsets(consumer) == [1, 2]
    with opened(disk) as engine, engine.consumer("in", group="g") as consumer:
        assert offsets(consumer) == [1, 2]
        assert bodies(engine, "out") == [b"x"]
    check(disk)


def test_a_batch_can_be_acked_by_a_transaction() -> None:
    disk = CrashDisk()
    with started(disk) as engine, engine.consumer("in", group="g") as consumer:
        batch = consumer.poll_batch(limit=2)
        assert batch is not None
        with engine.transaction() as tx:
            tx.ack(batch)
            tx.send_many("out", batch.bodies)
        assert offsets(consumer) == [2]
    check(disk)


def test_acks_of_several_groups_topics_and_deliveries_go_into_one_transaction() -> None:
    disk = CrashDisk()
    with started(disk) as engine:
        engine.send("other", b"9")
        with (
            engine.consumer("in", group="g") as one,
            engine.consumer(["in", "other"], group="h") as two,
        ):
            with engine.transaction() as tx:
                for delivery in (*one.poll(limit=2), *two.poll(), *two.poll()):
                    tx.ack(delivery)
            assert (offsets(one), offsets(two)) == ([2], [])
    check(disk)


def test_messages_that_a_transaction_acks_stay_held_after_the_lease() -> None:
    """They stay held while it is open or undecided, even after their consumer has left."""
    clock = FakeClock()
    with started(CrashDisk(), clock) as engine:
        with engine.consumer("in", group="g", lease_seconds=1) as consumer:
            tx = engine.transaction()
            (delivery,) = consumer.poll(limit=1)
            tx.ack(delivery)
            clock.advance(1000)
            assert offsets(consumer) == [1, 2]
            tx.prepare()
        clock.advance(1000)
        with engine.consumer("in", group="g") as consumer:
            assert offsets(consumer) == [1, 2]
            tx.commit()
            assert offsets(consumer) == [1, 2]


def test_a_hold_of_an_undecided_transaction_survives_restarts() -> None:
    disk = CrashDisk()
    with started(disk) as engine, engine.consumer("in", group="g") as consumer:
        prepared(engine, consumer)
    for _ in range(2):
        with opened(disk) as engine, engine.consumer("in", group="g") as consumer:
            assert offsets(consumer) == [1, 2]
    check(disk)


def by_itself(disk: CrashDisk, engine: Engine) -> Engine:
    return engine


def after_a_restart(disk: CrashDisk, engine: Engine) -> Engine:
    engine.close()
    return opened(disk)


def from_another_segment(disk: CrashDisk, engine: Engine) -> Engine:
    fill(engine)
    return after_a_restart(disk, engine)


@pytest.mark.parametrize("later", [by_itself, after_a_restart, from_another_segment])
@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_decision_acks_or_redelivers_the_messages_held(
    decision: str, later: Callable[[CrashDisk, Engine], Engine]
) -> None:
    disk = CrashDisk()
    engine = started(disk)
    with engine.consumer("in", group="g") as consumer:
        prepared(engine, consumer)
    with later(disk, engine) as engine, engine.consumer("in", group="g") as consumer:
        engine.decide("T", decision)  # type: ignore[arg-type]
        expected = [1, 2] if decision == "commit" else [0, 1, 2]
        assert offsets(consumer) == expected
        assert bodies(engine, "out") == ([b"0 done"] if decision == "commit" else [])
    with opened(disk) as engine, engine.consumer("in", group="g") as consumer:
        assert offsets(consumer) == expected
    check(disk)


def test_a_roll_back_before_prepare_gives_the_delivery_back_to_its_consumer() -> None:
    """The lease begins anew. Nothing was written, so the delivery can still be acked alone."""
    clock = FakeClock()
    with started(CrashDisk(), clock) as engine, engine.consumer("in", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        tx = engine.transaction()
        tx.ack(delivery)
        with pytest.raises(LeaseLost):
            delivery.ack()
        clock.advance(100)
        tx.rollback()
        clock.advance(29)
        assert offsets(consumer) == [1, 2]
        delivery.ack()
        clock.advance(100)
        assert offsets(consumer) == [1, 2]


def test_a_roll_back_gives_the_delivery_back_however_many_were_polled_meanwhile() -> None:
    with opened(CrashDisk()) as engine, engine.consumer("in", group="g") as consumer:
        engine.send_many("in", [b"%d" % number for number in range(100)])
        tx = engine.transaction()
        (held,) = consumer.poll(limit=1)
        tx.ack(held)
        for _ in range(99):
            consumer.poll(limit=1)[0].ack()
        tx.rollback()
        held.ack()
        assert engine.groups("g")[0].unread == 0


def test_a_rollback_restarts_the_lease_which_then_ends_in_time() -> None:
    clock = FakeClock()
    with (
        started(CrashDisk(), clock) as engine,
        engine.consumer("in", group="g", lease_seconds=5) as one,
        engine.consumer("in", group="g") as other,
    ):
        tx = engine.transaction()
        for delivery in one.poll():
            tx.ack(delivery)
        clock.advance(10)
        assert other.poll() == []
        tx.rollback()
        clock.advance(6)
        assert offsets(other) == [0, 1, 2]


def test_a_roll_back_wakes_waiting_polls() -> None:
    clock = FakeClock()
    with started(CrashDisk(), clock) as engine, engine.consumer("in", group="g") as consumer:
        prepared(engine, consumer)
        for delivery in consumer.poll():
            delivery.ack()
        engine.decide("T", "rollback")
        assert [delivery.offset for delivery in consumer.poll(timeout=5)] == [0]
        assert clock.monotonic() == 0


def test_a_transaction_cannot_ack_a_delivery_whose_lease_was_lost() -> None:
    clock = FakeClock()
    with (
        started(CrashDisk(), clock) as engine,
        engine.consumer("in", group="g", lease_seconds=1) as one,
        engine.consumer("in", group="g") as other,
    ):
        (delivery,) = one.poll(limit=1)
        clock.advance(2)
        other.poll(limit=1)
        tx = engine.transaction()
        with pytest.raises(LeaseLost):
            tx.ack(delivery)
        assert tx.commit() == []


def test_a_delivery_belongs_to_one_transaction_only() -> None:
    with started(CrashDisk()) as engine, engine.consumer("in", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        one, other = engine.transaction(), engine.transaction()
        one.ack(delivery)
        with pytest.raises(LeaseLost):
            other.ack(delivery)
        with pytest.raises(LeaseLost):
            one.ack(delivery)
        one.commit()


def test_an_ack_after_prepare_is_refused_and_leaves_the_delivery() -> None:
    with started(CrashDisk()) as engine, engine.consumer("in", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        tx = engine.transaction()
        tx.prepare()
        with pytest.raises(WrongState):
            tx.ack(delivery)
        tx.rollback()
        delivery.ack()


def test_an_ack_beyond_the_limit_is_refused_and_the_delivery_stays() -> None:
    """Ack every other message, so that each ack is a range of its own."""
    with opened(CrashDisk(), segment_bytes=8192) as engine:
        engine.send_many("in", [b""] * 600)
        with engine.consumer("in", group="g") as consumer:
            deliveries = consumer.poll(limit=600)
            tx = engine.transaction()
            with pytest.raises(TooLarge):
                for delivery in deliveries[::2]:
                    tx.ack(delivery)
            acked = range(0, 2 * len(tx._buffer.acks), 2)
            deliveries[acked.stop].ack()
            tx.commit()
            others = [n for n in range(600) if n not in range(0, acked.stop + 1, 2)]
            for n in others:
                deliveries[n].release()
            assert offsets(consumer) == others


@pytest.mark.parametrize("decided", ["by its owner", "by another caller", "after a kill"])
def test_neighbours_acked_one_by_one_join_and_are_all_redelivered(
    decided: str,
) -> None:
    disk = CrashDisk()
    with started(disk) as engine, engine.consumer("in", group="g") as consumer:
        tx = engine.transaction(tx_id="T")
        for delivery in consumer.poll():
            tx.ack(delivery)
        assert [ack.key() for ack in tx._buffer.acks] == [("g", "in", 0, 0, 3)]
        tx.prepare()
        after_kill = disk.after_kill()
        assert offsets(consumer) == []
        if decided == "by its owner":
            tx.rollback()
            consumer.close()
        else:
            engine.decide("T", "rollback")
        if decided != "after a kill":
            with engine.consumer("in", group="g") as other:
                assert offsets(other) == [0, 1, 2]
            return
    with opened(after_kill) as engine, engine.consumer("in", group="g") as consumer:
        assert offsets(consumer) == []
        engine.decide("T", "rollback")
        assert offsets(consumer) == [0, 1, 2]


def test_a_transaction_acks_as_many_deliveries_as_fit_its_segment() -> None:
    disk = CrashDisk()
    with opened(disk, segment_bytes=65536) as engine:
        engine.send_many("in", [b""] * 1000)
        with engine.consumer("in", group="g") as consumer, engine.transaction() as tx:
            for delivery in consumer.poll(limit=1000):
                tx.ack(delivery)
    with opened(disk.after_kill()) as engine, engine.consumer("in", group="g") as consumer:
        assert consumer.poll() == []


@pytest.mark.parametrize("closed", [False, True])
def test_a_dropped_transaction_redelivers_its_messages(
    closed: bool,
) -> None:
    clock = FakeClock()
    with started(CrashDisk(), clock) as engine:
        one = engine.consumer("in", group="g", lease_seconds=5)
        other = engine.consumer("in", group="g")
        tx = engine.transaction()
        for delivery in one.poll():
            tx.ack(delivery)
        if closed:
            one.close()
        del tx
        gc.collect()
        assert offsets(other) == ([0, 1, 2] if closed else [])
        clock.advance(6)
        assert offsets(other) == [0, 1, 2]


@pytest.mark.parametrize("call", ["ack", "release", "tx.ack", "batch ack"])
def test_a_dropped_transaction_returns_its_holds_to_the_consumer_at_once(call: str) -> None:
    """No poll is needed first."""
    with started(CrashDisk()) as engine:
        one, other = engine.consumer("in", group="g"), engine.consumer("in", group="g")
        lease = one.poll_batch() if call == "batch ack" else one.poll()[0]
        assert lease is not None
        tx = engine.transaction()
        tx.ack(lease)
        del tx
        gc.collect()
        if call == "tx.ack":
            with engine.transaction() as tx:
                tx.ack(lease)
        elif call == "release":
            lease.release()
        else:
            lease.ack()
        one.close()
        expected = {"release": [0, 1, 2], "batch ack": []}.get(call, [1, 2])
        assert offsets(other) == expected


@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_a_transaction_dropped_after_a_step_redelivers_nothing(step: str) -> None:
    clock = FakeClock()
    with started(CrashDisk(), clock) as engine:
        one = engine.consumer("in", group="g", lease_seconds=5)
        tx = engine.transaction(tx_id="T")
        for delivery in one.poll():
            tx.ack(delivery)
        getattr(tx, step)()
        del tx, delivery
        one.close()
        gc.collect()
        clock.advance(6)
        other = engine.consumer("in", group="g")
        assert offsets(other) == []
        if step == "prepare":
            engine.decide("T", "rollback")
            assert offsets(other) == [0, 1, 2]


def test_in_interval_mode_a_roll_back_redelivers_only_when_durable() -> None:
    """Otherwise its consumer could get what the ROLLBACK soon gives to another one."""
    # Its thread does nothing while time stands still.
    options = fmq.Options(segment_bytes=4096, sync="interval")
    with fmq.open("data", options, disk=CrashDisk(), clock=FakeClock()) as engine:
        engine.send("in", b"job", sync=True)
        one, other = engine.consumer("in", group="g"), engine.consumer("in", group="g")
        (delivery,) = one.poll()
        tx = engine.transaction()
        tx.ack(delivery)
        tx.prepare()
        tx.rollback()
        again = engine.transaction()
        with pytest.raises(LeaseLost):
            again.ack(delivery)
        engine.sync()
        (delivery,) = other.poll()
        delivery.ack()


def test_a_delivery_of_another_engine_is_refused() -> None:
    with started(CrashDisk()) as engine, started(CrashDisk()) as other:
        (delivery,) = engine.consumer("in", group="g").poll(limit=1)
        tx = other.transaction()
        with pytest.raises(BadOption, match="another engine"):
            tx.ack(delivery)
        with pytest.raises(TypeError, match="delivery"):
            tx.ack(5)  # type: ignore[arg-type]
        tx.rollback()
        delivery.ack()


def test_a_refused_ack_takes_nothing_from_a_transaction() -> None:
    """A wrong argument or a second ack leaves the message with its transaction after the lease."""
    clock = FakeClock()
    with started(CrashDisk(), clock) as engine, engine.consumer("in", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        tx = engine.transaction()
        tx.ack(delivery)
        wrong: Any = "yes"
        with pytest.raises(TypeError, match="sync"):
            delivery.ack(sync=wrong)
        with pytest.raises(LeaseLost):
            delivery.ack()
        clock.advance(31)
        assert offsets(consumer) == [1, 2]
        tx.commit()
        assert engine.groups()[0].acked_below == 1

"""A waiting poll wakes when a message is redelivered, and not only when its time is up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import fmq.tx.looks.messages
from fmq import Consumer, Delivery, Engine
from fmq.basics.clock import Waitable
from fmq.errors import Closed
from fmq.testing.inside import inside
from tests.interrupts import Interrupt
from tests.small import CrashDisk, FakeClock, listening, opened
from tests.store.lines import Lines, at_each_line


class WhileWaiting(FakeClock):
    """A clock that lets `happen` run while a poll waits.

    Then time passes, if the poll still waits.
    """

    happens: Callable[[], object] | None = None

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().wait(lock, timeout)


@pytest.fixture
def clock() -> WhileWaiting:
    return WhileWaiting()


@pytest.fixture
def engine(clock: WhileWaiting) -> Iterator[Engine]:
    with opened(CrashDisk(), clock) as engine:
        engine.send("t", b"job")
        yield engine


def held(engine: Engine) -> tuple[Consumer, Delivery]:
    consumer = engine.consumer("t", group="g", lease_seconds=10)
    (delivery,) = consumer.poll()
    return consumer, delivery


def test_a_release_wakes_a_waiting_poll(engine: Engine, clock: WhileWaiting) -> None:
    _, delivery = held(engine)
    clock.happens = delivery.release
    assert len(engine.consumer("t", group="g").poll(timeout=60)) == 1
    assert clock.monotonic() == 0


def test_a_waiting_poll_gets_a_message_whose_new_lease_ends(
    engine: Engine, clock: WhileWaiting
) -> None:
    """The poll began to wait while a transaction held the message without a deadline."""
    _, delivery = held(engine)
    tx = engine.transaction()
    tx.ack(delivery)
    clock.happens = tx.rollback
    assert len(engine.consumer("t", group="g").poll(timeout=60)) == 1
    assert clock.monotonic() == pytest.approx(10)


def test_a_roll_back_after_the_consumer_closed_wakes_a_waiting_poll(
    engine: Engine, clock: WhileWaiting
) -> None:
    consumer, delivery = held(engine)
    tx = engine.transaction()
    tx.ack(delivery)
    consumer.close()
    clock.happens = tx.rollback
    assert len(engine.consumer("t", group="g").poll(timeout=60)) == 1
    assert clock.monotonic() == 0


def test_a_waiting_poll_finds_the_messages_of_a_dropped_transaction(
    engine: Engine, clock: WhileWaiting
) -> None:
    """The garbage collector wakes no poll, so a poll looks again once in each lease."""
    _, delivery = held(engine)
    transactions = [engine.transaction()]
    transactions[0].ack(delivery)
    clock.happens = transactions.clear
    assert len(engine.consumer("t", group="g", lease_seconds=5).poll(timeout=60)) == 1
    assert clock.monotonic() <= 16


@pytest.mark.parametrize("topics", ["missing", ("missing", "t"), ("missing", "missing too")])
def test_a_close_wakes_a_poll_for_a_topic_that_does_not_exist(
    engine: Engine, clock: WhileWaiting, topics: str | tuple[str, ...]
) -> None:
    other = engine.consumer("t", group="g")
    assert len(other.poll()) == 1
    consumer = engine.consumer(topics, group="g")
    clock.happens = consumer.close
    with pytest.raises(Closed):
        consumer.poll(timeout=math.inf)
    assert clock.monotonic() == 0
    assert inside(engine).ledger.awaited == {}


def test_a_poll_for_missing_topics_leaves_no_waiter(engine: Engine, clock: WhileWaiting) -> None:
    awaited = inside(engine).ledger.awaited
    for number in range(5):
        assert engine.read(f"missing {number}", timeout=1) == []
    consumer = engine.consumer(("missing", "missing too"), group="g")
    assert consumer.poll(timeout=1) == []
    assert awaited == {}
    clock.happens = lambda: engine.send("missing", b"job")
    assert len(consumer.poll(timeout=60)) == 1
    assert awaited == {}


def test_a_new_topic_wakes_the_polls_that_still_wait_for_it(
    engine: Engine, clock: WhileWaiting
) -> None:
    """Another poll has stopped waiting for the same topic."""
    one, other = listening(engine, "missing"), listening(engine, "missing")
    inside(engine).messages.stop_listening(one, ("missing",))
    engine.send("missing", b"job")
    assert (one.woken, other.woken) == (False, True)


def test_an_interrupt_at_any_line_of_a_wake_leaves_no_poll_asleep() -> None:
    """The engine fails and wakes every poll on its lists. No poll is missing from them."""

    for lines in at_each_line(lambda at: Lines(fmq.tx.looks.messages, at)):
        with opened(CrashDisk()) as engine:
            engine.send("t", b"job")
            messages = inside(engine).messages
            wakeups = [listening(engine, "t") for _ in range(3)]
            # And one for a topic that is not there, whose consumer is just being closed.
            wakeups.append(listening(engine, "missing"))
            messages.ledger.arrived.update(("t", "missing"))
            try:
                lines.run(messages.wake)
            except KeyboardInterrupt:
                messages.wake_all()
            assert messages.ledger.awaited == {}
            assert all(wakeup.woken and not wakeup.lock.locked() for wakeup in wakeups), lines.met
    assert lines.count > 10


@pytest.mark.parametrize("end", ["release", "close"])
def test_an_interrupt_at_any_line_of_a_release_leaves_no_poll_asleep(end: str) -> None:
    for interrupt in at_each_line(Interrupt, every=3):
        with opened(CrashDisk()) as engine:
            engine.send("t", b"job")
            consumer, delivery = held(engine)
            wakeup = listening(engine, "t")
            with suppress(KeyboardInterrupt):
                interrupt.run(delivery.release if end == "release" else consumer.close)
            if engine.stats().failure is not None:
                assert wakeup.woken, interrupt.met
                continue
            with engine.consumer("t", group="g") as other:
                assert wakeup.woken or not other.poll(), interrupt.met

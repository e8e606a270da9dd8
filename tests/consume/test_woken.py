"""Who waits for a message is woken when one comes again, and not when its time is up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import fmq.tx.messages
from fmq import Consumer, Delivery, Engine
from fmq.clock import Waitable
from fmq.errors import Closed
from tests.interrupts import Interrupt
from tests.small import CrashDisk, FakeClock, opened
from tests.store.lines import Lines

LINES_MAX = 1000


class WhileWaiting(FakeClock):
    """Lets something happen while a poll waits; then time passes, if it still does."""

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


def test_what_is_released_wakes_who_waits(engine: Engine, clock: WhileWaiting) -> None:
    _, delivery = held(engine)
    clock.happens = delivery.release
    assert len(engine.consumer("t", group="g").poll(timeout=60)) == 1
    assert clock.monotonic() == 0


def test_a_roll_back_lets_the_lease_run_again_for_who_waits(
    engine: Engine, clock: WhileWaiting
) -> None:
    """It began to wait when the message was a transaction's, without an end."""
    _, delivery = held(engine)
    tx = engine.transaction()
    tx.ack(delivery)
    clock.happens = tx.rollback
    assert len(engine.consumer("t", group="g").poll(timeout=60)) == 1
    assert clock.monotonic() == pytest.approx(10)


def test_a_roll_back_behind_the_end_of_the_consumer_wakes_who_waits(
    engine: Engine, clock: WhileWaiting
) -> None:
    consumer, delivery = held(engine)
    tx = engine.transaction()
    tx.ack(delivery)
    consumer.close()
    clock.happens = tx.rollback
    assert len(engine.consumer("t", group="g").poll(timeout=60)) == 1
    assert clock.monotonic() == 0


def test_a_transaction_that_is_dropped_while_somebody_waits(
    engine: Engine, clock: WhileWaiting
) -> None:
    """Nobody tells who waits: it looks once a lease."""
    _, delivery = held(engine)
    transactions = [engine.transaction()]
    transactions[0].ack(delivery)
    clock.happens = transactions.clear
    assert len(engine.consumer("t", group="g", lease_seconds=5).poll(timeout=60)) == 1
    assert clock.monotonic() <= 16


@pytest.mark.parametrize("topics", ["nobody", ("nobody", "t"), ("nobody", "nobody else")])
def test_the_end_of_a_consumer_wakes_who_waits_for_a_topic_that_is_not_there_yet(
    engine: Engine, clock: WhileWaiting, topics: str | tuple[str, ...]
) -> None:
    other = engine.consumer("t", group="g")
    assert len(other.poll()) == 1
    consumer = engine.consumer(topics, group="g")
    clock.happens = consumer.close
    with pytest.raises(Closed):
        consumer.poll(timeout=math.inf)
    assert clock.monotonic() == 0
    assert engine._parts.ledger.awaited == {}


def test_who_waited_for_topics_that_are_not_there_leaves_nothing_behind(
    engine: Engine, clock: WhileWaiting
) -> None:
    awaited = engine._parts.ledger.awaited
    for number in range(5):
        assert engine.read(f"nobody {number}", timeout=1) == []
    consumer = engine.consumer(("nobody", "nobody else"), group="g")
    assert consumer.poll(timeout=1) == []
    assert awaited == {}
    clock.happens = lambda: engine.send("nobody", b"job")
    assert len(consumer.poll(timeout=60)) == 1
    assert awaited == {}


def test_who_still_waits_for_a_topic_that_is_not_there_is_woken_when_it_comes(
    engine: Engine, clock: WhileWaiting
) -> None:
    """Though another one has ceased to."""
    messages = engine._parts.messages
    with messages.lock:
        one, other = messages.listen(("nobody",)), messages.listen(("nobody",))
    messages.stop_listening(one, ("nobody",))
    engine.send("nobody", b"job")
    assert (one.woken, other.woken) == (False, True)


def test_whatever_line_an_interrupt_meets_while_consumers_are_woken_nobody_sleeps_on() -> None:
    """The engine fails of it, and wakes all who are on a list: whoever is on none sleeps on."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    at = 0
    while True:
        with opened(CrashDisk()) as engine:
            engine.send("t", b"job")
            messages = engine._parts.messages
            wakeups = [messages.listen(("t",)) for _ in range(3)]
            # And one for a topic that is not there, whose consumer is just being closed.
            wakeups.append(messages.listen(("nobody",)))
            messages.ledger.arrived.update(("t", "nobody"))
            lines = Lines(fmq.tx.messages, at, interrupt)
            try:
                lines.run(messages.wake)
            except KeyboardInterrupt:
                messages.wake_all()
            assert messages.ledger.awaited == {}
            assert all(wakeup.woken and not wakeup.lock.locked() for wakeup in wakeups), lines.line
        if lines.count <= at:
            break
        at += 1
    assert at > 10


@pytest.mark.parametrize("end", ["release", "close"])
def test_whatever_line_an_interrupt_meets_what_came_again_has_woken_who_waits(end: str) -> None:
    for at in range(LINES_MAX):
        interrupt = Interrupt(at)
        with opened(CrashDisk()) as engine:
            engine.send("t", b"job")
            consumer, delivery = held(engine)
            wakeup = engine._parts.messages.listen(("t",))
            with suppress(KeyboardInterrupt):
                interrupt.run(delivery.release if end == "release" else consumer.close)
            if engine.stats().failure is not None:
                assert wakeup.woken, interrupt.met
                continue
            with engine.consumer("t", group="g") as other:
                assert wakeup.woken or not other.poll(), interrupt.met
        if not interrupt.met:
            return
    raise AssertionError("so many lines?")

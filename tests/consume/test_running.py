"""`run` and loops in threads: what acks, what is tried again, and what ends them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event, Lock, Thread, current_thread, get_ident, local

import pytest

import fmq
from fmq import Delivery, Engine, Retry
from fmq.consume.calls.consumer import member_of
from fmq.testing import FakeClock
from tests.interrupts import in_thread


class Oops(Exception):
    """What handlers of these tests raise."""


def sent(engine: Engine, *said: str) -> None:
    engine.send_many("t", [each.encode() for each in said])


def left(engine: Engine) -> int:
    """Return how many messages of the group are not acked."""
    return engine.groups("g")[0].unread


def test_a_loop_that_waits_ends_when_its_consumer_closes(engine: Engine) -> None:
    consumer = engine.consumer("t", group="g")
    seen: list[Delivery] = []
    thread = Thread(target=lambda: seen.extend(consumer))
    thread.start()
    sent(engine, "a")
    consumer.close()
    thread.join(60)
    assert not thread.is_alive()


def test_run_acks_on_return_and_tries_again_on_an_error(engine: Engine, clock: FakeClock) -> None:
    sent(engine, "good", "flaky", "poison")
    tried: list[tuple[bytes, int]] = []

    def handle(delivery: Delivery) -> None:
        tried.append((delivery.body, delivery.attempt))
        if delivery.body == b"poison" or (delivery.body == b"flaky" and delivery.attempt == 1):
            raise Oops(delivery.body.decode())

    with engine.consumer("t", group="g", retry=Retry(3, backoff=[0, 5])) as consumer:
        thread = Thread(target=consumer.run, args=(handle,), kwargs={"workers": 2})
        thread.start()
        clock.until(lambda: len(tried) == 5 and not member_of(consumer).in_hand()[0])
        clock.advance(5)
        clock.until(lambda: engine.dead_letters("g").count() == 1)
        assert consumer.drain(timeout=1)
        thread.join(60)
    assert sorted(tried) == [
        *[(b"flaky", 1), (b"flaky", 2), (b"good", 1)],
        *[(b"poison", 1), (b"poison", 2), (b"poison", 3)],
    ]
    (dead,) = engine.dead_letters("g").list()
    assert (dead.body, dead.attempts, dead.reason) == (b"poison", 3, "Oops: poison")
    assert left(engine) == 0


def test_run_keeps_the_lease_while_a_handler_works(engine: Engine, clock: FakeClock) -> None:
    """Method: the thread that runs waits by the clock of the test, which moves time on."""
    sent(engine, "slow")
    begun = clock.monotonic()

    with engine.consumer("t", group="g", lease_seconds=10) as consumer:

        def handle(delivery: Delivery) -> None:
            while clock.monotonic() <= begun + 100:
                pass
            member_of(consumer).stop()

        consumer.run(handle)
        assert clock.monotonic() > begun + 100
    assert left(engine) == 0


def test_a_handler_that_takes_too_long_has_failed_and_is_not_waited_for(
    engine: Engine, clock: FakeClock
) -> None:
    sent(engine, "hangs", "good")
    tried: list[tuple[bytes, int]] = []
    hung: list[Thread] = []
    too_late: list[Exception] = []
    hangs, let_go = Event(), Event()

    def handle(delivery: Delivery) -> None:
        tried.append((delivery.body, delivery.attempt))
        if tried[-1] == (b"hangs", 1):
            hung.append(current_thread())
            hangs.set()
            let_go.wait(60)
            try:
                delivery.ack()
            except fmq.LeaseLost as error:
                too_late.append(error)
        elif tried[-1] == (b"hangs", 2):
            member_of(consumer).stop()
            clock.wait(Lock(), None)  # the test looks again when a wait begins

    retry = Retry(backoff=0)
    with engine.consumer("t", group="g", lease_seconds=50, retry=retry) as consumer:
        limits = {"workers": 2, "time_limit": 60}
        thread = Thread(target=consumer.run, args=(handle,), kwargs=limits)
        thread.start()
        assert hangs.wait(60)
        clock.until(lambda: left(engine) == 1)

        def was_tried_again() -> bool:
            # Asked at each look of `run`, which is at least every 17 seconds.
            clock.advance(17)
            return len(tried) == 3

        began = clock.monotonic()
        clock.until(was_tried_again)
        thread.join(60)
        assert clock.monotonic() > began + 60
        assert sorted(tried) == [(b"good", 1), (b"hangs", 1), (b"hangs", 2)]
        assert left(engine) == 0
        assert hung[0].is_alive()
        let_go.set()
        hung[0].join(60)
        assert len(too_late) == 1


def test_the_last_attempt_that_takes_too_long_is_a_dead_letter(
    engine: Engine, clock: FakeClock
) -> None:
    sent(engine, "hangs")
    begun = clock.monotonic()

    def handle(delivery: Delivery) -> None:
        while engine.dead_letters("g").count() == 0 and clock.monotonic() < begun + 1000:
            pass
        member_of(consumer).stop()

    with engine.consumer("t", group="g", retry=Retry(1)) as consumer:
        consumer.run(handle, time_limit=0.5)
    (dead,) = engine.dead_letters("g").list()
    assert dead.reason == "TimeoutError: the handler took longer than its time limit of 0.5 s"
    assert left(engine) == 0


def test_run_ends_on_sigterm_after_the_messages_being_handled(engine: Engine) -> None:
    sent(engine, "a", "b")
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def handle(delivery: Delivery) -> None:
        seen.append(get_ident())
        os.kill(os.getpid(), signal.SIGTERM)
        inside_of_it = member_of(consumer).draining
        while not inside_of_it.is_on:
            pass

    with engine.consumer("t", group="g") as consumer:
        consumer.run(handle)
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(seen) == 1
    assert seen != [get_ident()]
    assert left(engine) == 1


def test_an_error_that_a_worker_cannot_survive_ends_the_run(engine: Engine) -> None:
    sent(engine, "a")

    def handle(delivery: Delivery) -> None:
        raise SystemExit(3)

    with engine.consumer("t", group="g") as consumer, pytest.raises(SystemExit):
        consumer.run(handle, workers=2)
    assert left(engine) == 1


class Lingers:
    """What a thread drops at its very end, which takes a moment."""

    def __del__(self) -> None:
        Event().wait(0.2)


def test_run_returns_with_its_last_worker_and_not_at_the_next_lease_extension(
    tmp_path: Path,
) -> None:
    """Method: the thread of the worker lives on after its work, and leases are long."""
    kept = local()

    def handle(delivery: Delivery) -> None:
        kept.lingers = Lingers()
        consumer.drain(timeout=0)

    with fmq.open(tmp_path / "d") as engine:
        sent(engine, "a")
        with engine.consumer("t", group="g", lease_seconds=10**6) as consumer:
            in_thread(lambda: consumer.run(handle), "run")
        assert left(engine) == 0

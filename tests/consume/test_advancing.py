"""`run` acks a message and counts an attempt of the next with one write."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

import fmq
from fmq import Delivery, Engine, Retry
from fmq.consume.calls.consumer import member_of
from fmq.consume.calls.workers import next_delivery
from fmq.errors import Damaged
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from tests.interrupts import in_thread
from tests.small import check, flip, opened, segments


def run(engine: Engine, count: int, then: Callable[[Delivery], object]) -> list[tuple[bytes, int]]:
    """Handle `count` deliveries with `then`; return what they were, and which attempts.

    While `run` waits for its workers in the thread of the test, it moves a fake clock by minutes.
    So it gets a thread of its own.
    """
    seen: list[tuple[bytes, int]] = []
    with engine.consumer("t", group="g", retry=Retry(backoff=0)) as consumer:

        def handle(delivery: Delivery) -> None:
            seen.append((delivery.body, delivery.attempt))
            if len(seen) == count:
                member_of(consumer).stop()
            then(delivery)

        in_thread(lambda: consumer.run(handle), "run")
    return seen


def nothing(delivery: Delivery) -> None:
    pass


def test_run_writes_and_syncs_once_for_each_job(disk: CrashDisk) -> None:
    with opened(disk, segment_bytes=65536) as engine:
        engine.send_many("t", [b"%d" % number for number in range(6)])
        before: list[int] = []
        run(engine, 6, lambda delivery: before.append(disk.operations))
        history = disk.history
        for at, end in pairwise(before):
            (only,) = history[at:end]
            assert only.endswith("sync"), only
        assert engine.groups("g")[0].unread == 0


def test_the_attempt_of_a_step_survives_a_kill(disk: CrashDisk) -> None:
    left: list[CrashDisk] = []
    with opened(disk) as engine:
        engine.send_many("t", [b"0", b"1", b"2"])
        run(engine, 2, lambda delivery: left.append(disk.after_kill()))
    with opened(left[1]) as engine:
        ledger = inside(engine).ledger
        assert 0 in ledger.acked_of("g", "t", 0)
        assert [*map(tuple, ledger.tried_of("g", "t", 0).all())] == [(1, 2, 1, 0)]
    check(left[1])


def test_run_counts_no_attempt_of_a_message_that_no_worker_has_asked_for(engine: Engine) -> None:
    """A consumer that drains acks what is handled, and takes nothing."""
    engine.send_many("t", [b"0", b"1"])
    assert run(engine, 1, nothing) == [(b"0", 1)]
    assert run(engine, 1, nothing) == [(b"1", 1)]


def test_a_lost_lease_is_logged_and_the_next_message_is_handled(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.send_many("t", [b"0", b"1", b"2"])

    def skip(delivery: Delivery) -> None:
        if delivery.body == b"0":
            engine.group("g").seek("t", queue=0, offset=1)

    assert run(engine, 3, skip)[:2] == [(b"0", 1), (b"1", 1)]
    assert [each.message for each in caplog.records if "not acked" in each.message]


def test_a_lease_that_has_ended_is_acked_if_no_other_consumer_has_the_message(
    engine: Engine, clock: FakeClock
) -> None:
    engine.send_many("t", [b"0", b"1"])
    with engine.consumer("t", group="g", lease_seconds=5) as consumer:
        first = next_delivery(member_of(consumer))
        assert first is not None
        clock.advance(6)
        second = next_delivery(member_of(consumer), first)
        assert second is not None
        assert second.body == b"1"
        second.ack()
    assert engine.groups("g")[0].unread == 0


def test_a_message_that_is_settled_by_its_handler_is_not_acked_again(engine: Engine) -> None:
    engine.send_many("t", [b"0", b"1", b"2"])
    assert len(run(engine, 3, lambda delivery: delivery.ack())) == 3
    assert engine.groups("g")[0].unread == 0


def test_an_error_keeps_the_order_of_attempts(engine: Engine) -> None:
    engine.send_many("t", [b"bad", b"0", b"1"])

    def fail_once(delivery: Delivery) -> None:
        if delivery.body == b"bad" and delivery.attempt == 1:
            raise ValueError("once")

    seen = run(engine, 4, fail_once)
    assert sorted(seen) == [(b"0", 1), (b"1", 1), (b"bad", 1), (b"bad", 2)]


def test_a_group_that_keeps_order_gets_the_next_of_a_key_after_the_ack(disk: CrashDisk) -> None:
    seen: list[bytes] = []
    with (
        opened(disk) as engine,
        engine.consumer("t", group="g", ordered=True) as consumer,
    ):
        for number in range(4):
            engine.send("t", b"%d" % number, key="one")

        def handle(delivery: Delivery) -> None:
            seen.append(delivery.body)
            if len(seen) == 4:
                member_of(consumer).stop()

        in_thread(lambda: consumer.run(handle, workers=2), "run")
        assert seen == [b"0", b"1", b"2", b"3"]
        assert engine.groups("g")[0].unread == 0


def test_a_group_that_keeps_order_looks_for_the_next_after_the_ack(disk: CrashDisk) -> None:
    """Before the ack it would look through the whole backlog of a key, to find one of another.
    Each message takes one write all the same: its attempt is in a page.
    """
    with opened(disk, segment_bytes=65536) as engine:
        engine.send_many("t", [fmq.Message(b"1", key=key) for key in "abab"])
        before: list[int] = []
        with engine.consumer("t", group="g", ordered=True) as consumer:

            def handle(delivery: Delivery) -> None:
                before.append(disk.operations)
                if len(before) == 4:
                    member_of(consumer).stop()

            in_thread(lambda: consumer.run(handle), "run")
        for at, end in pairwise(before):
            (ack,) = disk.history[at:end]
            assert ack.endswith("sync"), ack


def test_a_handled_message_is_acked_even_if_the_next_one_is_damaged(clock: FakeClock) -> None:
    disk = CrashDisk()
    with opened(disk, clock) as engine:
        engine.send("t", b"good")
        receipt = engine.send("t", b"bad" * 100)
    name = segments(disk)[0]
    flip(disk, name, receipt.position + 100)
    with opened(disk, clock) as engine:
        with pytest.raises(Damaged):
            run(engine, 9, nothing)
        ledger = inside(engine).ledger
        assert 0 in ledger.acked_of("g", "t", 0)

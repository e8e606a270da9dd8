"""A loop over a consumer reads ahead for a program that is quick, and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.errors import LeaseLost
from tests.small import CrashDisk, FakeClock, opened

COUNT = 200


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Engine]:
    with opened(CrashDisk(), clock, segment_bytes=1 << 16) as engine:
        engine.send_many("t", [fmq.Message(b"", key=f"{number}") for number in range(COUNT)])
        yield engine


def taken(consumer: Any, count: int) -> list[int]:
    """Handle `count` messages in a loop, and leave it."""
    found = []
    for delivery in islice(consumer, count):
        delivery.ack()
        found.append(delivery.offset)
    return found


def left_for_others(engine: Engine) -> list[tuple[int, int]]:
    """Return the offsets and attempts that another member gets now."""
    with engine.consumer("t", group="g") as other:
        found = [(each.offset, each.attempt) for each in other.poll(limit=COUNT)]
        for _ in range(COUNT):
            more = other.poll(limit=COUNT)
            if not more:
                return sorted(found)
            found += [(each.offset, each.attempt) for each in more]
    raise AssertionError


def test_a_loop_takes_many_messages_with_one_append(engine: Engine) -> None:
    """Their attempts are one record. Each ack is still durable when it returns."""
    with engine.consumer("t", group="g") as consumer:
        before = engine.stats().position
        assert taken(consumer, COUNT) == [*range(COUNT)]
        with_attempts = engine.stats().position - before
    with engine.consumer("t", group="other") as consumer:
        deliveries = consumer.poll(limit=COUNT)
        before = engine.stats().position
        for delivery in deliveries:
            delivery.ack()
        of_acks = engine.stats().position - before
    assert with_attempts < of_acks * 1.2


def test_messages_that_the_program_has_not_seen_are_given_back_untried(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        assert taken(consumer, 100) == [*range(100)]
        assert left_for_others(engine) == [(offset, 1) for offset in range(100, COUNT)]


def test_a_loop_whose_program_becomes_slow_gives_back_waiting_messages(
    engine: Engine, clock: FakeClock
) -> None:
    """It was quick, and has become slow: then what it has not seen is free for others."""
    with engine.consumer("t", group="g", lease_seconds=30) as consumer:
        for delivery in consumer:
            delivery.ack()
            if delivery.offset > 100:
                break
            clock.advance(0.0 if delivery.offset < 50 else 5.0)
            if delivery.offset > 60:
                held = engine.groups("g")[0].unread - len(left_for_others(engine))
                assert held == 0, delivery


def test_a_quick_loop_leaves_messages_to_the_other_members(engine: Engine) -> None:
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="g") as other:
        loop = iter(one)
        for _ in range(50):
            next(loop).ack()
        got = sorted(each.offset for each in other.poll(limit=COUNT))
        assert len(got) >= COUNT - 50 - 8, "it holds 8 at most"


@pytest.mark.parametrize("how", [{"ordered": True}, {"retry": fmq.Retry(2)}])
def test_a_loop_takes_one_message_at_a_time_where_more_could_harm(engine: Engine, how: Any) -> None:
    """Where keys have an order, or one more attempt would be the last."""
    with engine.consumer("t", group="g", **how) as consumer:
        for delivery in islice(consumer, 50):
            delivery.ack()
        loop = iter(consumer)
        next(loop)
        assert [each.attempt for each in consumer.poll(limit=COUNT)] == [1] * (COUNT - 51)


def test_a_crash_of_the_program_counts_against_one_message(clock: FakeClock) -> None:
    """The message that ends its program comes alone from its second attempt on. So the others lose
    one attempt, of the first crash.
    """
    disk = CrashDisk()
    with opened(disk, clock, segment_bytes=1 << 16) as engine:
        engine.send_many("t", [b"%d" % number for number in range(COUNT)])
    seen: dict[int, int] = {}
    done: set[int] = set()
    crashes = 0
    while len(done) < COUNT - 1:
        with opened(disk, clock, segment_bytes=1 << 16) as engine:
            for delivery in engine.consumer("t", group="g", retry=fmq.Retry(9)):
                seen[delivery.offset] = delivery.attempt
                if delivery.offset in (50, 51) and crashes < 4:
                    crashes += 1
                    disk = disk.after_kill()
                    break
                delivery.ack()
                done.add(delivery.offset)
                if len(done) == COUNT - 1:
                    break
    assert crashes == 4
    assert seen.pop(50) + seen.pop(51) >= 5
    assert max(seen.values()) == 2


def test_a_drain_in_the_loop_does_not_wait_for_unseen_messages(
    engine: Engine, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer:
            delivery.ack()
            if delivery.offset == 60:
                assert consumer.drain(timeout=0)
                assert clock.monotonic() == 0
        assert delivery.offset == 60, "a loop over a drained consumer ends"
        assert left_for_others(engine) == [(offset, 1) for offset in range(61, COUNT)]


def test_a_lease_that_ends_while_a_message_waits_in_the_loop_is_noticed(
    engine: Engine, clock: FakeClock
) -> None:
    """What waits in the loop meanwhile goes to others, and the program does not see it."""
    with engine.consumer("t", group="g", lease_seconds=5) as consumer:
        loop = iter(consumer)
        for _ in range(60):
            next(loop).ack()
        slow = next(loop)
        clock.advance(6)
        others = {offset for offset, _ in left_for_others(engine)}
        assert slow.offset in others
        with pytest.raises(LeaseLost):
            slow.ack()
        assert next(loop).offset in others, "the other member has closed, and it comes again"


def test_a_loop_that_ends_by_an_error_gives_all_messages_back(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:

        def fail() -> None:
            for delivery in consumer:
                delivery.ack()
                if delivery.offset == 40:
                    raise RuntimeError

        with suppress(RuntimeError):
            fail()
        assert left_for_others(engine) == [(offset, 1) for offset in range(41, COUNT)]

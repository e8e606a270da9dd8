"""Messages that have expired are passed over: durably, counted, and without reaching a caller."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import fmq
from fmq import Engine, Message, filters
from fmq.basics.clock import as_datetime
from fmq.testing.inside import inside
from tests.small import CrashDisk, FakeClock, check, fill, opened

LARGE: dict[str, Any] = {"segment_bytes": 1 << 20}


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[Engine]:
    with opened(disk, clock, **LARGE) as engine:
        yield engine
    check(disk)


class Sending:
    """Sends messages that expire the given number of seconds from now. None: they never expire."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.engine = engine
        self.clock = clock

    def message(self, seconds: float | None, **more: Any) -> Message:
        if seconds is not None:
            more["expires_at"] = as_datetime(self.clock.time_us()) + timedelta(seconds=seconds)
        return Message(b"", **more)

    def __call__(self, *seconds: float | None, **more: Any) -> None:
        for each in seconds:
            self.engine.send_many("t", [self.message(each, **more)])

    def many(self, *seconds: float | None) -> None:
        self.engine.send_many("t", [self.message(each) for each in seconds])


@pytest.fixture
def send(engine: Engine, clock: FakeClock) -> Sending:
    return Sending(engine, clock)


def polled(consumer: Any, limit: int = 1) -> list[int]:
    found = []
    while deliveries := consumer.poll(limit=limit):
        found += [each.offset for each in deliveries]
        for each in deliveries:
            each.ack()
    return found


def counted(engine: Engine, group: str = "g") -> tuple[int, int]:
    """Return how many messages had expired, and how many are unread."""
    engine.sync()
    (info,) = engine.groups(group)
    return info.expired, info.unread


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("in_one", [False, True])
def test_expired_messages_are_passed_over_and_counted(
    engine: Engine, clock: FakeClock, send: Sending, limit: int, *, in_one: bool
) -> None:
    (send.many if in_one else send)(5, None, 5, 60, 5)
    clock.advance(10)
    with engine.consumer("t", group="g") as consumer:
        assert polled(consumer, limit) == [1, 3]
    assert counted(engine) == (3, 0)


def test_a_message_expires_at_its_time(engine: Engine, clock: FakeClock, send: Sending) -> None:
    send(10)
    with engine.consumer("t", group="g") as consumer:
        clock.advance(9.999)
        (delivery,) = consumer.poll()
        delivery.release()
        clock.advance(0.001)
        assert consumer.poll() == []
    assert counted(engine) == (1, 0)


def test_a_delivered_message_may_expire_before_it_is_acked(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(10)
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll()
        clock.advance(20)
        delivery.ack()
    assert counted(engine) == (0, 0)


def test_one_poll_passes_over_thousands_of_expired_messages(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    for _ in range(3):
        send.many(*[5] * 4000)
    send(None)
    clock.advance(10)
    before = engine.stats().position
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        assert delivery.offset == 12_000
    engine.sync()
    assert engine.stats().position - before < 2000


def test_the_count_of_expired_messages_survives_restarts_and_retention(
    disk: CrashDisk, clock: FakeClock
) -> None:
    how: dict[str, Any] = {"segment_bytes": 4096, "retain_bytes": 8192}
    with opened(disk, clock, **how) as engine:
        send = Sending(engine, clock)
        for _ in range(20):
            send.many(*[5, None] * 10)
            clock.advance(10)
            with engine.consumer("t", group="g") as consumer:
                polled(consumer, 100)
        assert engine.queues("t")[0].first > 0
        assert counted(engine) == (200, 0)
    with opened(disk, clock, **how) as engine:
        assert counted(engine) == (200, 0)
    check(disk)


def test_each_group_counts_expiries(engine: Engine, clock: FakeClock, send: Sending) -> None:
    send(5, None)
    with engine.consumer("t", group="early") as consumer:
        assert polled(consumer) == [0, 1]
    clock.advance(10)
    with engine.consumer("t", group="late") as consumer:
        assert polled(consumer) == [1]
    assert counted(engine, "early") == (0, 0)
    assert counted(engine, "late") == (1, 0)


def test_messages_that_a_filter_excludes_do_not_count_as_expired(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(5, None, tag="a")
    send(5, None, tag="b")
    clock.advance(10)
    with engine.consumer("t", group="g", filter=filters.tags("a")) as consumer:
        assert polled(consumer) == [1]
    assert counted(engine) == (1, 0)


def test_an_ordered_group_passes_over_expired_messages(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(None, 5, None, 5, key="k")
    clock.advance(10)
    with engine.consumer("t", group="g", ordered=True) as consumer:
        assert polled(consumer, 10) == [0, 2]
    assert counted(engine) == (2, 0)


def test_expired_messages_are_passed_over_in_each_priority(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(None, 5, None, priority=1)
    send(5, None, 5, priority=9)
    send(5, None)
    clock.advance(10)
    with engine.consumer("t", group="g") as consumer:
        assert polled(consumer) == [4, 0, 2, 7]
    assert counted(engine) == (4, 0)


def test_batches_pass_over_expired_messages(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send.many(5, 5, None, None, 5, None)
    clock.advance(10)
    with engine.consumer("t", group="g") as consumer:
        batches = [consumer.poll_batch(), consumer.poll_batch()]
        assert [(each.offset, len(each)) for each in batches if each] == [(2, 2), (5, 1)]
        assert consumer.poll_batch() is None


def test_messages_of_a_committed_transaction_expire(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    for size in (10, 20_000):
        tx = engine.transaction()
        tx.send_many("t", [send.message(5)._replace(body=bytes(size)), b"left"])
        tx.prepare()
        clock.advance(10)
        tx.commit()
    with engine.consumer("t", group="g") as consumer:
        assert polled(consumer) == [1, 3]
    assert counted(engine) == (2, 0)


def test_a_read_returns_expired_messages(engine: Engine, clock: FakeClock, send: Sending) -> None:
    send(5)
    clock.advance(10)
    assert len(engine.read("t")) == 1


def test_a_topic_without_expiries_is_not_searched_for_expired_messages(
    engine: Engine, send: Sending
) -> None:
    send(None, None)
    assert inside(engine).ledger.topics["t"].queues[0].spans is None


def test_the_command_shows_the_count_of_expired_messages(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(5)
    clock.advance(10)
    with engine.consumer("t", group="g") as consumer:
        consumer.poll()
    engine.sync()
    assert "1 expired" in engine.group("g").explain()
    assert isinstance(engine.groups("g")[0], fmq.GroupInfo)


BURIES: dict[str, Any] = {"group": "g", "expired": "dead_letter"}


def test_expired_messages_become_dead_letters_on_request(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send.many(5, None, 5, 60, 5)
    send(5, key="k", tag="x")
    clock.advance(10)
    with engine.consumer("t", **BURIES) as consumer:
        assert polled(consumer) == [1, 3]
    assert counted(engine) == (4, 0)
    letters = engine.dead_letters("g").list()
    assert [each.offset for each in letters] == [0, 2, 4, 5]
    assert {(each.attempts, each.reason) for each in letters} == {
        (0, "it had expired before the group got it")
    }
    assert (letters[3].key, letters[3].tag) == ("k", "x")
    assert letters[0].expires_at is not None


def test_one_poll_moves_thousands_to_the_dead_letters_with_one_sync(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send.many(*[5] * 4000)
    send(None)
    clock.advance(10)
    with engine.consumer("t", **BURIES) as consumer:
        syncs = inside(engine).commit_queue.syncs
        (delivery,) = consumer.poll(limit=1)
        assert delivery.offset == 4000
        assert inside(engine).commit_queue.syncs <= syncs + 1
    engine.sync()
    assert engine.dead_letters("g").count() == 4000


def test_a_replayed_dead_letter_does_not_expire(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(5, priority=3)
    clock.advance(10)
    with engine.consumer("t", **BURIES) as consumer:
        assert consumer.poll() == []
        engine.sync()
        assert engine.dead_letters("g").replay() == 1
        (delivery,) = consumer.poll()
        assert (delivery.topic, delivery.offset, delivery.attempt) == ("t", 0, 1)
        delivery.ack()
    assert counted(engine) == (1, 0)


def test_an_expired_message_that_was_tried_keeps_its_attempts(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(5)
    with engine.consumer("t", **BURIES) as consumer:
        (delivery,) = consumer.poll()
        delivery.release()
        clock.advance(6)
        assert consumer.poll() == []
    engine.sync()
    (dead,) = engine.dead_letters("g").list()
    assert dead.attempts == 1


def test_an_expired_message_that_a_filter_excludes_is_no_dead_letter(
    engine: Engine, clock: FakeClock, send: Sending
) -> None:
    send(5, tag="a")
    send(5, tag="b")
    clock.advance(10)
    with engine.consumer("t", **BURIES, filter=filters.tags("a")) as consumer:
        assert consumer.poll() == []
    engine.sync()
    assert [each.tag for each in engine.dead_letters("g")] == ["a"]


def test_an_expired_message_too_large_to_copy_is_counted(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """In a segment that it fills so far that nothing can be added."""
    disk = CrashDisk()
    with opened(disk, clock, segment_bytes=4096, compress_bytes_min=1 << 20) as engine:
        send = Sending(engine, clock)
        most = inside(engine).journal.append_bytes_max
        engine.send_many("t", [send.message(5), send.message(5)._replace(body=bytes(most - 200))])
        clock.advance(10)
        with engine.consumer("t", **BURIES) as consumer:
            assert consumer.poll() == []
        assert counted(engine) == (2, 0)
        assert engine.dead_letters("g").count() == 1
    assert "is no dead letter" in caplog.text
    check(disk)


def test_the_option_for_expired_messages_takes_only_two_values(engine: Engine) -> None:
    with pytest.raises(fmq.errors.BadOption, match="'dead_letter'"):
        engine.consumer("t", group="g", expired="drop")


def test_a_check_finds_the_same_spans_in_a_checkpoint_as_in_the_journal(clock: FakeClock) -> None:
    """Topics have another order where their journal begins with a STATE."""
    disk = CrashDisk()
    for _ in range(6):
        with opened(disk, clock, retain_bytes=4096) as engine:
            Sending(engine, clock)(5)
            clock.advance(10)
            with engine.consumer("t", **BURIES) as consumer:
                assert consumer.poll() == []
            fill(engine)
            engine.checkpoint()
        check(disk)

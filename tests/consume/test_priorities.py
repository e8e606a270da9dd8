"""The order in which a shared consumer is handed messages with priorities."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import fmq
from fmq import Engine, Message, filters
from fmq.consume.claims.by_priority import SpanWanted
from fmq.consume.claims.read_ahead import read_priorities
from fmq.errors import Damaged
from fmq.testing.inside import inside
from fmq.tx.ledger.spans import SPAN
from tests.interrupts import in_thread
from tests.small import CrashDisk, FakeClock, check, flip, opened, segments

LARGE: dict[str, Any] = {"segment_bytes": 1 << 20}


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk, **LARGE) as engine:
        yield engine
    check(disk)


def send(engine: Any, *priorities: int | None, topic: str = "t") -> None:
    """Send messages whose bodies are their offsets, each in a record of its own."""
    for number, priority in enumerate(priorities):
        engine.send(topic, b"%d" % number, priority=priority)


def send_many(engine: Any, priorities: Sequence[int | None], topic: str = "t") -> None:
    engine.send_many(topic, [Message(b"", priority=each) for each in priorities])


def offsets(deliveries: list[fmq.Delivery]) -> list[int]:
    return [each.offset for each in deliveries]


def polled(consumer: Any, limit: int = 1, *, ack: bool = True) -> list[int]:
    """Poll until there is nothing. Return the offsets."""
    found = []
    while deliveries := consumer.poll(limit=limit):
        found += offsets(deliveries)
        for each in deliveries if ack else ():
            each.ack()
    return found


def expected(priorities: dict[int, int], handed_out: int = 0) -> list[int]:
    """Return the order of these offsets: by priority, but each tenth is the oldest."""
    by_age = deque(sorted(priorities))
    by_priority = deque(sorted(priorities, key=lambda offset: (-priorities[offset], offset)))
    found: dict[int, None] = {}
    while len(found) < len(priorities):
        for queue in (by_age, by_priority):
            while queue[0] in found:
                queue.popleft()
        chosen = by_age[0] if handed_out >= 9 else by_priority[0]
        handed_out = 0 if chosen == by_age[0] else handed_out + 1
        found[chosen] = None
    return [*found]


# --- the order ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"filter": filters.tags("x || y")}])
def test_a_higher_priority_in_the_next_segment_is_polled_first(
    disk: CrashDisk, how: dict[str, Any]
) -> None:
    """A read ends with its segment, so the poll has to end there, too."""
    with opened(disk) as engine:
        for priority in (1, 9, 9, 9, 9, 9, 9):
            engine.send("t", bytes(900), tag="x", priority=priority)
        assert len(segments(disk)) > 1
        with engine.consumer("t", group="g", **how) as consumer:
            assert polled(consumer, limit=100) == [1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_highest_priority_goes_first(engine: Engine, limit: int) -> None:
    send(engine, 0, 5, None, 9, 5, 1)
    with engine.consumer("t", group="g") as consumer:
        assert polled(consumer, limit) == [3, 1, 4, 5, 0, 2]


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_every_tenth_delivery_is_the_oldest_message(engine: Engine, limit: int) -> None:
    send(engine, 0, 0, 0, *[9] * 40)
    with engine.consumer("t", group="g") as consumer:
        found = polled(consumer, limit)
    assert found == [*range(3, 12), 0, *range(12, 21), 1, *range(21, 30), 2, *range(30, 43)]


def test_a_later_message_of_higher_priority_overtakes(engine: Engine) -> None:
    send(engine, 1, 1, 1)
    with engine.consumer("t", group="g") as consumer:
        (first,) = consumer.poll(limit=1)
        send(engine, 7)
        assert [first.offset, *polled(consumer)] == [0, 3, 1, 2]


def test_a_high_priority_message_after_a_long_backlog_is_next(engine: Engine) -> None:
    """Nothing of the backlog is looked at: no span has it, and nothing is read."""
    for _ in range(5):
        engine.send_many("t", [b""] * 10_000)
    with engine.consumer("t", group="g") as consumer:
        (first,) = consumer.poll(limit=1)
        send(engine, 4)
        (second,) = consumer.poll(limit=1)
        assert (first.offset, second.offset) == (0, 50_000)


def test_messages_of_a_transaction_are_delivered_by_priority(
    disk: CrashDisk, engine: Engine
) -> None:
    """In one phase, and prepared: published by a reference, and as a copy after a restart."""
    engine.send("t", b"")
    with engine.transaction() as tx:
        tx.send("t", b"", priority=2)
    for tx_id, body in (("small", b""), ("large", bytes(20_000))):
        tx = engine.transaction(tx_id=tx_id)
        tx.send_many("t", [Message(body, priority=3), Message(body, priority=8)])
        tx.prepare()
        tx.commit()
    with engine.consumer("t", group="g") as consumer:
        assert polled(consumer) == [3, 5, 2, 4, 1, 0]


def test_an_undecided_transaction_keeps_its_priorities_over_a_restart(disk: CrashDisk) -> None:
    with opened(disk, **LARGE) as engine:
        engine.send("t", b"")
        tx = engine.transaction(tx_id="a")
        tx.send("t", b"", priority=1)
        tx.prepare()
    with opened(disk, **LARGE) as engine:
        engine.decide("a", "commit")
        with engine.consumer("t", group="g") as consumer:
            assert polled(consumer) == [1, 0]
    check(disk)


def test_priorities_hold_across_the_queues_of_a_topic(disk: CrashDisk) -> None:
    """The highest priority of all queues goes first; each tenth is the oldest of the next queue."""
    with opened(disk, queues=3, **LARGE) as engine:
        for queue, priority in ((0, 1), (1, 5), (2, 3), (0, 4), (1, 2)):
            engine.send("t", b"%d" % priority, queue=queue, priority=priority)
        with engine.consumer("t", group="g") as consumer:
            got = [each.body for _ in range(5) for each in consumer.poll(limit=1)]
            assert got == [b"5", b"4", b"3", b"2", b"1"]
            for queue in range(3):
                engine.send_many("t", [Message(b"low")] * 2, queue=queue)
            engine.send_many("t", [Message(b"high", priority=9)] * 60, queue=1)
            got = [each.body for _ in range(66) for each in consumer.poll(limit=1)]
            assert [i for i, body in enumerate(got) if body == b"low"][:3] == [9, 19, 29]
    check(disk)


def test_one_poll_takes_no_lower_priority_than_another_queue_has(disk: CrashDisk) -> None:
    with opened(disk, queues=2, **LARGE) as engine:
        engine.send_many("t", [Message(b"9", priority=9), *[b"0"] * 20], queue=0)
        engine.send_many("t", [Message(b"8", priority=8)] * 3, queue=1)
        with engine.consumer("t", group="g") as consumer:
            polls = [[each.body for each in consumer.poll(limit=100)] for _ in range(3)]
            assert polls == [[b"9"], [b"8"] * 3, [b"0"] * 20]


def test_batches_by_priority_are_consecutive(engine: Engine) -> None:
    send_many(engine, [0, 0, 9, 9, 0, 9])
    with engine.consumer("t", group="g") as consumer:
        batches = [consumer.poll_batch() for _ in range(4)]
        assert [(b.offset, len(b)) for b in batches if b] == [(2, 2), (5, 1), (0, 2), (4, 1)]
        assert consumer.poll_batch() is None


def test_a_filter_excludes_messages_of_each_priority(engine: Engine) -> None:
    engine.send_many("t", [Message(b"", tag="ab"[n % 2], priority=n % 3) for n in range(30)])
    with engine.consumer("t", group="g", filter=filters.tags("a")) as consumer:
        found = polled(consumer)
        wanted = {n: n % 3 for n in range(0, 30, 2)}
        assert sorted(found) == [*wanted]
        assert [wanted[n] for n in found[:5]] == [2] * 5
        engine.sync()
        assert engine.groups("g")[0].unread == 0


def test_an_ordered_group_ignores_priorities(engine: Engine) -> None:
    send(engine, 0, 9, 0, 9)
    with engine.consumer("t", group="g", ordered=True) as consumer:
        assert polled(consumer) == [0, 1, 2, 3]


def test_members_with_a_strategy_take_by_priority_from_their_queues(disk: CrashDisk) -> None:
    with opened(disk, queues=2, **LARGE) as engine:
        for queue in range(2):
            engine.send_many("t", [b"0", Message(b"9", priority=9)], queue=queue)
        with (
            engine.consumer("t", group="g", member="a", strategy="sticky") as one,
            engine.consumer("t", group="g", member="b", strategy="sticky") as other,
        ):
            assert [each.body for each in one.poll()] == [b"9", b"0"]
            assert [each.body for each in other.poll()] == [b"9", b"0"]


def test_a_group_that_becomes_ordered_gets_returned_messages_once(engine: Engine) -> None:
    send(engine, 0, 9, 0, 9, 5)
    with engine.consumer("t", group="g") as consumer:
        one, other = consumer.poll(limit=2)
        one.ack()
        other.release(delay=0)
        (again,) = consumer.poll(limit=1)
        assert again.offset == other.offset == 3
        again.release(delay=0)
        consumer.poll(limit=1)
    with engine.consumer("t", group="g", ordered=True) as consumer:
        assert sorted(polled(consumer)) == [0, 2, 3, 4]


# --- what was given back ------------------------------------------------------------------------


def test_returned_messages_are_delivered_by_priority(engine: Engine) -> None:
    send(engine, 3, 1, 1, 5, 1)
    with engine.consumer("t", group="g") as consumer:
        taken = consumer.poll(limit=4)
        assert offsets(taken) == [3, 0, 1, 2]
        for each in taken[1:]:
            each.release()
        send(engine, 2)
        assert polled(consumer) == [0, 5, 4, 1, 2]


def test_messages_of_a_dead_member_do_not_overtake_higher_priorities(engine: Engine) -> None:
    send_many(engine, [0] * 50)
    send(engine, 1)
    with engine.consumer("t", group="g") as consumer:
        with engine.consumer("t", group="g") as dies:
            assert len(dies.poll(limit=100)) == 51
        send(engine, 9, 9)
        assert polled(consumer)[:3] == [51, 52, 50]


# --- memory and restarts ------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_delivery_goes_on_by_priority(disk: CrashDisk, *, clean: bool) -> None:
    """Acks of high priorities are ranges, so what is left is known; priorities are read again."""
    priorities = [n * 7 % 10 for n in range(SPAN + 500)]
    with opened(disk, **LARGE) as engine:
        send_many(engine, priorities)
        with engine.consumer("t", group="g") as consumer:
            got: list[int] = []
            for _ in range(10):
                for each in consumer.poll(limit=20):
                    got.append(each.offset)
                    each.ack()
        if not clean:
            disk = disk.after_power_loss(7)
    assert got == expected(dict(enumerate(priorities)))[:200]
    with opened(disk, **LARGE) as engine:
        left = dict(enumerate(priorities))
        for offset in got:
            del left[offset]
        with engine.consumer("t", group="g") as consumer:
            assert polled(consumer, 5000, ack=False) == expected(left)


def test_a_restart_reads_a_span_only_when_its_priorities_are_mixed(disk: CrashDisk) -> None:
    with opened(disk, **LARGE) as engine:
        send_many(engine, [1] * SPAN + [2] * SPAN + [None] * SPAN + [3, 4] * 10)
    with opened(disk, **LARGE) as engine, engine.consumer("t", group="g") as consumer:
        known = inside(engine).ledger.priorities
        assert not known._by_span
        (first,) = consumer.poll(limit=1)
        assert first.offset == 3 * SPAN + 1
        assert len(known._by_span) == 1


def test_memory_does_not_grow_with_the_backlog(engine: Engine) -> None:
    for _ in range(12):
        send_many(engine, [n % 10 for n in range(SPAN)])
    (queue,) = inside(engine).ledger.topics["t"].queues
    assert queue.spans is not None
    assert len(queue.spans.masks.numbers) == 12


def test_forgotten_priorities_are_read_again(disk: CrashDisk) -> None:
    """Only so many spans are kept one by one. Method: keep one."""
    priorities = [n * 7 % 10 for n in range(2 * SPAN + 100)]
    options = fmq.Options(**LARGE)  # and no shadow, which compares every ack with every other
    with fmq.open("data", options, disk=disk, clock=FakeClock(), background=False) as engine:
        inside(engine).ledger.priorities.spans_max = 1
        send_many(engine, priorities)
        with engine.consumer("t", group="g") as consumer:
            assert polled(consumer, 5000, ack=False) == expected(dict(enumerate(priorities)))
    check(disk)


def test_a_topic_without_priorities_has_no_spans(engine: Engine) -> None:
    engine.send("t", b"")
    engine.send("t", b"", key="k", tag="t")
    engine.send("t", b"", priority=0)
    with engine.consumer("t", group="g") as consumer:
        assert len(consumer.poll()) == 3
    topic = inside(engine).ledger.topics["t"]
    assert not topic.has_priorities


def test_damage_does_not_keep_other_messages_from_delivery(disk: CrashDisk) -> None:
    """The priorities of a damaged record are not known. It raises when it is handed out."""
    with opened(disk, **LARGE) as engine:
        send(engine, 1, 2, 3)
        position = engine.read("t")[1].position
        assert position is not None
    flip(disk, segments(disk)[0], position + 20)
    engine = fmq.open("data", fmq.Options(**LARGE), disk=disk, clock=FakeClock(), background=False)
    with engine, engine.consumer("t", group="g") as consumer:
        assert consumer.poll(limit=1)
        with pytest.raises(Damaged):
            polled(consumer, ack=False)
        engine.group("g").skip("t", 0, 1)
        assert polled(consumer, ack=False) == [2]


def test_a_poll_ends_where_retention_has_dropped_more_than_was_read_before(disk: CrashDisk) -> None:
    """A poll reads the priorities of the messages that are there. If others come before these are
    known, it does not know theirs.
    """
    with opened(disk) as engine:
        send(engine, 5, 3)
    with opened(disk, retain_bytes=1, keep_unread=False) as engine:
        (queue,) = inside(engine).ledger.topics["t"].queues
        read_priorities(inside(engine).messages, inside(engine).writer, SpanWanted(queue, 0, 1))
        for number in range(20):
            engine.send("t", bytes(900), priority=number % 10)
        engine.checkpoint()
        assert queue.first > 1
        left = {offset: (offset - 2) % 10 for offset in range(queue.first, queue.next)}
        with engine.consumer("t", group="g") as consumer:
            assert in_thread(lambda: polled(consumer), "a poll") == expected(left)


def test_no_lower_priority_overtakes_an_unreadable_message(disk: CrashDisk) -> None:
    """The head of the message cannot be read, so a poll with a filter cannot look past it."""
    with opened(disk) as engine:
        sent = [engine.send("t", b"", tag="x", priority=each) for each in (1, 9, 9)]
        flip(disk, segments(disk)[0], sent[2].position + 20)
        with engine.consumer("t", group="g", filter=filters.tags("x || y")) as consumer:
            assert offsets(consumer.poll(limit=100)) == [1]
            with pytest.raises(Damaged):
                consumer.poll(limit=100)


def test_retention_drops_spans(disk: CrashDisk) -> None:
    with opened(disk, segment_bytes=32768, retain_bytes=65536, keep_unread=False) as engine:
        for _ in range(16):
            send_many(engine, [n % 10 for n in range(SPAN)])
        engine.checkpoint()
        (queue,) = inside(engine).ledger.topics["t"].queues
        assert queue.spans is not None
        assert queue.first > 0
        assert queue.spans.masks.numbers[0] == queue.first // SPAN
        left = {n: n % SPAN % 10 for n in range(queue.first, queue.next)}
        with engine.consumer("t", group="g") as consumer:
            assert offsets(consumer.poll(limit=500)) == expected(left)[:500]
    check(disk)

"""Tickets: a message is settled by the attempt that was handed out, whoever holds it by now."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import PATH


@pytest.fixture
def group(engine: Engine) -> Any:
    for number in range(5):
        engine.send("t", b"%d" % number, key="k")
    engine.create_group("g", "t")
    return engine.group("g")


def take(engine: Engine, count: int = 1) -> list[fmq.Delivery]:
    """Return messages whose consumer closes at once, so that nobody holds them."""
    with engine.consumer("t", group="g", retry=fmq.Retry(backoff=0.0)) as consumer:
        return consumer.poll(limit=count)


def unread(engine: Engine) -> list[int]:
    return [each.offset or 0 for each in engine.unread("g", "t")]


def test_a_ticket_acks_what_its_consumer_holds(engine: Engine, group: Any) -> None:
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        group.ack_ticket(held.ticket)
        assert unread(engine) == [1, 2, 3, 4]
        with pytest.raises(fmq.LeaseLost):
            held.ack()


def test_a_repeated_ack_changes_nothing(engine: Engine, group: Any) -> None:
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        group.ack_ticket(held.ticket)
        before = engine.stats().position
        group.ack_ticket(held.ticket)
        group.reject_ticket(held.ticket, reason="too late")
        assert engine.stats().position == before
        with pytest.raises(fmq.LeaseLost, match="was acked"):
            group.release_ticket(held.ticket, delay=1)
    assert engine.dead_letters("g").count() == 0


def test_a_ticket_of_an_earlier_attempt_is_refused(
    engine: Engine, group: Any, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g") as consumer:
        (first,) = consumer.poll(limit=1)
        group.release_ticket(first.ticket, delay=5)
        clock.advance(6)
        assert [each.offset for each in consumer.poll(limit=9)] == [1, 2, 3, 4]
        (again,) = consumer.poll(limit=9)
        assert again.attempt == 2
        for call in (
            lambda: group.ack_ticket(first.ticket),
            lambda: group.release_ticket(first.ticket, delay=1),
            lambda: group.reject_ticket(first.ticket),
        ):
            with pytest.raises(fmq.LeaseLost, match="attempt 1"):
                call()
        again.ack()


def test_what_is_lent_comes_again_only_after_its_time(
    engine: Engine, group: Any, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g") as consumer:
        (lent,) = consumer.poll(limit=1)
        group.release_ticket(lent.ticket, delay=30)
        clock.advance(29)
        group.release_ticket(lent.ticket, delay=30)  # lent for longer
        group.release_ticket(lent.ticket, delay=10)  # and for less
        clock.advance(9)
        assert [each.offset for each in consumer.poll(limit=9)] == [1, 2, 3, 4]
        clock.advance(2)
        assert [(each.offset, each.attempt) for each in consumer.poll(limit=9)] == [(0, 2)]


def test_an_attempt_that_does_not_count_ends_its_ticket(engine: Engine, group: Any) -> None:
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        for _ in range(2):  # a client may repeat it
            group.release_ticket(held.ticket, delay=0, count=False)
        with pytest.raises(fmq.LeaseLost):
            group.ack_ticket(held.ticket)
        consumer.poll(limit=9)
        (again,) = consumer.poll(limit=9)
        assert (again.offset, again.attempt) == (0, 1)


def test_a_ticket_outlives_the_process(disk: CrashDisk, clock: FakeClock) -> None:
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        engine.send_many("t", [b"x"] * 3)
        engine.create_group("g", "t")
        with engine.consumer("t", group="g") as consumer:
            tickets = [each.ticket for each in consumer.poll(limit=3)]
            for ticket in tickets:
                engine.group("g").release_ticket(ticket, delay=60)
        killed = disk.after_kill()
    for left in (disk, killed):
        with fmq.open(PATH, disk=left, clock=clock) as engine:
            group = engine.group("g")
            assert take(engine, 9) == []  # still lent
            group.ack_ticket(tickets[0])
            group.reject_ticket(tickets[1], reason="no")
            group.release_ticket(tickets[2], delay=0)
            assert [each.offset for each in take(engine, 9)] == [2]
            (letter,) = engine.dead_letters("g").list()
            assert (letter.offset, letter.reason, letter.attempts) == (1, "no", 1)


def test_what_was_in_hand_at_a_kill_can_be_acked_until_it_is_handed_out_again(
    disk: CrashDisk, clock: FakeClock
) -> None:
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        engine.send_many("t", [b"x"] * 2)
        with engine.consumer("t", group="g") as consumer:
            tickets = [each.ticket for each in consumer.poll(limit=2)]
            killed = disk.after_kill()
    with fmq.open(PATH, disk=killed, clock=clock) as engine:
        group = engine.group("g")
        group.ack_ticket(tickets[0])
        with engine.consumer("t", group="g") as consumer:
            assert [(each.offset, each.attempt) for each in consumer.poll(limit=2)] == [(1, 2)]
            with pytest.raises(fmq.LeaseLost):
                group.ack_ticket(tickets[1])


def test_a_replayed_dead_letter_has_a_ticket_of_its_own(engine: Engine, group: Any) -> None:
    group.reject("t", 0, 3, reason="no")
    engine.dead_letters("g").replay()
    group.ack_below("t", 0, 5)
    with engine.consumer("t", group="g") as consumer:
        (again,) = consumer.poll(limit=9)
        group.release_ticket(again.ticket, delay=5)
        group.reject_ticket(again.ticket, reason="still no")
    (letter,) = engine.dead_letters("g").list()
    assert (letter.topic, letter.offset, letter.reason) == ("t", 3, "still no")


def test_the_order_of_a_key_is_kept_for_what_is_lent(
    engine: Engine, group: Any, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g", ordered=True) as consumer:
        lent = consumer.poll(limit=2)
        for each in lent:
            group.release_ticket(each.ticket, delay=10)
        group.release_ticket(lent[0].ticket, delay=30)
        clock.advance(11)
        assert consumer.poll(limit=9) == []  # 1 is due, and waits for 0
        group.ack_ticket(lent[0].ticket)
        assert [each.offset for each in consumer.poll(limit=9)][:1] == [1]


def test_a_ticket_is_refused_while_a_transaction_acks_the_message(
    engine: Engine, group: Any
) -> None:
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        tx = engine.transaction()
        tx.ack(held)
        tx.prepare()
        with pytest.raises(fmq.StillUndecided):
            group.ack_ticket(held.ticket)
        tx.rollback()
        group.ack_ticket(held.ticket)
    assert unread(engine) == [1, 2, 3, 4]


def test_a_seek_ends_tickets(engine: Engine, group: Any) -> None:
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        group.seek("t", to="earliest")
        with pytest.raises(fmq.LeaseLost):
            group.ack_ticket(held.ticket)
    assert unread(engine) == [0, 1, 2, 3, 4]


def test_a_ticket_of_another_group_is_refused(engine: Engine, group: Any) -> None:
    engine.create_group("other", "t")
    with engine.consumer("t", group="g") as consumer:
        (held,) = consumer.poll(limit=1)
        with pytest.raises(fmq.LeaseLost, match="names no message"):
            engine.group("other").ack_ticket(held.ticket)
        with pytest.raises(fmq.UnknownGroup):
            engine.group("none").ack_ticket(held.ticket)


def test_an_ack_by_ticket_is_durable_on_return(disk: CrashDisk, clock: FakeClock) -> None:
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        engine.send("t", b"x")
        with engine.consumer("t", group="g") as consumer:
            (held,) = consumer.poll()
            engine.group("g").ack_ticket(held.ticket)
            left = disk.after_power_loss(0)
    with fmq.open(PATH, disk=left, clock=clock) as engine:
        assert unread(engine) == []


@pytest.mark.parametrize(
    "ticket", ["", "1", "1-2-3", "1-2-3-4-5", "x-0-0-1", "0-0-0-٣", "+1-0-0-1"]
)
def test_what_is_no_ticket_is_refused(group: Any, ticket: str) -> None:
    with pytest.raises(fmq.BadOption, match="no ticket"):
        group.ack_ticket(ticket)


@pytest.mark.parametrize("ticket", [None, 7, b"1-0-0-1"])
def test_a_ticket_is_a_text(group: Any, ticket: Any) -> None:
    with pytest.raises(TypeError):
        group.ack_ticket(ticket)

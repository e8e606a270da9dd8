"""What a group has in hand: which member holds which messages, since when, until when, and which
messages wait.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import pytest

import fmq
from fmq.errors import ReadOnly, UnknownGroup
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import PATH

LEASE = 30.0


@pytest.fixture(autouse=True)
def messages(engine: fmq.Engine) -> None:
    engine.send_many("t", [b"%d" % n for n in range(6)])


def rows(engine: Any, group: str = "g") -> list[tuple[str, int, int, str, int, str | None]]:
    return [
        (each.topic, each.offset, each.count, each.state, each.attempt, each.member)
        for each in engine.group(group).in_hand()
    ]


def test_a_group_without_deliveries_has_nothing_in_hand(engine: fmq.Engine) -> None:
    engine.create_group("g", "t")
    assert engine.group("g").in_hand() == []


def test_held_messages_are_listed_with_their_member_process_and_times(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g", member="ann", lease_seconds=LEASE) as ann:
        ann.poll(limit=2)
        clock.advance(5)
        [found] = engine.group("g").in_hand()
        assert (found.topic, found.queue, found.offset, found.count) == ("t", 0, 0, 2)
        assert (found.state, found.attempt, found.member) == ("held", 1, "ann")
        assert (found.host, found.pid, found.address) == (socket.gethostname(), os.getpid(), None)
        assert found.since is not None
        assert found.until is not None
        assert round((found.until - found.since).total_seconds(), 3) == LEASE
        [member] = engine.group("g").members()
        assert (member.host, member.pid) == (found.host, found.pid)
    assert engine.group("g").in_hand() != []  # they wait: closing counts the attempt
    assert all(each.state == "waits" for each in engine.group("g").in_hand())


def test_an_acked_message_is_not_listed_and_a_released_one_waits(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g", member="ann") as ann:
        first, second, third = ann.poll(limit=3)
        first.ack()
        second.release(delay=60)
        assert rows(engine) == [("t", 1, 1, "waits", 1, None), ("t", 2, 1, "held", 1, "ann")]
        waits, _ = engine.group("g").in_hand()
        assert waits.since is None
        assert waits.until is not None
        third.ack()
        clock.advance(61)
        [due] = engine.group("g").in_hand()
        assert (due.state, due.until) == ("waits", None)


@pytest.mark.parametrize("how", ["skip", "purge", "seek"])
@pytest.mark.parametrize("priority", [None, 3])
def test_messages_that_a_group_has_passed_over_do_not_wait_any_more(
    engine: fmq.Engine, how: str, priority: int | None
) -> None:
    """They were given back before that, and no poll has come to them since."""
    engine.send_many("p", [fmq.Message(b"", priority=priority) for _ in range(6)])
    with engine.consumer("p", group="g", member="ann") as ann:
        assert len(ann.poll(limit=5)) == 5
    group = engine.group("g")
    before = sum(each.count for each in group.in_hand())
    if how == "skip":
        group.skip("p", 0, 1, count=2)
    elif how == "purge":
        group.purge("p", offset=3, reason="a test")
    else:
        group.seek("p", queue=0, offset=3)
    left = group.in_hand()
    places = [each.offset + n for each in left for n in range(each.count)]
    # After a seek the group begins again: what comes next is new to it.
    assert (before, places) == (5, {"skip": [0, 3, 4], "purge": [3, 4], "seek": []}[how])
    assert _one_by_one(group) == left


def _one_by_one(group: Any) -> list[fmq.HeldMessages]:
    """Return what the group has in hand by pages of one range."""
    found: list[fmq.HeldMessages] = []
    while page := group.in_hand(limit=1, after=found[-1] if found else None):
        found += page
    return found


def test_an_extended_lease_is_listed_with_its_first_beginning_and_new_end(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g", lease_seconds=LEASE) as consumer:
        [delivery] = consumer.poll(limit=1)
        [before] = engine.group("g").in_hand()
        clock.advance(20)
        delivery.extend(LEASE)
        [after] = engine.group("g").in_hand()
        assert before.since is not None
        assert after.since is not None
        assert before.until is not None
        assert after.until is not None
        assert abs(after.since - before.since) < timedelta(milliseconds=1)
        assert 19 < (after.until - before.until).total_seconds() < 21


def test_two_looks_say_the_same_time_though_clocks_are_read_one_after_the_other(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    """A look reads one clock a little later than the other. A clock that was set counts."""
    with engine.consumer("t", group="g", lease_seconds=LEASE) as consumer:
        held = consumer.poll(limit=1)
        found = []
        for later_us in (0, 700, 3_000, 3_600_000_000):
            clock.set_wall_clock(clock.time_us() + later_us)
            found += engine.group("g").in_hand()
        first, second, third, set_forward = found
        assert first.since is not None
        assert set_forward.since is not None
        assert first == second == third
        assert set_forward.since - first.since > timedelta(minutes=59)
        del held
    info, again = (engine.groups("g")[0] for _ in range(2))
    assert info.oldest is not None
    assert info.oldest == again.oldest
    assert info.behind_seconds > 3600


def test_a_transaction_that_acks_is_named_once_it_is_prepared(engine: fmq.Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        [delivery] = consumer.poll(limit=1)
        tx = engine.transaction(tx_id="pay-1")
        tx.ack(delivery)
        [open_one] = engine.group("g").in_hand()
        assert (open_one.state, open_one.tx_id, open_one.until) == ("transaction", None, None)
        tx.prepare()
        [found] = engine.group("g").in_hand()
        assert (found.state, found.tx_id) == ("transaction", "pay-1")
        tx.commit()
        assert engine.group("g").in_hand() == []


def test_messages_in_hand_wait_after_the_engine_is_opened_again(
    engine: fmq.Engine, disk: CrashDisk, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g") as consumer:
        first, _ = consumer.poll(limit=2)
        first.release(delay=100)
    engine.close()
    with fmq.open(PATH, disk=disk, clock=clock, background=False) as again:
        states = [(each.offset, each.state, each.attempt) for each in again.group("g").in_hand()]
        assert states == [(0, "waits", 1), (1, "waits", 1)]
        assert again.group("g").in_hand()[0].until is not None


def test_pages_of_in_hand_together_list_all_queues_and_topics(engine: fmq.Engine) -> None:
    engine.create_topic("wide", queues=3)
    for number in range(12):
        engine.send("wide", b"", queue=number % 3)
    with engine.consumer(("t", "wide"), group="g") as consumer:
        held = [delivery for _ in range(40) for delivery in consumer.poll(limit=1)]
        assert len(held) == 18
        group = engine.group("g")
        whole = group.in_hand(limit=999)
        found: list[fmq.HeldMessages] = []
        while page := group.in_hand(limit=4, after=found[-1] if found else None):
            assert len(page) <= 4
            found += page
        assert found == whole
        places = [(each.topic, each.queue, each.offset) for each in whole]
        assert places == sorted(places)
        assert sum(each.count for each in whole) == 18


def test_later_messages_of_the_key_of_a_waiting_message_are_behind(engine: fmq.Engine) -> None:
    for _ in range(3):
        engine.send("keys", b"", key="k")
    with engine.consumer("keys", group="g", ordered=True) as consumer:
        first, second, third = consumer.poll(limit=3)
        assert {each.state for each in engine.group("g").in_hand()} == {"held"}
        first.release(delay=100)
        found = {each.offset: each.state for each in engine.group("g").in_hand()}
        assert found == {0: "waits", 1: "behind", 2: "behind"}
        assert (second.offset, third.offset) == (1, 2)


def test_messages_with_priorities_that_were_given_back_are_shown(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    for priority in (0, 9, 5):
        engine.send("p", b"", priority=priority)
    with engine.consumer("p", group="g") as consumer:
        held = [delivery for _ in range(3) for delivery in consumer.poll(limit=1)]
        assert len(held) == 3
        for delivery in held:
            delivery.release()
        clock.advance(1)
        [taken] = consumer.poll(limit=1)
        states = {each.offset: each.state for each in engine.group("g").in_hand()}
        assert states == {n: "held" if n == taken.offset else "waits" for n in range(3)}


def test_replayed_dead_letters_are_shown_under_their_topic(engine: fmq.Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        [delivery] = consumer.poll(limit=1)
        delivery.reject("bad")
        assert engine.dead_letters("g").replay() == 1
        found = [d for _ in range(9) for d in consumer.poll(limit=1)]
        assert len(found) == 6
        shown = engine.group("g").in_hand()
        assert [each.topic for each in shown] == ["t"] * len(shown)
        assert [(each.offset, each.count) for each in shown if each.replayed] == [(0, 1)]


def test_a_deleted_group_is_refused(engine: fmq.Engine) -> None:
    engine.create_group("g", "t")
    group = engine.group("g")
    group.delete()
    with pytest.raises(UnknownGroup):
        group.in_hand()


def test_a_wrong_value_of_the_argument_after_is_refused(engine: fmq.Engine) -> None:
    engine.create_group("g", "t")
    wrong: Any = 7
    with pytest.raises(TypeError, match="the last result of the page before"):
        engine.group("g").in_hand(after=wrong)


def test_an_engine_that_only_reads_says_where_to_ask(
    engine: fmq.Engine, disk: CrashDisk, clock: FakeClock
) -> None:
    engine.create_group("g", "t")
    with fmq.open(PATH, disk=disk, clock=clock, read_only=True) as reader:
        with pytest.raises(ReadOnly, match=r"what 'g' has in hand: ask with fmq\.connect"):
            reader.group("g").in_hand()
        with pytest.raises(ReadOnly, match="knows its clients"):
            reader.clients()

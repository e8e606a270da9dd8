"""group.reject: a message becomes a dead letter of a group that need not have polled it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import OPTIONS, PATH


@pytest.fixture
def group(engine: Engine) -> Any:
    for number in range(5):
        engine.send("t", b"%d" % number, key="k", headers={"h": "v"})
    engine.create_group("g", "t")
    return engine.group("g")


def letters(engine: Engine) -> list[tuple[int, bytes, str, int]]:
    found = engine.dead_letters("g").list()
    return [(each.offset, each.body, each.reason, each.attempts) for each in found]


def info(engine: Engine) -> fmq.GroupInfo:
    (found,) = engine.group("g").infos()
    return found


def test_a_message_that_was_not_polled_becomes_a_dead_letter(engine: Engine, group: Any) -> None:
    group.reject("t", 0, 2, reason="too large")
    assert letters(engine) == [(2, b"2", "too large", 0)]
    (letter,) = engine.dead_letters("g").list()
    assert (letter.key, letter.headers) == ("k", {"h": "v"})
    assert (info(engine).unread, info(engine).skipped) == (4, 0)
    assert [each.offset for each in engine.unread("g", "t")] == [0, 1, 3, 4]


def test_rejecting_what_is_acked_writes_nothing(engine: Engine, group: Any) -> None:
    group.reject("t", 0, 2, reason="once")
    group.ack_below("t", 0, 1)
    before = engine.stats().position
    for offset in (0, 2):
        group.reject("t", 0, offset, reason="again")
    assert engine.stats().position == before
    assert letters(engine) == [(2, b"2", "once", 0)]


def test_a_member_that_has_the_message_in_hand_loses_it(engine: Engine, group: Any) -> None:
    with engine.consumer(group="g", topics="t") as consumer:
        (held,) = consumer.poll(limit=1)
        group.reject("t", 0, 0, reason="hangs")
        with pytest.raises(fmq.LeaseLost):
            held.ack()
    assert letters(engine) == [(0, b"0", "hangs", 1)]


def test_the_dead_letter_says_how_often_the_message_was_tried(engine: Engine, group: Any) -> None:
    with engine.consumer(group="g", topics="t") as consumer:
        (given_back,) = consumer.poll(limit=1)
        given_back.release(delay=60)
        group.reject("t", 0, 0)
    assert letters(engine) == [(0, b"0", "", 1)]


def test_a_replayed_letter_comes_with_its_first_place(engine: Engine, group: Any) -> None:
    group.reject("t", 0, 3, reason="no")
    assert engine.dead_letters("g").replay() == 1
    group.ack_below("t", 0, 5)
    with engine.consumer(group="g", topics="t") as consumer:
        (again,) = consumer.poll(limit=9)
        assert (again.topic, again.offset, again.body) == ("t", 3, b"3")
        again.ack()


def test_reject_by_place_survives_the_process(disk: CrashDisk, clock: FakeClock) -> None:
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        engine.send_many("t", [b"x"] * 3)
        engine.create_group("g", "t")
        engine.group("g").reject("t", 0, 1, reason="no")
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        assert letters(engine) == [(1, b"x", "no", 0)]
        assert info(engine).unread == 2


def test_reject_is_refused_while_a_transaction_acks_the_message(engine: Engine, group: Any) -> None:
    with engine.consumer(group="g", topics="t") as consumer:
        tx = engine.transaction()
        tx.ack(consumer.poll(limit=1)[0])
        tx.prepare()
        with pytest.raises(fmq.StillUndecided):
            group.reject("t", 0, 0)
        tx.rollback()
        group.reject("t", 0, 0)
    assert [each[0] for each in letters(engine)] == [0]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("t", 0, 5), fmq.OffsetBeyond),
        (("t", 1, 0), fmq.BadName),
        (("none", 0, 0), fmq.UnknownGroup),
        (("t", 0, -1), fmq.BadOption),
        (("t", 0, "6"), TypeError),
        ((7, 0, 0), TypeError),
    ],
)
def test_a_place_without_a_message_is_refused(
    engine: Engine, group: Any, given: Any, error: Any
) -> None:
    before = engine.stats().position
    with pytest.raises(error):
        group.reject(*given)
    with pytest.raises(TypeError):
        group.reject("t", 0, 0, reason=7)
    assert engine.stats().position == before


def test_a_message_that_retention_has_dropped_is_refused(clock: FakeClock) -> None:
    options = replace(OPTIONS, retain_bytes=3 * 16 * 1024, keep_unread=False)
    with fmq.open(PATH, options, disk=CrashDisk(), clock=clock) as engine:
        engine.create_topic("t")
        engine.create_group("g", "t")
        while not engine.topic("t").queues()[0].first:
            engine.send("t", bytes(2000))
            engine.checkpoint()
        with pytest.raises(fmq.OffsetGone):
            engine.group("g").reject("t", 0, 0)

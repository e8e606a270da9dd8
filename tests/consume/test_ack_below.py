"""group.ack_below: a program that copies a topic elsewhere says how far it is."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import PATH


@pytest.fixture
def group(engine: Engine) -> Any:
    engine.send_many("t", [b"x"] * 10)
    engine.create_group("g", "t")
    return engine.group("g")


def info(engine: Engine) -> fmq.GroupInfo:
    (found,) = engine.group("g").infos()
    return found


def acked(engine: Engine) -> int:
    counts = engine.stats().counts
    assert counts is not None
    return sum(counts.groups["g"].acked.values())


def test_messages_below_the_offset_count_as_acked(engine: Engine, group: Any) -> None:
    group.ack_below("t", 0, 6)
    assert (info(engine).unread, info(engine).skipped) == (4, 0)
    assert [each.offset for each in engine.unread("g", "t")] == [6, 7, 8, 9]
    group.ack_below("t", 0, 10)
    assert info(engine).unread == 0


def test_an_ack_is_never_taken_back(engine: Engine, group: Any) -> None:
    group.ack_below("t", 0, 6)
    before = engine.stats().position
    for offset in (0, 3, 6):
        group.ack_below("t", 0, offset)
    assert info(engine).unread == 4
    assert engine.stats().position == before, "and nothing is written"


def test_messages_that_were_acked_one_by_one_count_once(engine: Engine, group: Any) -> None:
    with engine.consumer(group="g", topics="t") as consumer:
        first, second, third = consumer.poll(limit=3)
        second.ack()
        counted = acked(engine)
        group.ack_below("t", 0, 2)
        assert acked(engine) == counted + 1
        third.ack()
        assert [each.offset for each in engine.unread("g", "t")] == [3, 4, 5, 6, 7, 8, 9]
        with pytest.raises(fmq.LeaseLost):
            first.ack()


def test_gaps_between_acks_are_acked_together(engine: Engine, group: Any) -> None:
    with engine.consumer(group="g", topics="t") as consumer:
        for each in consumer.poll(limit=6)[1::2]:
            each.ack()
        group.ack_below("t", 0, 6)
    assert [each.offset for each in engine.unread("g", "t")] == [6, 7, 8, 9]


def test_ack_below_survives_the_process(disk: CrashDisk, clock: FakeClock) -> None:
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        engine.send_many("t", [b"x"] * 10)
        engine.create_group("g", "t")
        engine.group("g").ack_below("t", 0, 7)
    with fmq.open(PATH, disk=disk, clock=clock) as engine:
        assert info(engine).unread == 3


def test_ack_below_is_refused_while_a_transaction_with_an_ack_is_undecided(
    engine: Engine, group: Any
) -> None:
    with engine.consumer(group="g", topics="t") as consumer:
        tx = engine.transaction()
        tx.ack(consumer.poll(limit=1)[0])
        tx.prepare()
        with pytest.raises(fmq.StillUndecided):
            group.ack_below("t", 0, 5)
        tx.commit()
        group.ack_below("t", 0, 5)
    assert info(engine).unread == 5


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("t", 0, 11), fmq.OffsetBeyond),
        (("t", 1, 0), fmq.BadName),
        (("none", 0, 0), fmq.UnknownGroup),
        (("t", 0, -1), fmq.BadOption),
        (("t", 0, "6"), TypeError),
        ((7, 0, 0), TypeError),
    ],
)
def test_odd_places_are_refused(engine: Engine, group: Any, given: Any, error: Any) -> None:
    before = engine.stats().position
    with pytest.raises(error):
        group.ack_below(*given)
    assert engine.stats().position == before


def test_create_group_with_exist_ok_leaves_an_existing_group_unchanged(
    engine: Engine, group: Any
) -> None:
    group.ack_below("t", 0, 6)
    engine.create_group("g", "t", at="latest", exist_ok=True)
    assert info(engine).unread == 4
    with pytest.raises(fmq.GroupExists):
        engine.create_group("g", "t")
    with pytest.raises(fmq.FilterDiffers):
        engine.create_group("g", "t", filter=fmq.filters.tags("a"), exist_ok=True)
    engine.create_group("other", "t", at="latest", exist_ok=True)
    assert [each.unread for each in engine.group("other").infos()] == [0]

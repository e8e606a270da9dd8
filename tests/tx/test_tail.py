"""engine.tail: whole appends in the order of the journal, also where much of it is gone."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.testing import CrashDisk, FakeClock
from tests.budget import SEED, within_budget
from tests.conftest import OPTIONS, PATH

TOPICS = {"t": 3, "u": 1, "v": 2}


def drawn(engine: Engine, random: Random, number: int) -> None:
    """Make one append, whose messages say in which one they are."""
    body = b"%d:" % number + bytes(random.choice((0, 20, 700)))

    def fill(send: Any) -> None:
        for _ in range(random.randint(1, 5)):
            topic = random.choice([*TOPICS])
            send(topic, body, queue=random.randrange(TOPICS[topic]))

    way = random.randrange(5)
    if way == 0:
        engine.send(topic := random.choice([*TOPICS]), body, queue=random.randrange(TOPICS[topic]))
    elif way == 1:
        keyed = [fmq.Message(body, key=str(each)) for each in range(random.randint(1, 9))]
        engine.send_many("t", keyed)
    elif way == 2:
        with engine.transaction() as tx:
            fill(tx.send)
    else:
        tx = engine.transaction()
        fill(tx.send)
        tx.prepare()
        tx.commit() if way == 3 else tx.rollback()


def number_of(message: fmq.Message) -> int:
    return int(message.body.split(b":")[0])


def drained(engine: Any, limit: int, topics: Any = None, position: int = 0) -> list[fmq.Message]:
    """Return all that `tail` finds in parts, after checking that no part cuts an append."""
    found: list[fmq.Message] = []
    while True:
        messages, behind = engine.tail(position, topics=topics, limit=limit)
        if not messages:
            return found
        assert behind > position
        if found:
            assert number_of(found[-1]) != number_of(messages[0]), "an append was cut"
        before_last = [each for each in messages if number_of(each) != number_of(messages[-1])]
        assert len(before_last) < limit, "an append more than needed"
        found += messages
        position = behind


@pytest.mark.parametrize("seed", range(SEED, SEED + within_budget(4)))
def test_tail_returns_whole_appends_in_the_order_of_the_journal(engine: Engine, seed: int) -> None:
    """With any limit, the results together are the messages of each queue."""
    random = Random(seed)
    for topic, queues in TOPICS.items():
        engine.create_topic(topic, queues=queues)
    for number in range(120):
        drawn(engine, random, number)
    every = [
        message
        for topic, queues in TOPICS.items()
        for queue in range(queues)
        for message in engine.read(topic, queue=queue, limit=10_000)
    ]
    every.sort(key=lambda each: (each.position, each.offset))
    assert drained(engine, 10_000) == every
    for limit in (1, 7, 100):
        assert drained(engine, limit) == every
        wanted = random.sample([*TOPICS], 2)
        assert drained(engine, limit, wanted) == [each for each in every if each.topic in wanted]
    assert drained(engine, 5, "none") == []


def test_tail_exceeds_its_limit_only_by_the_rest_of_an_append(engine: Engine) -> None:
    engine.send("t", b"0:")
    engine.send_many("t", [b"1:"] * 50)
    engine.send("t", b"2:")
    messages, position = engine.tail(limit=2)
    assert [*map(number_of, messages)] == [0] + [1] * 50
    messages, position = engine.tail(position, limit=2)
    assert [*map(number_of, messages)] == [2]
    assert engine.tail(position) == ([], position)


def test_tail_returns_prepared_messages_after_their_commit(engine: Engine) -> None:
    tx = engine.transaction()
    tx.send("t", b"prepared")
    tx.prepare()
    engine.send("t", b"later")
    messages, position = engine.tail()
    assert [each.body for each in messages] == [b"later"]
    tx.commit()
    assert [each.body for each in engine.tail(position).messages] == [b"prepared"]


def test_tail_returns_no_messages_of_a_topic_from_before_its_deletion(engine: Engine) -> None:
    engine.send_many("t", [b"old"] * 3)
    position = engine.tail(limit=1).position
    engine.send("u", b"other")
    engine.topic("t").delete()
    assert [each.body for each in engine.tail().messages] == [b"other"]
    engine.send("t", b"new")
    found = engine.tail(position).messages
    assert [(each.topic, each.offset, each.body) for each in found] == [
        ("u", 0, b"other"),
        ("t", 0, b"new"),
    ]


def test_tail_leaves_out_messages_older_than_their_topic_keeps(
    engine: Engine, clock: FakeClock
) -> None:
    engine.create_topic("t", retain_seconds=60)
    engine.send("t", b"0")
    clock.advance(50)
    engine.send("t", b"1")
    clock.advance(20)
    engine.send("u", b"u")
    engine.sync()
    assert engine.topic("t").queues()[0].first == 1
    assert [each.offset for each in engine.tail(topics="t").messages] == [1]


def dropped(clock: FakeClock) -> tuple[Engine, int, int]:
    """Return an engine that keeps little, a position that it does not keep, and the end of the
    last segment that it has dropped.
    """
    options = replace(OPTIONS, retain_bytes=3 * 16 * 1024)
    engine = fmq.open(PATH, options, disk=CrashDisk(), clock=clock)
    engine.send("t", bytes(2000))
    early, ends = engine.tail().position, list[int]()
    while engine.stats().first_position == 0:
        engine.send("t", bytes(2000))
        ends.append(engine.tail(ends[-1] if ends else early).position)
        engine.checkpoint()
    first = engine.stats().first_position
    return engine, early, max(end for end in ends if end < first)


def test_tail_refuses_a_position_that_retention_has_dropped(clock: FakeClock) -> None:
    engine, early, end = dropped(clock)
    with engine:
        first = engine.stats().first_position
        with pytest.raises(fmq.PositionGone, match=f"begins at {first} now") as refused:
            engine.tail(early)
        assert (refused.value.position, refused.value.first) == (early, first)
        assert engine.tail().messages[0].offset == engine.topic("t").queues()[0].first


def test_tail_goes_on_from_the_end_of_the_dropped_segments(clock: FakeClock) -> None:
    """A program that has read all of a segment loses nothing when retention drops it."""
    engine, _, end = dropped(clock)
    with engine:
        assert engine.tail(end).messages == engine.tail().messages


def test_tail_of_a_reader_returns_the_same_messages_as_of_an_engine(
    disk: CrashDisk, clock: FakeClock, engine: Engine
) -> None:
    engine.create_topic("t", queues=2)
    for number in range(200):
        engine.send_many("t", [fmq.Message(b"%d:" % number, key=str(key)) for key in range(4)])
    engine.sync()
    with fmq.open(PATH, read_only=True, disk=disk, clock=clock) as reader:
        assert drained(reader, 30) == drained(engine, 10_000)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"position": -1}, fmq.BadOption),
        ({"position": "0"}, TypeError),
        ({"topics": 7}, TypeError),
        ({"topics": ["a\0b"]}, fmq.BadName),
        ({"limit": 0}, fmq.BadOption),
    ],
)
def test_odd_arguments_are_refused(engine: Engine, given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        engine.tail(**given)

"""What only looks works with read_only=True as it does with an engine; the rest is ReadOnly."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.engines.read_only_engine import WRITING
from fmq.errors import ReadOnly, UnknownGroup, UnknownTopic
from fmq.testing import CrashDisk, FakeClock
from tests.read_only.looking import looking
from tests.small import opened


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


OWN = {"damage", "refresh", "visible_to"}
"""What only who follows a journal can say."""
ELSEWHERE = {"serve"}
"""What only the process itself can do that has the directory."""


def test_each_public_name_is_on_each_kind_of_engine() -> None:
    """A new one is looked at by readers, or refused there by name."""
    wanted = public(fmq.Engine)
    assert public(fmq.RemoteEngine) == wanted - ELSEWHERE | {"stop"}
    assert public(fmq.aio.AsyncEngine) == wanted | {"stop"}
    assert public(fmq.ReadOnlyEngine) - OWN == wanted - WRITING
    assert wanted >= WRITING


@pytest.fixture
def engines() -> Iterator[tuple[fmq.Engine, fmq.ReadOnlyEngine]]:
    """An engine over several segments with something of everything, and a reader beside it."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        for number in range(30):
            clock.advance(1)
            engine.send("t", b"%d" % number + b"x" * 200, key=str(number))
        with engine.consumer("t", group="g") as consumer:
            for number, delivery in enumerate(consumer.poll(limit=6)):
                delivery.reject("bad") if number % 2 else delivery.ack()
        for number in range(4):
            engine.send("t" if number % 2 else "u", b"later", delay=100 - number)
        engine.recall(engine.send("t", b"never", delay=50))
        engine.schedule("yearly", "0 0 1 1 *", "u", b"").pause(reason="until spring")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1")
        tx.prepare()
        with looking(disk) as reader:
            yield engine, reader
            engine.checkpoint()
            assert reader.delayed() == engine.delayed()
            engine.send("u", b"x", delay=1)
            assert reader.delayed() == engine.delayed()


def test_a_reader_shows_what_an_engine_shows(
    engines: tuple[fmq.Engine, fmq.ReadOnlyEngine],
) -> None:
    engine, reader = engines
    looks: list[Any] = [
        lambda of: of.delayed(),
        lambda of: of.schedules(),
        lambda of: of.scheduled("yearly").info(),
        lambda of: of.delayed("t", limit=1),
        lambda of: of.dead_letters("g").list(),
        lambda of: [*of.dead_letters("g")],
        lambda of: of.dead_letters("g").count(),
        lambda of: of.dead_letters("g").get(1),
        lambda of: of.unread("g", "t", limit=10),
        lambda of: of.wait({("t", 0): 0, ("none", 0): 0}, timeout=5),
        lambda of: of.tail(limit=2),
        lambda of: of.tail(topics=["t", "none"]),
        lambda of: of.group("g").infos(),
        lambda of: of.topic("t").queues(),
        lambda of: [
            of.offset_at("t", 0, of.read("t")[0].time + timedelta(seconds=seconds))
            for seconds in range(-2, 40, 3)
        ],
    ]
    for look in looks:
        assert look(reader) == look(engine)
        assert look(reader)
    theirs, ours = engine.stats(), reader.stats()
    unknown = {"syncs", "checkpoints", "spares_reserved", "kept", "kept_by", "recovery", "counts"}
    for name in type(ours).__slots__:
        if name not in unknown:
            assert getattr(ours, name) == getattr(theirs, name), name
    assert reader.options.segment_bytes == fmq.Options().segment_bytes


def test_writing_calls_raise_read_only_on_a_reader(
    engines: tuple[fmq.Engine, fmq.ReadOnlyEngine],
) -> None:
    engine, reader = engines
    group, letters, topic = reader.group("g"), reader.dead_letters("g"), reader.topic("t")
    calls: list[Any] = [
        lambda: group.seek("t", to="earliest"),
        lambda: group.skip("t", 0, 1),
        lambda: group.set_filter("t", None),
        group.delete,
        group.members,
        group.former_members,
        letters.replay,
        lambda: letters.purge(all=True),
        lambda: topic.add_queues(1),
        lambda: topic.retain(1),
        topic.delete,
        *(lambda name=name: getattr(reader, name)() for name in WRITING),
    ]
    before = engine.stats().position
    for call in calls:
        with pytest.raises(ReadOnly, match="opened with read_only=True"):
            call()
    assert engine.stats().position == before
    with pytest.raises(UnknownGroup):
        reader.group("nobody")
    with pytest.raises(UnknownGroup):
        reader.dead_letters("nobody")
    with pytest.raises(UnknownTopic):
        reader.topic("nothing")
    with pytest.raises(AttributeError):
        _ = reader.nonsense

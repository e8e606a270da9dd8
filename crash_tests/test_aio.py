"""Coroutines of one loop share syncs, and are crashed wherever that can make a difference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.testing import CrashFailure, World, crash

TASKS = 4
OPTIONS = fmq.Options(segment_bytes=4096, reference_bytes_min=256)
BODY = b"." * 200  # so that a segment ends in the middle


async def tell_story(engine: fmq.aio.AsyncEngine, world: World, *, sync: bool | None) -> None:
    """Let tasks send, commit, ack and pass messages on at the same time, and tell the world which
    calls have returned.
    """

    async def send(number: int) -> None:
        for step in range(3):
            body = b"%d-%d" % (number, step) + BODY
            await engine.send("sent", body, sync=sync)
            world.tell(("sent", body))

    async def commit(number: int) -> None:
        async with engine.transaction(tx_id=f"tx-{number}") as tx:
            tx.send("left", b"%d" % number)
            tx.send("right", b"%d" % number)
        world.tell(("committed", b"%d" % number))

    async def prepare(number: int) -> None:
        tx = engine.transaction(tx_id=f"later-{number}")
        tx.send("left", b"later %d" % number)
        tx.send("right", b"later %d" % number)
        await tx.prepare()
        world.tell(("prepared", tx.tx_id))
        await (tx.commit() if number % 2 else tx.rollback())
        world.tell(("decided", tx.tx_id, number % 2))

    async def pass_on(number: int) -> None:
        async with engine.consumer("work", group="g") as consumer:
            for delivery in await consumer.poll(limit=1):
                async with engine.transaction() as tx:
                    await tx.ack(delivery)
                    tx.send("passed", delivery.body)
                world.tell(("passed", delivery.body))

    async def ack(number: int) -> None:
        async with engine.consumer("work", group="other") as consumer:
            for delivery in await consumer.poll(limit=1):
                await delivery.ack()
                world.tell(("acked", delivery.body))

    await engine.send_many("work", [b"%d" % number for number in range(TASKS)])
    calls = [call(n) for n in range(TASKS) for call in (send, commit, prepare, pass_on, ack)]
    await asyncio.gather(*calls)
    # In a turn of its own, so that no other order waits for the sync.
    await engine.send("sent", b"the last" + BODY, sync=sync)
    world.tell(("sent", b"the last" + BODY))


def workload(engine: fmq.Engine, world: World, *, sync: bool | None = None) -> None:
    asyncio.run(tell_story(fmq.aio.of(engine), world, sync=sync))


def bodies(engine: fmq.Engine, topic: str) -> list[bytes]:
    return [each.body for each in engine.read(topic, limit=1000)]


def check(engine: fmq.Engine, world: World) -> None:
    """Check that every acknowledged call has its effect, that no message is there twice, and that
    each transaction is there as a whole or not at all.
    """
    told: dict[str, list[tuple[Any, ...]]] = {}
    for each in world.told:
        assert isinstance(each, tuple)
        told.setdefault(each[0], []).append(each[1:])
    sent, left, right = (bodies(engine, topic) for topic in ("sent", "left", "right"))
    passed = bodies(engine, "passed")
    assert {body for (body,) in told.get("sent", ())} <= set(sent)
    assert {body for (body,) in told.get("committed", ())} <= set(left)
    assert sorted(left) == sorted(right)
    for found in (sent, left, passed):
        assert len(found) == len(set(found))
    undecided = {each.tx_id for each in engine.undecided()}
    decided: dict[str, bool] = dict(told.get("decided", ()))
    for (tx_id,) in told.get("prepared", ()):
        if tx_id in decided:
            state = "committed" if decided[tx_id] else "rolled back"
            assert engine.outcome(tx_id).state == state
        else:
            assert tx_id in undecided or engine.outcome(tx_id).decided_at is not None
    for kind, group in (("passed", "g"), ("acked", "other")):
        done = {body for (body,) in told.get(kind, ())}
        with engine.consumer("work", group=group) as consumer:
            again = {each.body for each in consumer.poll()}
        assert not done & again
        if group == "g":
            assert not set(passed) & again
            assert done <= set(passed)


def test_each_answer_to_a_loop_is_durable_and_no_call_is_half_done() -> None:
    report = crash(workload, check, options=OPTIONS, states_max=4)
    assert report.points > 10


def test_a_send_on_a_loop_that_returns_before_its_sync_is_caught() -> None:
    """With `sync=False` the call returns before the sync, like a turn that answers too early."""
    too_early: Callable[[fmq.Engine, World], None] = partial(workload, sync=False)
    with pytest.raises(CrashFailure):
        crash(too_early, check, options=OPTIONS, states_max=40)

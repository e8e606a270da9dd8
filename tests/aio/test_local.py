"""An engine of this process on a loop: the results are those of the blocking calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.errors import Closed, LeaseLost, TxIdInUse
from fmq.testing import CrashDisk, FakeClock

Story = Callable[[fmq.aio.AsyncEngine], Awaitable[None]]


@pytest.fixture
def on_loop(engine: fmq.Engine) -> Callable[[Story], None]:
    """Return a function that runs a story on a loop, with a face of the test's engine."""

    def run(story: Story) -> None:
        asyncio.run(story(fmq.aio.of(engine)))  # type: ignore[arg-type]

    return run


def test_sends_of_one_turn_share_a_record_and_keep_their_order(
    on_loop: Any, engine: fmq.Engine
) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        receipts = await asyncio.gather(*[face.send("t", b"%d" % n) for n in range(5)])
        assert [each.offset for each in receipts] == [0, 1, 2, 3, 4]
        assert len({each.position for each in receipts}) == 1

    on_loop(story)
    assert [m.body for m in engine.read("t")] == [b"0", b"1", b"2", b"3", b"4"]


def test_what_cannot_be_joined_keeps_its_place(on_loop: Any, engine: fmq.Engine) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async def in_transaction() -> None:
            async with face.transaction() as tx:
                tx.send("t", b"2")

        await asyncio.gather(
            face.send("t", b"0"),
            face.send("t", b"1", key="k", tag="g", headers={"h": "v"}),
            in_transaction(),
            face.send_many("t", [b"3", b"4"]),
            face.send("t", b"5"),
        )

    on_loop(story)
    assert [m.body for m in engine.read("t")] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert engine.read("t")[1].key == "k"


def test_a_refusal_is_its_callers_alone(on_loop: Any, engine: fmq.Engine) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        found = await asyncio.gather(
            face.send("t", b"fine"),
            face.send("", b"no name"),
            face.send("t", "no bytes"),  # type: ignore[arg-type]
            face.send("t", b"x" * (5 << 20)),
            face.send("t", b"fine, too"),
            return_exceptions=True,
        )
        kinds = [type(each).__name__ for each in found]
        assert kinds == ["Receipt", "BadName", "TypeError", "TooLarge", "Receipt"]

    on_loop(story)
    assert len(engine.read("t")) == 2


def test_a_block_that_raises_rolls_back(on_loop: Any, engine: fmq.Engine) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        with pytest.raises(ZeroDivisionError):
            async with face.transaction(tx_id="mine") as tx:
                tx.send("t", b"never")
                raise ZeroDivisionError
        async with face.transaction(tx_id="mine") as tx:  # the id is free again
            tx.send("t", b"kept")
        assert [each.offset for each in await tx.commit()] == [0]
        with pytest.raises(TxIdInUse):
            await face.transaction(tx_id="mine")

    on_loop(story)
    assert [m.body for m in engine.read("t")] == [b"kept"]


def test_two_phases(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        for end in ("commit", "rollback"):
            tx = face.transaction(tx_id=end, producer="p")
            tx.send("t", b"2")
            await tx.prepare()
            assert [each.tx_id for each in await face.undecided()] == [end]
            await getattr(tx, end)()
        assert (await face.outcome("commit")).state == "committed"
        assert (await face.outcome("rollback")).state == "rolled back"

    on_loop(story)


def test_a_poll_waits_for_a_send_without_a_thread(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async with face.consumer("t", group="g") as consumer:
            poll = asyncio.ensure_future(consumer.poll(timeout=60))
            await asyncio.sleep(0)
            await face.send("t", b"1")
            (delivery,) = await poll
            await delivery.ack()
            with pytest.raises(LeaseLost):
                await delivery.ack()
            assert await consumer.poll() == []

    on_loop(story)


def test_consume_transform_produce(on_loop: Any, engine: fmq.Engine) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("in", [b"1", b"2", b"3"])
        async with face.consumer("in", group="g") as consumer:
            async for delivery in consumer:
                async with face.transaction() as tx:
                    tx.send("out", delivery.body * 2)
                    await tx.ack(delivery)
                if delivery.offset == 2:
                    break
        (info,) = await face.groups("g")
        assert (info.acked_below, info.unread) == (3, 0)

    on_loop(story)
    assert [m.body for m in engine.read("out")] == [b"11", b"22", b"33"]


def test_nothing_is_in_all_tasks_and_nothing_in_the_default_pool(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        loop: Any = asyncio.get_running_loop()
        mine = asyncio.all_tasks()
        await face.send("t", b"1")
        async with face.transaction() as tx:
            tx.send("t", b"2")
        async with face.consumer("t", group="g") as consumer:
            await consumer.poll()
        await face.stats()
        assert asyncio.all_tasks() == mine
        assert loop._default_executor is None

    on_loop(story)


def test_a_closed_engine_answers_each_call_that_waits() -> None:
    async def story() -> None:
        opening = fmq.aio.open("data", disk=CrashDisk(), clock=FakeClock(), background=False)
        async with opening as face, face.consumer("u", group="g") as consumer:
            poll = asyncio.ensure_future(consumer.poll(timeout=60))
            await asyncio.sleep(0)
            sent = asyncio.ensure_future(face.send("t", b"1"))
            await asyncio.sleep(0)
            await face.close()
            assert (await sent).offset == 0
            with pytest.raises(Closed):
                await poll
            with pytest.raises(Closed):
                await face.send("t", b"2")

    asyncio.run(story())

"""Calls on a loop: their results are those of the blocking calls."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.errors import Closed, LeaseLost, TooLarge, TxIdInUse, UnknownGroup, WrongState


def test_sends_of_one_turn_share_a_record_and_keep_their_order(
    on_loop: Any, engine: fmq.Engine
) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        receipts = await asyncio.gather(*[face.send("t", b"%d" % n) for n in range(5)])
        assert [each.offset for each in receipts] == [0, 1, 2, 3, 4]
        assert len({each.position for each in receipts}) == 1

    on_loop(story)
    assert [m.body for m in engine.read("t")] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_send_that_cannot_be_joined_keeps_its_place(on_loop: Any, engine: fmq.Engine) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async def in_transaction() -> None:
            async with face.transaction() as tx:
                tx.send("t", b"2")

        await face.send("t", b"-")  # a client knows the topic from now on
        await asyncio.gather(
            face.send("t", b"0"),
            face.send("t", b"1", key="k", tag="g", headers={"h": "v"}),
            in_transaction(),
            face.send_many("t", [b"3", b"4"]),
            face.send("t", b"5"),
        )

    on_loop(story)
    assert b"".join(m.body for m in engine.read("t")) == b"-012345"
    assert engine.read("t")[2].key == "k"


def test_a_refused_send_fails_only_its_own_caller(on_loop: Any, engine: fmq.Engine) -> None:
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


def test_a_refused_commit_fails_no_other_order_of_its_turn(
    on_loop: Any, engine: fmq.Engine
) -> None:
    """A message with so many headers is refused when its record is made."""

    async def block(face: fmq.aio.AsyncEngine, tx_id: str, headers: int) -> None:
        async with face.transaction(tx_id=tx_id) as tx:
            tx.send("t", tx_id.encode(), headers={str(n): "" for n in range(headers)})

    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send("t", b"-")
        blocks = [block(face, "0", 1), block(face, "1", 2000), block(face, "2", 0)]
        found = await asyncio.gather(*blocks, return_exceptions=True)
        assert [type(each).__name__ for each in found] == ["NoneType", "TooLarge", "NoneType"]
        await block(face, "1", 0)  # its id is free
        tx = face.transaction()
        tx.send("t", b"3", headers={str(n): "" for n in range(2000)})
        with pytest.raises(TooLarge):
            await tx.prepare()
        assert tx.phase.value == "open"
        await tx.rollback()

    on_loop(story)
    assert b"".join(sorted(m.body for m in engine.read("t"))) == b"-012"


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


@pytest.mark.parametrize("tx_id", [None, "named"])
@pytest.mark.parametrize("second", ["commit", "prepare", "rollback"])
def test_a_step_while_another_task_commits_is_refused(
    on_loop: Any, engine: fmq.Engine, second: str, tx_id: str | None
) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        tx = face.transaction(tx_id=tx_id)
        tx.send("t", b"once")
        steps: list[Any] = [tx.commit(), getattr(tx, second)()]
        receipts, refusal = await asyncio.gather(*steps, return_exceptions=True)
        assert type(refusal) is WrongState
        assert receipts == await tx.commit()

    on_loop(story)
    assert len(engine.read("t")) == 1
    assert engine.undecided() == []


def test_a_block_left_while_another_task_commits_follows_that_commit(
    on_loop: Any, engine: fmq.Engine
) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        with pytest.raises(ValueError, match="the block"):
            async with face.transaction() as tx:
                tx.send("t", b"1")
                commit = asyncio.ensure_future(tx.commit())
                await asyncio.sleep(0)
                raise ValueError("the block")
        await commit

    on_loop(story)
    assert len(engine.read("t")) == 1


def test_a_transaction_in_two_phases_is_undecided_until_its_commit(on_loop: Any) -> None:
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


def test_the_transaction_whose_block_runs_is_found(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async with face.transaction() as tx:
            found: Any = fmq.current_transaction(face)
            assert found is tx
            await asyncio.create_task(is_found(tx))
        assert fmq.current_transaction() is None

    async def is_found(tx: object) -> None:
        assert fmq.current_transaction() is tx

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


def test_consuming_and_producing_commit_in_one_transaction(
    on_loop: Any, engine: fmq.Engine
) -> None:
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


def test_asyncio_calls_leave_no_task_and_use_no_default_pool(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        pool: Any = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        mine = asyncio.all_tasks()
        await face.send("t", b"1")
        async with face.transaction() as tx:
            tx.send("t", b"2")
        async with face.consumer("t", group="g") as consumer:
            await consumer.poll()
        await face.stats()
        assert asyncio.all_tasks() == mine
        assert not pool._threads

    on_loop(story)


def test_closing_the_engine_answers_each_waiting_call(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async with face.consumer("u", group="g") as consumer:
            poll = asyncio.ensure_future(consumer.poll(timeout=60))
            read = asyncio.ensure_future(face.read("u", timeout=60))
            await asyncio.sleep(0)
            sent = asyncio.ensure_future(face.send("t", b"1"))
            await asyncio.sleep(0)
            await face.close()
            assert (await sent).offset == 0
            for call in (poll, read, face.send("t", b"2"), consumer.poll(), face.sync()):
                with pytest.raises(Closed):
                    await call

    on_loop(story)


def test_all_properties_of_a_message_arrive(on_loop: Any, engine: fmq.Engine) -> None:
    until = datetime(2100, 1, 1, tzinfo=UTC)

    async def story(face: fmq.aio.AsyncEngine) -> None:
        carried: Any = {"key": "k", "tag": "g", "headers": {"h": "v"}, "priority": 2}
        carried |= {"message_id": "m", "expires_at": until}
        await face.send("t", b"1", **carried)
        async with face.transaction(producer="p") as tx:
            tx.send("t", b"2", **(carried | {"message_id": "n"}))
            tx.mark("place", 7)
        assert (await face.mark("place")) == (7, b"")

    on_loop(story)
    for message in engine.read("t"):
        assert (message.key, message.tag, message.priority) == ("k", "g", 2)
        assert (message.headers, message.expires_at) == ({"h": "v"}, until)


def test_a_topic_with_queues_works_as_in_the_blocking_call(
    on_loop: Any, engine: fmq.Engine
) -> None:
    engine.create_topic("t", queues=3)
    queue = engine.send("t", b"0", key="k").queue

    async def story(face: fmq.aio.AsyncEngine) -> None:
        async with face.transaction() as tx:
            for n in range(1, 7):
                tx.send("t", b"%d" % n)
            tx.send("t", b"7", key="k")
        assert (await face.send("t", b"8", key="k")).queue == queue
        handle = await face.topic("t")
        assert [each.next for each in await handle.queues()] == [
            each.next for each in engine.queues("t")
        ]
        await handle.add_queues(1)

    on_loop(story)
    assert [m.body for m in engine.read("t", queue=queue)][-2:] == [b"7", b"8"]
    assert all(info.next - info.first >= 2 for info in engine.queues("t")[:3])


def test_groups_can_be_listed_and_moved(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("t", [b"1", b"2", b"3"])
        await face.create_group("g", "t", at="latest")
        group = await face.group("g")
        await group.seek("t", to="earliest")
        async with face.consumer("t", group="g") as consumer:
            batch = await consumer.poll_batch()
            assert batch is not None
            assert batch.bodies == (b"1", b"2", b"3")
            assert [each.name for each in await group.members()] == [consumer.member]
            await batch.release()
            again = await consumer.poll_batch()
            assert again is not None
            await again.ack()
        assert [info.unread for info in await group.infos()] == [0]
        assert "group g" in await group.explain()
        await group.delete()
        with pytest.raises(UnknownGroup):
            await face.group("g")

    on_loop(story)


def test_savepoints_and_acks_work_in_a_transaction(on_loop: Any, engine: fmq.Engine) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        await face.send_many("in", [b"1", b"2"])
        async with face.consumer("in", group="g") as consumer, face.transaction() as tx:
            first, second = await consumer.poll()
            await tx.ack(first)
            tx.send("out", b"1")
            back = tx.savepoint()
            await tx.ack(second)
            tx.send("out", b"2")
            await back()
        assert [info.unread for info in await face.groups("g")] == [1]
        with pytest.raises(TypeError):
            await tx.ack("nothing")  # type: ignore[arg-type]

    on_loop(story)
    assert [m.body for m in engine.read("out")] == [b"1"]


def test_a_checker_may_be_a_coroutine(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        tx = await face.transaction(tx_id="x", producer="p", check_after=0)
        tx.send("t", b"1")
        await tx.prepare()

        @face.checker("p")
        async def look(question: fmq.Question) -> fmq.Answer:
            await asyncio.sleep(0)
            return "commit"

        settled = await face.settle(timeout=60)
        assert settled.committed == ("x",)
        assert (await tx.outcome()).state == "committed"

    on_loop(story)


def test_questions_are_asked_and_answered(on_loop: Any) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async with face.transaction(tx_id="x", producer="p", check_after=0) as tx:
            tx.send("t", b"1")
            await tx.prepare()
            (question,) = await face.feedback.ask("p", wait=20)
            assert [m.body for m in question.messages()] == [b"1"]
            outcome = await face.feedback.answer(question, "commit")
            assert outcome is not None
            assert outcome.state == "committed"

        async def local(tx: fmq.Transaction) -> fmq.Answer:
            return "commit"

        sent = await face.send_in_transaction([("t", b"2")], local, producer="p")
        assert sent.state == "committed"
        assert [m.body for m in await face.read("t")] == [b"1", b"2"]

    on_loop(story)

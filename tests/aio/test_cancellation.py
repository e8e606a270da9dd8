"""A call that is cancelled at any of its awaits leaves nothing half done, and holds nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.testing import CrashDisk
from tests.aio.stepping import Stepper

TURNS = range(40)
Make = Callable[[fmq.aio.AsyncEngine], Any]
Cancelled = tuple[Callable[[], Any], Callable[[], bool]]


@pytest.fixture(params=["open", "committer", "connect"])
def engine(request: Any, tmp_path: Path) -> Iterator[fmq.Engine]:
    """An engine: the loop writes, its committer does, or another process would."""
    if request.param == "open":
        with fmq.open("data", disk=CrashDisk(), background=False) as engine:
            yield engine
        return
    with fmq.open(tmp_path / "data", fmq.Options(segment_bytes=1 << 20)) as engine:
        if request.param == "connect":
            engine.serve()
        yield engine


@pytest.fixture
def stepper() -> Iterator[Stepper]:
    stepper = Stepper()
    yield stepper
    stepper.close()


@pytest.fixture
def face(engine: fmq.Engine, stepper: Stepper, request: Any) -> Iterator[fmq.aio.AsyncEngine]:
    which = request.node.callspec.params["engine"]

    async def begin() -> fmq.aio.AsyncEngine:
        if which == "connect":
            found: fmq.aio.AsyncEngine = await fmq.aio.connect(engine.path, start=False)
            await found.send("known", b"")
            return found
        face = fmq.aio.of(engine)
        if which == "committer":
            face._door.side.turn.writer.pace.turns_left = 1 << 30
        return face

    face = stepper.run(begin())
    yield face
    if which == "connect":
        stepper.run(face.close())


async def consumer_of(face: fmq.aio.AsyncEngine) -> fmq.aio.AsyncConsumer:
    return face.consumer("known", group="g")


def note_of(task: Any) -> str:
    """Run the task's error up, and return its notes."""
    with pytest.raises(asyncio.CancelledError) as raised:
        task.result()
    return "".join(getattr(raised.value, "__notes__", ()))


def test_a_cancelled_send_is_written_and_reported_or_not_written(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper
) -> None:
    ended = 0
    for turns in TURNS:
        before = len(engine.read("known", limit=9999))
        task = stepper.cancel_after(turns, lambda: face.send("known", b"x"))
        written = len(engine.read("known", limit=9999)) - before
        if not task.cancelled():
            assert written == 1
            ended += 1
            if ended > 2:
                break
            continue
        assert written == ("cannot be taken back" in note_of(task))
    assert ended


def test_a_cancelled_block_commits_or_rolls_back(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper
) -> None:
    async def story() -> None:
        async with face.transaction(tx_id=name) as tx:
            tx.send("known", b"1")
            tx.send("known", b"2")

    ended = 0
    for turns in TURNS:
        name = f"tx-{turns}"
        before = len(engine.read("known", limit=9999))
        task = stepper.cancel_after(turns, story)
        written = len(engine.read("known", limit=9999)) - before
        if task.cancelled():
            assert written == (2 if "cannot be taken back" in note_of(task) else 0)
        else:
            ended += 1
            assert written == 2
        if written:
            assert engine.outcome(name).state == "committed"
        else:
            with engine.transaction(tx_id=name):
                pass  # its id is free
        if ended > 2:
            break
    assert ended


def test_a_cancelled_poll_holds_no_message(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper
) -> None:
    """A message arrives at each turn of a poll that is cancelled. The next poll gets it, as
    untried.
    """

    async def other(timeout: float = 60.0) -> int:
        found = await consumer.poll(timeout=timeout)
        for each in found:
            assert each.attempt == 1
            await each.ack()
        return len(found)

    consumer = stepper.run(consumer_of(face))
    stepper.run(other(0.0))  # joins, and takes what was sent before
    stepper.run(face.send("known", b"-"))
    stepper.run(other())
    for turns in range(1, 9):
        for sent_at in range(max(turns - 3, 0), min(turns + 1, 6)):
            task = stepper.loop.create_task(consumer.poll(timeout=60))
            for turn in range(turns):
                if turn == sent_at:
                    engine.send("known", b"x")
                stepper.turn()
            if turns <= sent_at:
                engine.send("known", b"x")
            task.cancel()
            stepper.finish(task)
            if task.cancelled():
                assert stepper.run(other()) == 1
            else:
                for each in task.result():
                    stepper.run(each.ack())
    assert engine.groups("g")[0].unread == 0
    stepper.run(consumer.close())


def test_a_cancelled_ack_is_written_or_leaves_the_message_held(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper
) -> None:
    consumer = stepper.run(consumer_of(face))
    for each in stepper.run(consumer.poll()):
        stepper.run(each.ack())
    for turns in range(8):
        engine.send("known", b"x")
        (delivery,) = stepper.run(consumer.poll(timeout=60))
        task = stepper.cancel_after(turns, delivery.ack)
        if task.cancelled() and "cannot be taken back" not in note_of(task):
            stepper.run(delivery.ack())
        assert engine.groups("g")[0].unread == 0
    stepper.run(consumer.close())


class Calls:
    """Calls that are cancelled. Each method makes what its call needs, and returns the call and a
    function that says whether the call has had its effect.
    """

    def __init__(self, engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper) -> None:
        self.engine, self.face, self.run = engine, face, stepper.run
        self.number = 0
        engine.send("known", b"-")
        self.consumer = self.run(consumer_of(face))
        self._ack_all()

    def _ack_all(self) -> None:
        for each in self.run(self.consumer.poll(limit=1000)):
            self.run(each.ack())

    def _delivery(self) -> Any:
        self._ack_all()
        self.engine.send("known", b"x")
        (delivery,) = self.run(self.consumer.poll(timeout=60))
        return delivery

    def take(self) -> Cancelled:
        self._ack_all()
        self.engine.send("known", b"x")
        return self.consumer.take, lambda: not self.engine.groups("g")[0].unread

    def release(self) -> Cancelled:
        delivery = self._delivery()
        return delivery.release, lambda: delivery.is_settled

    def extend(self) -> Cancelled:
        delivery = self._delivery()
        again: list[Any] = []

        def is_redelivered() -> bool:
            again.extend(again or self.run(self.consumer.poll(timeout=0.02)))
            return bool(again)

        return lambda: delivery.extend(0.001), is_redelivered

    def reject(self) -> Cancelled:
        delivery = self._delivery()
        letters = self.engine.dead_letters("g")
        before = letters.count()
        return lambda: delivery.reject("why"), lambda: letters.count() == before + 1

    def replay(self) -> Cancelled:
        self.run(self._delivery().reject("why"))
        letters = self.run(self.face.dead_letters("g"))
        return letters.replay, lambda: self.engine.dead_letters("g").count() == 0

    def seek(self) -> Cancelled:
        self._ack_all()
        group = self.run(self.face.group("g"))
        unread = lambda: self.engine.groups("g")[0].unread  # noqa: E731
        return lambda: group.seek("known", offset=0), lambda: unread() > 0

    def decide(self) -> Cancelled:
        self.number += 1
        name = f"tx-{self.number}"
        tx = self.engine.transaction(tx_id=name)
        tx.send("known", b"x")
        tx.prepare()
        outcome = self.engine.outcome
        return lambda: self.face.decide(name, "commit"), lambda: outcome(name).state == "committed"

    def recall(self) -> Cancelled:
        receipt = self.engine.send("later", b"x", delay=1000.0)
        waits = self.engine.delayed
        return lambda: self.face.recall(receipt), lambda: receipt not in waits("later")


@pytest.mark.parametrize("name", [name for name in vars(Calls) if not name.startswith("_")])
def test_a_cancelled_call_is_carried_out_and_reported_or_can_be_repeated(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper, name: str
) -> None:
    calls = Calls(engine, face, stepper)
    ended = 0
    for turns in TURNS:
        call, is_done = getattr(calls, name)()
        assert not is_done()
        task = stepper.cancel_after(turns, call)
        if task.cancelled():
            assert is_done() == ("it is done" in note_of(task))
        else:
            ended += 1
            task.result()
        if not is_done():
            stepper.run(call())
            assert is_done()
        if ended > 1:
            break
    assert ended
    stepper.run(calls.consumer.close())


def test_a_commit_after_one_that_was_cancelled_returns_its_receipts(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper
) -> None:
    async def begun(*, prepares: bool) -> fmq.aio.AsyncTransaction:
        tx = face.transaction()
        tx.send("known", b"1")
        if prepares:
            await tx.prepare()
        return tx

    for prepares in (False, True):
        for turns in TURNS:
            tx = stepper.run(begun(prepares=prepares))
            task = stepper.cancel_after(turns, tx.commit)
            assert [each.count for each in stepper.run(tx.commit())] == [1]
            if not task.cancelled():
                break


def test_a_cancelled_block_that_prepares_is_undecided_or_has_ended(
    engine: fmq.Engine, face: fmq.aio.AsyncEngine, stepper: Stepper
) -> None:
    async def story() -> None:
        async with face.transaction(tx_id=name) as tx:
            tx.send("known", b"1")
            await tx.prepare()

    ended = 0
    for turns in TURNS:
        name = f"tx-{turns}"
        before = len(engine.read("known", limit=9999))
        task = stepper.cancel_after(turns, story)
        written = len(engine.read("known", limit=9999)) - before
        undecided = name in [each.tx_id for each in engine.undecided()]
        if task.cancelled():
            note = note_of(task)
            assert undecided == ("stays undecided" in note)
            assert written == ("cannot be taken back" in note and not undecided)
        else:
            ended += 1
            assert written == 1
        if undecided:
            engine.decide(name, "rollback")
        elif written:
            assert engine.outcome(name).state == "committed"
        else:
            with engine.transaction(tx_id=name):
                pass  # its id is free
        if ended > 1:
            break
    assert ended


def test_a_timeout_ends_each_wait(face: fmq.aio.AsyncEngine, stepper: Stepper) -> None:
    async def story() -> None:
        async with face.consumer("quiet", group="g") as consumer:
            for call in (consumer.poll, lambda timeout: face.read("quiet", timeout=timeout)):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await call(timeout=60)
            assert await consumer.poll() == []

    stepper.run(story())


def test_anyio_cancels_at_each_await(face: fmq.aio.AsyncEngine, stepper: Stepper) -> None:
    anyio = pytest.importorskip("anyio")

    async def story() -> None:
        async with face.consumer("known", group="g") as consumer:
            for each in await consumer.poll():
                await each.ack()
            with anyio.move_on_after(0.02) as scope:
                await consumer.poll(timeout=60)
            assert scope.cancelled_caught
            with anyio.CancelScope() as scope:
                scope.cancel()
                await face.send("known", b"never")
            sent = asyncio.ensure_future(face.send("known", b"x"))
            assert [each.body for each in await consumer.poll(timeout=60)] == [b"x"]
            await sent

    stepper.run(story())

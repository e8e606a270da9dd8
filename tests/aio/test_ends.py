"""An engine that fails, a loop that closes, a process that dies: each await ends exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.errors import Closed, EngineFailed, Locked, NotServed, OutcomeUnknown, WrongState
from fmq.testing import CrashDisk, FaultDisk
from fmq.tx.commands.sender import SendArguments


def test_a_failed_engine_fails_each_await_once() -> None:
    disk = FaultDisk(CrashDisk())

    async def story() -> None:
        async with fmq.aio.open("data", disk=disk, background=False) as engine:
            await engine.send("t", b"kept")
            async with engine.consumer("u", group="g") as consumer:
                poll = asyncio.ensure_future(consumer.poll(timeout=60))
                await asyncio.sleep(0)
                disk.fail("write", names="*.seg")
                calls = [
                    engine.send("t", b"1"),
                    engine.send_many("t", [b"2"]),
                    engine.send("u", b""),
                ]
                found = await asyncio.gather(*calls, return_exceptions=True)
                assert [type(each) for each in found] == [EngineFailed] * 3
                assert len({id(each) for each in found}) == 3
                with pytest.raises(EngineFailed):
                    await poll
                with pytest.raises(EngineFailed):
                    await engine.send("t", b"3")
                assert [each.body for each in await engine.read("t")] == [b"kept"]

    asyncio.run(story())


def test_a_loop_that_closes_leaves_the_engine_to_others(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "data") as engine:
        face = fmq.aio.of(engine)

        async def story() -> None:
            consumer = face.consumer("t", group="g")
            waits = asyncio.ensure_future(consumer.poll(timeout=60))
            await asyncio.sleep(0.05)
            waits.cancel()
            face._door.side.send("t", b"on its way", SendArguments(*[None] * 8), None, None, None)

        for _ in range(3):
            asyncio.run(story())
            engine.send("t", b"x")  # wakes the poll of a loop that is closed
        assert len(engine.read("t")) >= 3


def test_several_loops_in_several_threads_share_one_client(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "data") as engine:
        engine.serve()
        remote = fmq.connect(engine.path, start=False)
        failures: list[BaseException] = []

        def work(shared: Any, number: int) -> None:
            async def story() -> None:
                face = fmq.aio.of(shared)
                async with face.consumer(f"t{number}", group="g") as consumer:
                    for n in range(20):
                        await asyncio.gather(*[face.send(f"t{number}", b"%d" % n)] * 1)
                        (delivery,) = await consumer.poll(timeout=60)
                        await delivery.ack()
                face._door.side.end()

            try:
                asyncio.run(story())
            except BaseException as error:
                failures.append(error)

        shared = [engine, engine, remote, remote]
        threads = [
            threading.Thread(target=work, args=pair) for pair in zip(shared, range(4), strict=True)
        ]
        for each in threads:
            each.start()
        for n in range(20):
            remote.send("blocking", b"%d" % n)  # beside them, by a thread without a loop
        for each in threads:
            each.join(60)
            assert not each.is_alive()
        assert failures == []
        assert sum(info.next for info in engine.queues()) == 100
        remote.close()


def test_a_loop_refuses_objects_of_another_loop(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "data") as engine:
        face = fmq.aio.of(engine)
        first = asyncio.new_event_loop()
        first.run_until_complete(face.send("t", b"1"))
        with pytest.raises(WrongState):
            asyncio.run(face.send("t", b"2"))
        first.close()
        asyncio.run(face.send("t", b"2"))
        assert len(engine.read("t")) == 2


def test_a_lazy_connection_is_made_while_a_module_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "data"
    face = fmq.aio.connect(path, lazy=True, start=False, retry_for=5.0)

    async def refused() -> None:
        with pytest.raises(NotServed):
            await face.send("t", b"1")

    asyncio.run(refused())
    with fmq.open(path) as engine:
        engine.serve()

        async def story() -> None:
            await face.send("t", b"1")
            async with face.transaction() as tx:
                tx.send("t", b"2")
            await face.close()
            with pytest.raises(Closed):
                await face.send("t", b"3")

        asyncio.run(story())
        assert len(engine.read("t")) == 2


def test_a_server_that_is_killed_is_started_again_and_nothing_is_lost_or_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data"

    async def story() -> None:
        async with fmq.aio.connect(path) as engine:
            await engine.send("t", b"0")
            for kill in range(3):
                pid = await asyncio.to_thread(server_of, path)
                sends = [engine.send("t", b"%d-%d" % (kill, n)) for n in range(50)]
                waits = asyncio.gather(*sends)
                await asyncio.sleep(0)
                os.kill(pid, signal.SIGKILL)
                assert len(await waits) == 50
            bodies = [each.body for each in await engine.read("t", limit=1000)]
            assert len(bodies) == len(set(bodies)) == 151

    asyncio.run(story())


def server_of(path: Path) -> int:
    """The pid of the process that serves."""
    try:
        fmq.open(path).close()
    except Locked as locked:
        return int("".join(filter(str.isdigit, str(locked.holder))))
    raise AssertionError("nobody serves")


def test_a_server_that_is_gone_for_good_is_an_error_of_each_call(tmp_path: Path) -> None:
    path = tmp_path / "data"

    async def story() -> None:
        engine = fmq.open(path)
        engine.serve()
        async with fmq.aio.connect(path, start=False, retry_for=5.0) as face:
            await face.send("t", b"1")
            poll = asyncio.ensure_future(face.read("quiet", timeout=60))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(engine.close)
            with pytest.raises((NotServed, OutcomeUnknown)):
                await face.send("t", b"2")
            with pytest.raises(NotServed):
                await poll

    asyncio.run(story())

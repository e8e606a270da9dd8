"""A poll that is cancelled gives back what it had found, and may have to say so again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import fmq
from fmq.aio.loop_engine import AsyncEngine
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AtOnce, LoopInMemory, RingingWire
from fmq.testing.transport import MemoryServer
from fmq.wire.frames import HEAD, Op


class Swallowing(MemoryServer):
    """Serves what arrives, and sends no answer while it swallows them."""

    swallows = False
    asked = 0  # the last request

    def deliver(self, session: Session, data: bytes) -> None:
        self.asked = HEAD.unpack_from(data)[1]
        if self.swallows:
            session._send = lambda _: None
        super().deliver(session, data)


def test_a_lost_answer_that_no_caller_waits_for_is_not_logged() -> None:
    """The messages were given back, the answer was lost, and the repeated request is refused: they
    are held no more. The caller had its CancelledError, so the loop has nothing to log.
    """
    clock = FakeClock()
    with fmq.open("data", disk=CrashDisk(), clock=clock, background=False) as engine:
        server = Swallowing(engine, clock)
        wires: list[Any] = []

        def dial() -> Any:
            wires.append(RingingWire(server))
            return wires[-1]

        loop = LoopInMemory(clock, server.loop)
        logged: list[Any] = []
        loop.set_exception_handler(lambda _, context: logged.append(context))
        what = "memory", dial, server.draw, clock, 30.0
        face = AsyncEngine(RemoteEngine(LinkDoor(*what, background=False)))

        async def told() -> list[bytes]:
            face._door.use(loop, AtOnce(loop))
            await face.send("t", b"found")
            async with face.consumer("t", group="g") as consumer:
                poll = asyncio.ensure_future(consumer.poll())
                await until(lambda: server.asked == Op.POLL)
                poll.cancel()
                server.swallows = True
                await until(lambda: server.asked == Op.RELEASE)
                assert poll.cancelled()
                server.swallows = False
                wires[-1].session.ended()
                wires[-1].cut()
                return [each.body for each in await consumer.poll()]

        assert loop.finish(told()) == [b"found"]
        assert len(wires) == 2
        gc.collect()
        assert not logged
        loop.close()


async def until(seen: Callable[[], bool]) -> None:
    while not seen():
        await asyncio.sleep(0)

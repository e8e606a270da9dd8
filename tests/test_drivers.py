"""A call that waits, carried out by a thread, by a loop and by a server: the same rules."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.engines.engine import Engine
from fmq.machine.disk import Disk
from fmq.server.client_call import ClientCall
from fmq.steps.call_steps import Arrival, Durable, Notify, Steps
from fmq.steps.thread_driver import drive
from fmq.store.journal.attempt_page import ATTEMPTS
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from fmq.wire.frames import FAILED, Frame, Op
from fmq.wire.values import decode_error
from tests.remote.hostile import Hostile
from tests.small import opened
from tests.store.sharing import Gate, GatedDisk

Run = Callable[[Engine, FakeClock, Steps[bytes]], bytes]


def by_thread(engine: Engine, clock: FakeClock, call: Steps[bytes]) -> bytes:
    return drive(call, inside(engine).commit_queue, clock)


def by_loop(engine: Engine, clock: FakeClock, call: Steps[bytes]) -> bytes:
    async def run() -> bytes:
        door: Any = fmq.aio.of(engine)._door
        found: bytes = await door.side._driver.drive(call)
        return found

    return asyncio.run(run())


def by_server(engine: Engine, clock: FakeClock, call: Steps[bytes]) -> bytes:
    server = MemoryServer(engine, clock)
    client = Hostile(server)
    client.hello()
    client.session.load.asked(0)
    ClientCall(client.session, Frame(Op.ASK, 0, 0, 9, b""), None, call).go_on()
    while client.answers[-1].request != 9:
        client.session.host.served()
        server.loop.step()
    answer = client.answers[-1]
    server.close()
    if answer.flags & FAILED:
        raise decode_error(answer.payload)
    return answer.payload


@pytest.fixture(params=[by_thread, by_loop, by_server])
def run(request: Any) -> Callable[[Steps[bytes]], bytes]:
    def run(call: Steps[bytes]) -> bytes:
        clock = FakeClock()
        with opened(CrashDisk(), clock) as engine:
            found: bytes = request.param(engine, clock, call)
            return found

    return run


def test_a_call_looks_again_once_it_listens(run: Callable[[Steps[bytes]], bytes]) -> None:
    """What comes between the look and the listening wakes nothing, and is found all the same."""
    events: list[str] = []

    def listen(notify: Notify) -> float:
        events.append("listens")
        return 1e9

    def call() -> Steps[bytes]:
        while True:
            events.append("looks")
            if "listens" in events:
                return b"found"
            yield Arrival(listen, lambda notify: events.append("stops"), 1e9)

    assert run(call()) == b"found"
    assert events == ["looks", "listens", "looks", "stops"]


def test_a_call_that_is_woken_looks_and_then_listens_anew(
    run: Callable[[Steps[bytes]], bytes],
) -> None:
    heard: list[Notify] = []

    def listen(notify: Notify) -> float:
        heard.append(notify)
        return 1e9

    def call() -> Steps[bytes]:
        for look in range(4):
            if look % 2 and len(heard) > look // 2:
                heard[-1]()  # by another thread, as a look ends
            yield Arrival(listen, lambda notify: None, 1e9)
        return b"%d" % len(heard)

    assert run(call()) == b"2"


def test_a_call_gets_the_answer_of_its_plan_and_its_refusal(
    run: Callable[[Steps[bytes]], bytes],
) -> None:
    def refuse(what: bytes) -> bytes:
        raise fmq.BadOption("refused")

    def call() -> Steps[bytes]:
        first = yield Durable(lambda what: what * 2, b"a")
        ahead = yield Durable(lambda what: what * 2, b"b", ahead=True)
        try:
            yield Durable(refuse, b"")
        except fmq.BadOption:
            work = yield lambda: b"c"
        return bytes(first + ahead + work)

    assert run(call()) == b"aabbc"


def test_a_request_that_is_woken_while_its_look_is_written_looks_once_more() -> None:
    """No later wake-up would come: the listener that it had was used up by this one."""
    heard: list[Notify] = []
    clock = FakeClock()

    def listen(notify: Notify) -> float:
        heard.append(notify)
        return 1e9

    def call() -> Steps[bytes]:
        arrival = Arrival(listen, lambda notify: None, 1e9)
        yield arrival
        yield Durable(lambda what: what)
        yield arrival
        return b"%d" % len(heard)

    with opened(CrashDisk(), clock) as engine:
        server = MemoryServer(engine, clock)
        client = Hostile(server)
        client.hello()
        client.session.load.asked(0)
        ClientCall(client.session, Frame(Op.ASK, 0, 0, 9, b""), None, call()).go_on()
        heard[0]()  # as a message, or its consumer drains
        server.loop.step()
        for _ in range(9):
            client.session.host.served()
            server.loop.step()
        assert [(each.request, each.payload) for each in client.answers[1:]] == [(9, b"2")]
        server.close()


def poll_beside_a_sync(disk: Disk, seen: Callable[[Engine, asyncio.Future[Any]], bool]) -> None:
    """Poll on a loop while another thread syncs. That sync ends once `seen` is true."""
    arrived = Event()
    gate = Gate(arrived.set, only_syncs=True)

    async def story(engine: fmq.Engine, sender: Thread) -> None:
        # A loop in this mode refuses calls of other threads that would not wake it.
        asyncio.get_running_loop().set_debug(True)
        async with fmq.aio.of(engine).consumer("t", group="g") as consumer:
            gate.shut()
            sender.start()
            assert arrived.wait(60)
            try:
                async with asyncio.timeout(20):
                    poll = asyncio.ensure_future(consumer.poll())
                    while not seen(engine, poll):
                        await asyncio.sleep(0)
            finally:
                gate.open()
            (delivery,) = await asyncio.wait_for(poll, 20)
            await delivery.ack()

    with fmq.open("data", disk=GatedDisk(disk, gate), clock=FakeClock()) as engine:
        engine.send("t", b"1")
        sender = Thread(target=engine.send, args=("other", b"2"))
        asyncio.run(story(engine, sender))
        sender.join()


def test_a_poll_on_a_loop_waits_for_no_sync_of_another_thread() -> None:
    poll_beside_a_sync(CrashDisk(), lambda engine, poll: poll.done())


def test_a_poll_on_a_loop_goes_on_once_another_thread_has_written_its_attempt() -> None:
    """The attempt is a record, as there is no page for it."""
    disk: Any = FaultDisk(CrashDisk())
    disk.fail("create", names=f"*/{ATTEMPTS}", error=errno.ENOSPC, persistently=True)
    poll_beside_a_sync(disk, lambda engine, poll: bool(inside(engine).journal.pending.waiters))

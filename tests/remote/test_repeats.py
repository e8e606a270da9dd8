"""A request is carried out once, wherever the connection breaks and whichever process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from fmq import Engine, Message, Options, codecs, filters
from fmq.aio.loop_engine import AsyncEngine
from fmq.consume.calls.consumer import member_of
from fmq.consume.calls.workers import next_delivery
from fmq.consume.claims.delivery import Deliveries
from fmq.faces.table import GROUP_CHANGES, IN_STEPS, RECALL
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AtOnce, LoopInMemory, RingingWire
from fmq.testing.transport import MemoryServer
from tests.small import bodies, check, opened

Work = Callable[[RemoteEngine], Any]


def send(client: RemoteEngine) -> Any:
    return client.send("t", b"1")


def send_many(client: RemoteEngine) -> Any:
    return client.send_many("wide", [b"1", b"2", b"3"], queue=2)


def send_with_ids(client: RemoteEngine) -> Any:
    """One of them is there twice, and is left out."""
    return client.send_many("t", [Message(b"%d" % len(each), message_id=each) for each in "aab"])


def commit(client: RemoteEngine) -> Any:
    with client.transaction(tx_id="T") as tx:
        tx.send("t", b"1")
        tx.send("u", b"2")
        tx.mark("m", 1, expect=-1)
    return tx.commit()


def two_phases(client: RemoteEngine) -> Any:
    with client.transaction() as tx:
        tx.send("t", b"1")
        tx.prepare()
    return tx.commit()


def consume(client: RemoteEngine) -> Any:
    client.send("t", b"1")
    with client.consumer("t", group="g") as consumer:
        for delivery in consumer.poll():
            delivery.ack()
    return client.groups("g")


def consume_broadcast(client: RemoteEngine) -> Any:
    """Consume as a broadcast member. Its group has an internal name, not that of the program."""
    client.send("t", b"0")
    with client.consumer("t", group="g", member="m", broadcast=True) as consumer:
        client.send_many("t", [b"1", b"2", b"3", b"4"])
        taken = consumer.poll(limit=4)
        Deliveries(member_of(consumer), taken[::2]).ack()
        for each in taken[1:2]:
            each.ack()
        for each in taken[3:]:
            each.reject("no")


def consume_with_gaps(client: RemoteEngine) -> Any:
    client.send_many("t", [b"1", b"2", b"3", b"4", b"5"])
    with client.consumer("t", group="g") as consumer:
        (batch,) = islice(consumer.batches(5, 20), 1)
        batch[:] = [each for each in batch if each.offset not in (1, 3)]
        batch.ack()
    return client.groups("g")


def advance(client: RemoteEngine) -> Any:
    """Do what `run` does in one of its threads."""
    client.send_many("t", [b"1", b"2", b"3"])
    with client.consumer("t", group="g") as consumer:
        done = None
        for _ in range(3):
            done = next_delivery(member_of(consumer), done)
        assert done is not None
        done.ack()
    return client.groups("g")


def take(client: RemoteEngine) -> Any:
    client.send_many("t", [b"1", b"2", b"3"])
    with client.consumer("t", group="g") as consumer:
        taken = [*consumer.take(limit=2), *consumer.take(), *consumer.take()]
        assert [each.body for each in taken] == [b"1", b"2", b"3"]
    return client.groups("g")


def change(client: RemoteEngine) -> Any:
    """Change groups and topics: twice is another thing than once, or an error."""
    topic = client.create_topic("x", queues=1)
    topic.add_queues(2)
    topic.retain(60.0)
    client.send_many("x", [b"1", b"2", b"3"], queue=1)
    client.create_group("g", "x", at="latest")
    client.group("g").seek("x", queue=1, offset=0)
    client.group("g").skip("x", 1, 1)
    client.group("g").ack_below("x", 1, 1)
    client.group("g").reject("x", 1, 2, reason="no")
    client.create_group("old", "x")
    client.group("old").delete()
    client.create_topic("y")
    client.topic("y").delete()


def change_more(client: RemoteEngine) -> Any:
    """Change all else that a client may: options, filters, pauses, schedules."""
    client.configure(Options(lease_seconds=7.0))
    client.topic("typed", codec=codecs.json())
    client.create_group("g2", "t")
    group = client.group("g2")
    group.set_filter("t", filters.tags("paid"))
    group.pause(reason="stop")
    group.limit(concurrency=3, reason="slow")
    group.resume(reason="go on")
    client.send("t", b"1")
    group.purge("t", to="latest", reason="old")
    schedule = client.schedule("daily", "0 0 * * *", "t", b"tick")
    schedule.pause(reason="stop")
    schedule.resume(reason="go on")
    schedule.run_now(reason="now")
    schedule.remove(reason="done")
    receipt = client.send("t", b"late", delay=1e6)
    assert client.recall(receipt)


def harmless(client: RemoteEngine) -> Any:
    """Ask for each change of IN_STEPS. A client repeats it like a look."""
    tx = client.transaction(tx_id="T")
    with tx:
        tx.send("t", b"1")
        tx.prepare()
    client.decide("T", "commit")
    tx = client.transaction(tx_id="U")
    tx.send("t", b"1")
    tx.prepare()
    client.decide_many(["U"], "commit", mark=("m", 1, -1))
    client.send_many("t", [b"2", b"3", b"4", b"5", b"6"])
    client.erase("t", 0, 1)
    client.sync()
    client.checkpoint()
    with client.consumer("t", group="g", member="m") as consumer:
        consumer.poll(limit=1)[0].reject("bad")
        consumer.poll(limit=1)[0].reject("bad")
        dead = client.dead_letters("g")
        dead.replay(0)
        dead.purge(1)
        tickets = [each.ticket for _ in range(3) for each in consumer.poll(limit=1)]
        client.group("g").ack_ticket(tickets[0])
        client.group("g").release_ticket(tickets[1], delay=1e6)
        client.group("g").reject_ticket(tickets[1], reason="no")
        client.group("g").release("m", reason="it hangs")
        client.group("g").put_out("m", reason="it hangs")


WORKS = [
    harmless,
    change_more,
    send,
    send_many,
    send_with_ids,
    commit,
    two_phases,
    consume,
    consume_broadcast,
    consume_with_gaps,
    advance,
    take,
    change,
]


def found_in(engine: Engine) -> dict[str, Any]:
    """Return what the works have left."""
    found: dict[str, Any] = {topic: bodies(engine, topic) for topic in ("t", "u")}
    found["wide"] = bodies(engine, "wide", 2)
    found["queues"] = engine.queues()
    # What `consume` had in work when the process was killed is held back for a moment.
    found["groups"] = [info for info in engine.groups() if info.topic == "x"]
    return found


def test_each_change_that_a_client_may_ask_for_is_made_by_a_work() -> None:
    """A new call of a table needs a work here, which shows that a repeat does no harm."""
    asked: set[str] = set()

    class Noting(LinkDoor):
        def change(self, name: str, *args: Any, **named: Any) -> Any:
            asked.add(name)
            return super().change(name, *args, **named)

    for work in WORKS:
        clock = FakeClock()
        with opened(CrashDisk(), clock, topic_queues={"wide": 3}) as engine:
            client = MemoryServer(engine, clock).connect()
            client._door.__class__ = Noting
            work(client)
    assert asked == GROUP_CHANGES.keys() | IN_STEPS.keys() | {RECALL}


class Cutter(MemoryServer):
    """Cuts one stream of bytes at one place: those that arrive, or those that are answered."""

    def __init__(self, engine: Engine, clock: FakeClock, at: int, where: str) -> None:
        self.left = at  # of the pieces of data until the cut
        self.where = where
        super().__init__(engine, clock)

    def deliver(self, session: Session, data: bytes) -> None:
        self.left -= 1
        if self.left:
            super().deliver(session, data)
            return
        kept = {"first": data[:1], "half": data[: len(data) // 2], "last": data[:-1]}
        if self.where == "answer":
            session._send = lambda _: None  # carried out, and the answer is lost
            super().deliver(session, data)
            self.loop.run()
        else:
            super().deliver(session, kept[self.where])
        session.ended()
        session.close()


@pytest.mark.parametrize("where", ["first", "half", "last", "answer"])
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_a_request_is_carried_out_once_wherever_the_stream_is_cut(work: Work, where: str) -> None:
    expected, at = None, 0
    while True:
        clock = FakeClock()
        with opened(CrashDisk(), clock, topic_queues={"wide": 3}) as engine:
            server = Cutter(engine, clock, at, where)
            client = server.connect()
            found = work(client), found_in(engine)  # what it was told, and what is there
            expected = expected or found
            assert found == expected, at
            if server.left > 0 and at:
                break
        at += 1
    assert at > 3


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_a_request_is_carried_out_once_if_the_engine_process_is_killed(work: Work) -> None:
    """It is killed before each piece of data, or after what that led to was written."""
    for answered in (False, True):
        expected, at = None, 0
        while True:
            disk, clock = CrashDisk(), FakeClock()
            server = Killed(disk, clock, at, answered=answered)
            client = server.connect()
            work(client)
            with server.engine as engine:
                found = found_in(engine)
            check(server.disk)
            expected = expected or found
            assert found == expected, at
            if server.left > 0 and at:
                break
            at += 1
        assert at > 3


class Killed(MemoryServer):
    """A server that is killed once, and whose successor opens what the kill has left."""

    def __init__(self, disk: CrashDisk, clock: FakeClock, at: int, *, answered: bool) -> None:
        self.disk = disk
        self.clock = clock
        self.left = at
        self.answered = answered
        self.engine = self._opened()
        super().__init__(self.engine, clock)

    def _opened(self) -> Engine:
        return opened(self.disk, self.clock, topic_queues={"wide": 3})

    def deliver(self, session: Session, data: bytes) -> None:
        self.left -= 1
        if self.left:
            super().deliver(session, data)
            return
        if self.answered:
            session._send = lambda _: None
            super().deliver(session, data)
            self.loop.run()
        session.has_ended = True
        session.close()
        self.disk, dead = self.disk.after_kill(), self.engine
        self.engine = self._opened()
        dead.close()  # which changes nothing of what the kill has left
        self.serve(self.engine)


class Swallowing(MemoryServer):
    """Serves what arrives, and sends no answer until the connection has ended."""

    swallows = False

    def deliver(self, session: Session, data: bytes) -> None:
        if self.swallows:
            session._send = lambda _: None
        super().deliver(session, data)


@pytest.mark.parametrize("count", [2, 7])
def test_of_several_unanswered_requests_each_is_carried_out_once(count: int) -> None:
    """All of them have no answer yet when the connection ends: none is forgotten for another."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        server = Swallowing(engine, clock)
        wire: list[Any] = []

        def dial_and_note() -> Any:
            wire.append(RingingWire(server))
            return wire[-1]

        loop = LoopInMemory(clock, server.loop)
        what = "memory", dial_and_note, server.draw, clock, 30.0
        face = AsyncEngine(RemoteEngine(LinkDoor(*what, background=False)))

        async def told() -> list[int | None]:
            face._door.use(loop, AtOnce(loop))
            await face.send("t", b"first")
            server.swallows = True
            sends = []
            for number in range(count):
                sends.append(asyncio.ensure_future(face.send("t", b"%d" % number, sync=True)))
                for _ in range(3):
                    await asyncio.sleep(0)
            server.swallows = False
            wire[-1].session.ended()
            wire[-1].cut()
            return [each.offset for each in await asyncio.gather(*sends)]

        assert loop.finish(told()) == [*range(1, count + 1)]
        assert bodies(engine, "t") == [b"first", *(b"%d" % number for number in range(count))]
        loop.close()

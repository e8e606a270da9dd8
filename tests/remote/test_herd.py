"""Many polls wait at a server: a message wakes one of them, and a send costs what it does alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fmq.server.load import HELD_MAX
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import FakeLoop, MemoryServer
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.claims import PIECE
from fmq.wire.frames import FAILED, VERSION, Frame, Op, frame
from fmq.wire.values import encode_values
from tests.remote.hostile import Hostile
from tests.small import opened

FIRST_POLL = 10_000


class CountingLoop(FakeLoop):
    """A loop that counts its calls."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.calls = 0

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        self.calls += 1
        return super().call_soon(callback, *args)

    call_soon_threadsafe = call_soon


def _has_messages(answer: Frame) -> bool:
    return bool(answer.payload) and not answer.flags & FAILED


class Crowd:
    """Clients with consumers of one group, each with a poll that waits."""

    def __init__(self, server: MemoryServer, strategy: str | None = None) -> None:
        self._server = server
        self._strategy = strategy
        self.clients: list[Hostile] = []
        self._joined = self._polls = 0

    def wait(self, count: int, topic: str = "t", group: str = "g") -> None:
        """Have `count` more polls wait."""
        for _ in range(count):
            self.join(1, topic, group)
            self.poll_all()

    def join(self, count: int, topic: str = "t", group: str = "g") -> None:
        """Have `count` more members join. They do not poll yet."""
        for number in range(self._joined, self._joined + count):
            if number % HELD_MAX == 0:
                self.clients.append(Hostile(self._server))
                who = (number // HELD_MAX).to_bytes(CLIENT_BYTES, "little")
                self.clients[-1].hello(VERSION, who, None, "host", 1)
            client, handle = self.clients[-1], number % HELD_MAX
            join = [[topic], group, 30.0, [], f"m{number}", self._strategy, None, None]
            client.send(frame(Op.JOIN, number, encode_values(join), handle=handle))
        self._joined += count

    def poll_all(self) -> None:
        """Have those poll that have joined since the last call."""
        for number in range(self._polls, self._joined):
            self.poll(self.clients[number // HELD_MAX], number % HELD_MAX)
        self._polls = self._joined

    def poll(self, client: Hostile, handle: int) -> None:
        """Have the consumer poll, with a request that is named as its handle."""
        said = encode_values([1, 600.0, False, handle])
        client.send(frame(Op.POLL, FIRST_POLL + handle, said, handle=handle))

    def answers(self) -> list[Frame]:
        """Return the answers with messages. Their consumers poll again."""
        found = []
        for client in self.clients:
            met = [each for each in client.answers if each.op == Op.POLL and _has_messages(each)]
            client.answers.clear()
            for each in met:
                self.poll(client, each.request - FIRST_POLL)
            found += met
        return found


@contextmanager
def served(**options: Any) -> Iterator[tuple[MemoryServer, CountingLoop]]:
    clock = FakeClock()
    with opened(CrashDisk(), clock, segment_bytes=1 << 22, **options) as engine:
        server = MemoryServer(engine, clock)
        loop = CountingLoop(clock)
        server.loop = loop
        server.serve(engine)
        yield server, loop


def calls_of(loop: CountingLoop, act: Callable[[], object]) -> int:
    before = loop.calls
    act()
    loop.run()
    return loop.calls - before


@pytest.mark.parametrize("strategy", [None, "average"])
def test_a_send_costs_the_same_beside_one_or_many_waiting_polls(
    strategy: str | None,
) -> None:
    """Counted in calls of the server's loop. Each message goes to one poll."""
    with served(topic_queues={"t": 512}) as (server, loop):
        client, crowd = server.connect(), Crowd(server, strategy)
        crowd.wait(1)
        alone = calls_of(loop, lambda: client.send("t", b"1"))
        (answer,) = crowd.answers()
        assert PIECE.unpack_from(answer.payload)[1] == 1
        for count in (50, 250):
            crowd.wait(count)
            loop.run()
            crowd.answers()
            beside = calls_of(loop, lambda: client.send("t", b"2"))
            assert len(crowd.answers()) == 1
            assert beside <= 2 * alone + 2, (count, alone, beside)


def test_a_thousand_members_that_join_have_their_queues_shared_out_once() -> None:
    """Counted in wake-ups of polls: those that wait look again once, however many members came."""
    few, many = 8, 1000
    with served(topic_queues={"t": many}) as (server, loop):
        client, crowd = server.connect(), Crowd(server, "average")
        client.send("t", b"1")
        crowd.wait(few)
        loop.run()
        assert len(crowd.answers()) == 1
        looked = calls_of(loop, lambda: crowd.join(many))
        assert looked == 0, "a join moves no queue before somebody looks"
        assert calls_of(loop, crowd.poll_all) <= 2 * many
        members = client.group("g").members()
        assert sorted(len(each.owns) for each in members) == [0] * few + [1] * many
        client.send("t", b"2")
        loop.run()
        assert len(crowd.answers()) == 2  # the first one has moved to another member


@pytest.mark.parametrize("strategy", [None, "average"])
def test_each_message_wakes_its_own_poll(strategy: str | None) -> None:
    """So no message waits while there are polls, however many come at once."""
    with served(topic_queues={"t": 16}) as (server, loop):
        client, crowd = server.connect(), Crowd(server, strategy)
        crowd.wait(16)
        for queue in range(16):
            client.send("t", b"1", queue=queue)
        loop.run()
        assert len(crowd.answers()) == 16


def test_a_poll_that_ends_without_looking_wakes_the_next_one() -> None:
    """It may have been the one that a message has woken: it is cancelled, or its client dies, or
    its client reads no answers.
    """
    with served() as (server, loop):
        engine, crowd = server.engine, Crowd(server)  # its sends do not let the loop run
        crowd.wait(HELD_MAX + 3)
        first, second = crowd.clients

        def cancel() -> None:
            first.session.received(frame(Op.CANCEL, 1, encode_values([0])))

        for end in (cancel, first.session.choke):
            engine.send("t", b"1")
            loop.step()  # wakes a poll, which has not looked yet
            end()
            loop.run()
            assert len(crowd.answers()) == 1
        engine.send("t", b"1")
        loop.step()
        first.session.ended()
        loop.run()
        assert len(crowd.answers()) == 2, "this one, and what the client had in hand"
        assert not second.has_closed()


def test_a_member_with_its_own_queues_still_hears_of_gains_and_drains() -> None:
    """Its poll is woken by a queue that it gains, and when it drains."""
    with served(topic_queues={"t": 2}) as (server, loop):
        client, crowd = server.connect(), Crowd(server, "average")
        crowd.wait(2)
        consumer = client.consumer("t", group="g", member="m1", strategy="average")
        client.send("t", b"1", queue=0)
        client.send("t", b"2", queue=1)
        loop.run()
        assert len(crowd.answers()) == 1
        consumer.close()
        loop.run()
        assert len(crowd.answers()) == 1, "of the queue that the replaced member has left"
        crowd.clients[0].send(frame(Op.DRAIN, 1, handle=0))
        loop.run()
        assert [each.op for each in crowd.clients[0].answers] == [Op.DRAIN, Op.POLL]


@pytest.mark.parametrize("strategy", [None, "average"])
def test_the_polls_of_a_group_that_is_deleted_end(strategy: str | None) -> None:
    """At once: there is nothing that they could wait for."""
    with served(topic_queues={"t": 4}) as (server, loop):
        client, crowd = server.connect(), Crowd(server, strategy)
        crowd.wait(4)
        client.group("g").delete()
        loop.run()
        answers = [each for each in crowd.clients[0].answers if each.op == Op.POLL]
        assert [each.flags & FAILED for each in answers] == [FAILED] * 4

"""While a sync of one client takes long, the server answers the others; and each gets its own."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

import fmq
from fmq.store.bytes.kinds import PRE_MESSAGE
from fmq.store.bytes.timing import Timing
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from fmq.wire.claims import AckAsked, encode_ack
from fmq.wire.frames import FAILED, VERSION, Op, frame
from fmq.wire.sends import encode_recall
from fmq.wire.values import encode_values
from tests.remote.hostile import Hostile, served
from tests.remote.test_shared_syncs import transaction
from tests.store.sharing import Gate, GatedDisk

HANDLE = 1
JOIN = [["t"], "g", 30.0, [], "m", None, None, None]
READ = frame(Op.READ, 50, encode_values(["t", 0, 0, 1, 0.0]))
ORDERS = {
    "RELEASE after an ACK": frame(
        Op.ACK, 10, encode_ack(AckAsked(0, 0, 1, None, "t", 0)), handle=HANDLE
    )
    + frame(Op.RELEASE, 11, encode_values([0, 1, 2, 0.0, True, 1]), handle=HANDLE),
    "REJECT": frame(Op.REJECT, 10, encode_values([0, 0, 1, "t", 0, "why"]), handle=HANDLE),
    "CHANGE": frame(Op.CHANGE, 10, encode_values([1, 0, "seek", ["g", "t", 0, 0]])),
    "decide": frame(Op.CALL, 10, encode_values(["decide", ["U", "commit"], {}])),
    "PREPARE": transaction(Op.PREPARE, PRE_MESSAGE, 10),
}


@pytest.fixture
def gate() -> Gate:
    return Gate(Event().set, only_syncs=True)


@pytest.fixture
def server(gate: Gate) -> Iterator[MemoryServer]:
    """A server whose committer writes, as the writes of its disk take long."""
    clock = FakeClock()
    with fmq.open("data", disk=GatedDisk(CrashDisk(), gate), clock=clock) as engine:
        engine.send_many("t", [b"1", b"2", b"3"])
        with engine.transaction(tx_id="U") as tx:
            tx.send("t", b"4")
            tx.prepare()
            server = MemoryServer(engine, clock)
            assert server.host is not None
            server.host.turn.pace.turns_left = 1 << 30
            yield server
            server.close()
            engine.decide("U", "commit")


@pytest.mark.parametrize("name", ORDERS)
def test_another_client_is_answered_while_a_sync_takes_long(
    name: str, server: MemoryServer, gate: Gate
) -> None:
    first, second = Hostile(server), Hostile(server)
    for number, client in enumerate((first, second)):
        client.hello(VERSION, bytes([number]) * 16, None)
    first.send(frame(Op.JOIN, 2, encode_values(JOIN), handle=HANDLE))
    first.send(frame(Op.POLL, 3, encode_values([2, 0.0, False]), handle=HANDLE))
    inside(server.engine).commit_queue.flush()  # what was handed out is written by now
    before = len(first.answers)
    gate.shut()
    first.send(ORDERS[name])
    second.send(READ)
    assert second.answers[-1].request == 50
    assert len(first.answers) == before
    gate.open()
    inside(server.engine).commit_queue.flush()
    server.loop.run()
    asked = {10, 11} if "after" in name else {10}
    assert {each.request for each in first.answers[before:]} == asked
    assert not any(each.flags & FAILED for each in first.answers)


def test_each_request_of_a_turn_gets_its_own_answer() -> None:
    """A turn plans two recalls, of what waits and of what does not."""
    with served() as server:
        receipt = server.engine.send("t", b"later", delay=60.0)
        client = Hostile(server)
        client.hello()
        due = inside(server.engine).ledger.timers.after(b"", 1)[0]
        timings = Timing(due.due_us, due.number), Timing(due.due_us, due.number + 8)
        assert receipt
        frames = [
            frame(Op.RECALL, 10 + i, *encode_recall(i + 1, 0, each))
            for i, each in enumerate(timings)
        ]
        client.send(b"".join(frames))
        found = {each.request: each.payload for each in client.answers if each.op == Op.RECALL}
        assert found == {10: b"\x01", 11: b"\x00"}


def test_a_request_that_is_woken_twice_is_answered_once() -> None:
    with served() as server:
        client = Hostile(server)
        client.hello()
        client.send(frame(Op.READ, 2, encode_values(["new", 0, 0, 1, 60.0])))
        client.session.choke()
        client.session.unchoke()
        server.engine.send("new", b"1")
        server.loop.run()
        assert [each.request for each in client.answers[1:]] == [2]

"""While a sync of one client takes long, the server answers the others; and each gets its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
BROADCAST = False, False, False, True
READ = frame(Op.READ, 50, encode_values(["t", 0, 0, 1, 0.0]))
ACK = frame(Op.ACK, 10, encode_ack(AckAsked(0, 0, 1, None, "t", 0)), handle=HANDLE)
CHECKPOINT = frame(Op.CALL, 11, encode_values(["checkpoint", [], {}]))
ORDERS = {
    "RELEASE after an ACK": ACK
    + frame(Op.RELEASE, 11, encode_values([0, 1, 2, 0.0, True, 1]), handle=HANDLE),
    "REJECT": frame(Op.REJECT, 10, encode_values([0, 0, 1, "t", 0, "why"]), handle=HANDLE),
    "CHANGE": frame(Op.CHANGE, 10, encode_values([1, 0, "seek", ["g", "t", 0, 0]])),
    "decide": frame(Op.CALL, 10, encode_values(["decide", ["U", "commit"], {}])),
    "JOIN of a new group": frame(Op.JOIN, 10, encode_values([["t"], "new", *JOIN[2:]]), handle=2),
    "JOIN of a broadcast member": frame(
        Op.JOIN, 10, encode_values([*JOIN[:4], "other", *JOIN[5:], *BROADCAST]), handle=2
    ),
    "LEAVE of a broadcast member": frame(Op.LEAVE, 10, encode_values([True]), handle=3),
    "replay_dead": frame(Op.CALL, 10, encode_values(["replay_dead", ["g", None], {}])),
    "purge_dead": frame(Op.CALL, 10, encode_values(["purge_dead", ["g", None, None], {}])),
    "sync after an ACK": ACK + frame(Op.CALL, 11, encode_values(["sync", [], {}])),
    "checkpoint after an ACK": ACK + CHECKPOINT,
    "POLL of what was tried too often": frame(
        Op.POLL, 10, encode_values([1, 0.0, False]), handle=4
    ),
    "PREPARE": transaction(Op.PREPARE, PRE_MESSAGE, 10),
}
SETUP = [
    frame(Op.JOIN, 2, encode_values(JOIN), handle=HANDLE),
    frame(Op.POLL, 3, encode_values([2, 0.0, False]), handle=HANDLE),
    frame(Op.JOIN, 4, encode_values([*JOIN, *BROADCAST]), handle=3),
    frame(
        Op.JOIN, 5, encode_values([["tried"], "once", *JOIN[2:7], fmq.Retry(1).said()]), handle=4
    ),
    frame(Op.POLL, 6, encode_values([1, 0.0, False]), handle=4),
    frame(Op.RELEASE, 7, encode_values([0, 0, 1, 0.0, True, 1]), handle=4),
]


def finish(server: MemoryServer) -> None:
    """Let everything that was asked for be written and answered."""
    for _ in range(5):
        server.loop.run()
        inside(server.engine).commit_queue.flush()


@pytest.fixture
def gate() -> Gate:
    return Gate(Event().set, only_syncs=True)


@pytest.fixture
def server(gate: Gate) -> Iterator[MemoryServer]:
    """A server whose committer writes, as the writes of its disk take long."""
    clock = FakeClock()
    with fmq.open("data", disk=GatedDisk(CrashDisk(), gate), clock=clock) as engine:
        engine.send_many("t", [b"1", b"2", b"3"])
        engine.send("tried", b"once")
        with engine.consumer("dead", group="g") as consumer:
            engine.send("dead", b"letter")
            consumer.poll()[0].reject("by hand")
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
        client.hello(VERSION, bytes([number]) * 16, None, "host", 1)
    for request in SETUP:
        first.send(request)
        finish(server)
    before = len(first.answers)
    gate.shut()
    first.send(ORDERS[name])
    second.send(READ)
    assert second.answers[-1].request == 50
    assert len(first.answers) == before
    gate.open()
    finish(server)
    asked = {10, 11} if "after" in name else {10}
    assert {each.request for each in first.answers[before:]} == asked
    assert not any(each.flags & FAILED for each in first.answers)


def test_the_files_of_a_checkpoint_are_written_apart_from_the_loop(server: MemoryServer) -> None:
    apart: list[Callable[[], None]] = []
    assert server.host is not None
    server.host.start = apart.append
    client = Hostile(server)
    client.hello()
    client.send(CHECKPOINT)
    finish(server)
    (write,) = apart
    client.send(READ)
    assert client.answers[-1].request == 50
    write()
    finish(server)
    assert (client.answers[-1].request, client.answers[-1].flags) == (11, 0)
    assert server.engine.stats().checkpoints


def test_later_requests_of_a_client_wait_for_its_join(server: MemoryServer, gate: Gate) -> None:
    """So it does as a client that connects again: it joins, and goes on with its consumer."""
    client, other = Hostile(server), Hostile(server)
    for number, each in enumerate((client, other)):
        each.hello(VERSION, bytes([number]) * 16, None, "host", 1)
    gate.shut()
    poll = frame(Op.POLL, 11, encode_values([1, 0.0, False]), handle=2)
    client.send(ORDERS["JOIN of a new group"] + poll)
    server.loop.run()
    gate.open()
    finish(server)
    assert [each.request for each in client.answers[1:]] == [10, 11]
    assert not any(each.flags & FAILED for each in client.answers)
    assert client.answers[-1].payload


def test_a_join_whose_connection_ends_meanwhile_leaves_no_member(
    server: MemoryServer, gate: Gate
) -> None:
    client, other = Hostile(server), Hostile(server)
    for number, each in enumerate((client, other)):
        each.hello(VERSION, bytes([number]) * 16, None, "host", 1)
    gate.shut()
    client.send(ORDERS["JOIN of a new group"])
    server.loop.run()
    client.session.ended()
    gate.open()
    finish(server)
    assert server.engine.group("new").members() == []


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

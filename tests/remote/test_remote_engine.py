"""A client of an engine process has the calls of the engine, with the same effects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fmq import Engine, Message
from fmq.errors import LeaseLost, TxIdInUse
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.session import Session
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer
from tests.small import bodies, opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Engine]:
    with opened(CrashDisk(), clock, topic_queues={"wide": 4}) as engine:
        yield engine


@pytest.fixture
def server(engine: Engine, clock: FakeClock) -> MemoryServer:
    return MemoryServer(engine, clock)


@pytest.fixture
def client(server: MemoryServer) -> RemoteEngine:
    return server.connect()


def test_a_client_sends_what_the_engine_reads(engine: Engine, client: RemoteEngine) -> None:
    receipt = client.send("t", b"one", key="k", tag="g", headers={"a": "b"}, producer="p")
    (message,) = engine.read("t")
    assert message[:4] == (b"one", "k", "g", {"a": "b"})
    assert (message.producer, message.position) == ("p", receipt.position)
    assert client.read("t") == [message]


def test_many_messages_go_to_the_queues_of_their_keys(engine: Engine, client: RemoteEngine) -> None:
    messages = [Message(b"%d" % n, key=f"k{n}") for n in range(20)]
    remote = client.send_many("wide", messages)
    local = engine.send_many("wide", messages)
    assert [(each.queue, each.count) for each in remote] == [(r.queue, r.count) for r in local]
    for queue in range(4):
        assert bodies(client, "wide", queue) == bodies(engine, "wide", queue)


def test_a_transaction_of_a_client_is_visible_as_a_whole(
    engine: Engine, client: RemoteEngine
) -> None:
    with client.transaction(tx_id="T", producer="p") as tx:
        tx.send("orders", b"1")
        tx.send("emails", b"2", key="k")
        tx.mark("place", 7, b"data")
        assert bodies(engine, "orders") == []
    assert bodies(engine, "orders") == [b"1"]
    assert bodies(client, "emails") == [b"2"]
    assert client.mark("place") == engine.mark("place") == (7, b"data")
    assert client.outcome("T") == engine.outcome("T")
    assert [receipt.topic for receipt in tx.commit()] == ["orders", "emails"]
    with pytest.raises(TxIdInUse):
        client.transaction(tx_id="T")


def test_a_transaction_that_is_dropped_after_its_end_leaves_its_id_to_the_next_one(
    server: MemoryServer, client: RemoteEngine
) -> None:
    ended = client.transaction(tx_id="T")
    ended.rollback()
    tx = client.transaction(tx_id="T")
    del ended
    gc.collect()
    client.transaction().rollback()  # carries out what was dropped
    with pytest.raises(TxIdInUse):
        server.connect().transaction(tx_id="T")
    tx.rollback()
    server.connect().transaction(tx_id="T").rollback()


class NotedServer(MemoryServer):
    """A server that notes what its clients send."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        super().__init__(engine, clock)
        self.asked: list[bytes] = []

    def deliver(self, session: Session, data: bytes) -> None:
        self.asked.append(data)
        super().deliver(session, data)


@pytest.mark.parametrize("step", ["commit", "prepare"])
def test_a_transaction_that_was_written_asks_for_nothing_when_it_is_dropped(
    engine: Engine, clock: FakeClock, step: str
) -> None:
    server = NotedServer(engine, clock)
    client = server.connect()
    tx = client.transaction(tx_id="T")
    tx.send("t", b"1")
    getattr(tx, step)()
    server.asked.clear()
    del tx
    gc.collect()
    client.transaction().rollback()
    assert not server.asked


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_client_prepares_and_decides(engine: Engine, client: RemoteEngine, decision: str) -> None:
    tx = client.transaction(tx_id="T", check_after=5.0)
    tx.send("t", b"1")
    tx.prepare()
    (undecided,) = client.undecided()
    assert [undecided] == engine.undecided()
    getattr(tx, decision)()
    assert tx.outcome() == engine.outcome("T")
    assert bodies(engine, "t") == [b"1"] * (decision == "commit")


def test_a_consumer_of_a_client_acks_by_itself_and_in_a_transaction(
    engine: Engine, client: RemoteEngine
) -> None:
    engine.send_many("t", [b"1", b"2", b"3"])
    with client.consumer("t", group="g") as consumer:
        one, two, three = consumer.poll()
        one.ack()
        with pytest.raises(LeaseLost):
            one.ack()
        with client.transaction() as tx:
            tx.ack(two)
            tx.send("u", two.body)
        three.release()
        (again,) = consumer.poll()
        assert again.body == b"3"
        (info,) = client.groups("g")
        assert (info.acked_below, info.unread) == (2, 1)


def test_a_poll_and_a_read_wait_for_a_message(
    engine: Engine, server: MemoryServer, client: RemoteEngine, clock: FakeClock
) -> None:
    consumer = client.consumer("t", group="g")
    server.loop.call_later(3.0, engine.send, "t", b"1")
    assert consumer.poll(timeout=1.0) == []
    before = clock.monotonic()
    assert [each.body for each in consumer.poll(timeout=5.0)] == [b"1"]
    assert clock.monotonic() - before < 3.0
    server.loop.call_later(3.0, engine.send, "u", b"2")
    assert client.read("u", timeout=5.0)[0].body == b"2"


def test_a_client_gets_higher_priorities_first_even_if_an_answer_is_full(
    clock: FakeClock,
) -> None:
    """Two large messages of one record are more than one answer holds."""
    with opened(CrashDisk(), clock, segment_bytes=16 << 20) as engine:
        client = MemoryServer(engine, clock).connect()
        client.send("t", b"", priority=1)
        client.send_many("t", [Message(bytes(3 << 20), priority=9)] * 2)
        consumer = client.consumer("t", group="g")
        polls = [[each.offset for each in consumer.poll(limit=9)] for _ in range(2)]
        assert polls == [[1], [2, 0]]


def test_messages_held_by_a_dead_client_are_given_back(
    engine: Engine, server: MemoryServer, client: RemoteEngine
) -> None:
    engine.send("t", b"1")
    assert len(client.consumer("t", group="g").poll()) == 1
    survivor = server.connect().consumer("t", group="g")
    assert survivor.poll() == []
    client.close()
    assert [each.body for each in survivor.poll()] == [b"1"]

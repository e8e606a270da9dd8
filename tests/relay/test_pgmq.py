"""A relay into queues of pgmq, whose own functions and client run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayError
from fmq.testing.relay import CASES, MessageShown, check_target
from tests.bind.conftest import address

pytest.importorskip("psycopg", reason="no psycopg on this machine")
pytest.importorskip("pgmq", reason="no client of pgmq on this machine")

import pgmq
import psycopg
from psycopg_pool import ConnectionPool

from fmq.relay.addresses import target_at
from fmq.relay.pgmq_target import PgmqTarget, create_queues
from tests.relay.planted import (
    CAUGHT_BY,
    Planted,
    check_asking_too_early,
    check_planted,
    check_sharing_a_place,
)
from tests.relay.systems import check_event, send_event

__all__ = ["address"]

SQL = Path(pgmq.__file__).parent / "sql" / "pgmq.sql"  # as its client brings it
TOPICS = ("a", "b", "t")


@pytest.fixture
def system(address: str) -> Callable[[], Any]:
    class System:
        def __init__(self) -> None:
            with psycopg.connect(address) as connection:
                connection.execute("DROP SCHEMA IF EXISTS pgmq CASCADE")
                connection.execute("DROP TABLE IF EXISTS fmq_relay")
                connection.execute(SQL.read_text())
            for _ in range(2):
                create_queues(address, TOPICS)

        def target(self) -> PgmqTarget:
            return PgmqTarget(address, "n")

        def shown(self) -> Iterator[MessageShown]:
            for topic in ("a", "b"):
                for (fmq_id,) in told(
                    address, f"SELECT headers->>'fmq-id' FROM pgmq.q_{topic} ORDER BY msg_id"
                ):
                    _, name, queue, offset = fmq_id.split("/")
                    yield name, int(queue), int(offset)

    return System


def told(address: str, statement: str) -> list[Any]:
    with psycopg.connect(address) as connection:
        return list(connection.execute(statement))


@pytest.mark.parametrize("case", [*CASES])
def test_the_pgmq_target_keeps_the_rules_of_a_target(system: Callable[[], Any], case: str) -> None:
    check_target(system, only=case)


@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_relay_into_pgmq_that_lacks_a_rule_is_caught(
    system: Callable[[], Any], kind: type[Planted]
) -> None:
    check_planted(system, kind)


def test_a_relay_into_pgmq_that_asks_before_it_claims_is_caught(system: Callable[[], Any]) -> None:
    check_asking_too_early(system)


def test_relays_into_pgmq_that_share_a_place_are_caught(system: Callable[[], Any]) -> None:
    check_sharing_a_place(system)


def relayed(engine: Engine, address: str, **more: Any) -> Relay:
    relay = Relay(engine, PgmqTarget(address, "n"), topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


def test_a_cloud_event_is_read_back_from_pgmq(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    system()
    send_event(engine)
    with closing(PgmqTarget(address, "n", cloudevents=True)) as target:
        Relay(engine, target, topics="t", name="n").run(once=True)
    ((said,),) = told(address, "SELECT headers FROM pgmq.q_t")
    check_event(said, "ce_", engine)


def test_its_own_client_reads_what_a_message_has(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    system()
    with engine.transaction(tx_id="T") as tx:
        more: dict[str, Any] = {"headers": {"a": "ü"}, "message_id": "m", "tag": "paid"}
        tx.send("t", '{"total": "7 €"}'.encode(), key="k", **more)
        tx.send("t", b"[1, null]")
    relayed(engine, address)
    with ConnectionPool(address, min_size=1) as pool:
        queue = pgmq.PGMQueue(pool=pool, init_extension=False)
        found: list[Any] = queue.read_batch("t", batch_size=10)
    assert [each.message for each in found] == [{"total": "7 €"}, [1, None]]
    (sent, _) = engine.read("t")
    assert sent.origin is not None
    assert found[0].headers == {
        "fmq-id": f"{engine.feedback.store}/t/0/0",
        "fmq-tx": "T",
        "fmq-tx-count": "2",
        "fmq-time": str(sent.origin.time_us),
        "fmq-key": "k",
        "x-pgmq-group": "k",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "a": "ü",
    }


@pytest.mark.parametrize("body", [b"not JSON", b"\xff", b'"\\u0000"', b'"\0"'])
def test_a_body_that_is_no_json_is_named_or_parked(
    system: Callable[[], Any], engine: Engine, address: str, body: bytes
) -> None:
    system()
    for each in (b"1", body, b"2"):
        engine.send("t", each)
    with pytest.raises(MessageRefused, match="t/0 offset 1 is refused by the target"):
        relayed(engine, address)
    assert told(address, "SELECT message FROM pgmq.q_t") == []
    relayed(engine, address, on_refused="park")
    assert told(address, "SELECT message FROM pgmq.q_t ORDER BY msg_id") == [(1,), (None,), (2,)]


def test_a_database_without_pgmq_and_a_missing_queue_are_named(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    system()
    fmq_address = address.replace("postgresql://", "pgmq://")
    with pytest.raises(RelayError, match="too long"):
        target_at(fmq_address, "n", {"x" * 48: 1}, create=True)
    engine.send("other", b"1")
    target = target_at(fmq_address, "n", {}, prefix="p-")
    assert isinstance(target, PgmqTarget)
    with closing(target), pytest.raises(RelayError, match="--create"):
        Relay(engine, target, topics="other", name="n").run(once=True)
    with psycopg.connect(address) as connection:
        connection.execute("DROP SCHEMA pgmq CASCADE")
    with pytest.raises(RelayError, match="CREATE EXTENSION pgmq"):
        create_queues(address, ["t"])


def test_all_queues_of_a_topic_come_in_the_order_of_the_journal(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    system()
    engine.create_topic("t", queues=3)
    for number in range(30):
        engine.send("t", b"%d" % number, queue=number % 3)
    relayed(engine, address, batch=7)
    rows = told(address, "SELECT message FROM pgmq.q_t ORDER BY msg_id")
    assert [number for (number,) in rows] == [*range(30)]

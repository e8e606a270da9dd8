"""A relay into PostgreSQL: what it keeps, what it refuses, and a server that dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay
from fmq.relay.postgres_target import PostgresTarget, create_tables
from fmq.testing.relay import CASES, MessageShown, check_target
from tests.relay.planted import (
    CAUGHT_BY,
    Planted,
    check_asking_too_early,
    check_planted,
    check_sharing_a_place,
)


@pytest.fixture
def system(address: str) -> Callable[[], Any]:
    class System:
        def __init__(self) -> None:
            create_tables(address)
            create_tables(address)
            told(address, "TRUNCATE fmq_relay, fmq_relayed")

        def target(self) -> PostgresTarget:
            return PostgresTarget(address, "n")

        def shown(self) -> Iterator[MessageShown]:
            yield from told(address, 'SELECT topic, queue, "offset" FROM fmq_relayed ORDER BY id')

    return System


def told(address: str, statement: str) -> list[Any]:
    with psycopg.connect(address) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("case", [*CASES])
def test_the_postgres_target_keeps_the_rules_of_a_target(
    system: Callable[[], Any], case: str
) -> None:
    check_target(system, only=case)


@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_relay_into_postgres_that_lacks_a_rule_is_caught(
    system: Callable[[], Any], kind: type[Planted]
) -> None:
    check_planted(system, kind)


def test_a_relay_into_postgres_that_asks_before_it_claims_is_caught(
    system: Callable[[], Any],
) -> None:
    check_asking_too_early(system)


def test_relays_into_postgres_that_share_a_place_are_caught(system: Callable[[], Any]) -> None:
    check_sharing_a_place(system)


def relayed(engine: Engine, target: PostgresTarget, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


def test_a_row_has_all_that_a_message_has(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    target = system().target()
    with engine.transaction(tx_id="T") as tx:
        tx.send("t", b"\0\\x", key="k", tag="paid", headers={"a": "ü"}, message_id="m")
    engine.send("t", b"plain")
    relayed(engine, target)
    (full, plain) = told(address, "SELECT * FROM fmq_relayed ORDER BY id")
    store = engine.feedback.store
    time = engine.read("t")[0].time
    assert full[1:] == (
        *(f"{store}/t/0/0", "t", 0, 0, time, "T", "k", "paid", {"a": "ü"}, "m", b"\0\\x"),
    )
    assert plain[6:] == (None, None, None, None, None, b"plain")


def test_the_error_for_a_message_that_no_row_can_hold_names_it(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    """PostgreSQL has no text with a NUL in it."""
    engine.send("t", b"fine")
    engine.send("t", b"not", key="a\0b")
    with pytest.raises(MessageRefused, match="t/0 offset 1 is refused by the target"):
        relayed(engine, system().target())
    assert told(address, "SELECT * FROM fmq_relayed") == []
    engine.send("t", b"fine, too")
    relayed(engine, PostgresTarget(address, "n"), on_refused="park")
    rows = told(address, "SELECT body, headers IS NULL FROM fmq_relayed ORDER BY id")
    assert rows == [(b"fine", True), (b"", False), (b"fine, too", True)]
    assert [each.offset for each in engine.dead_letters("relay-n").list()] == [1]


def test_a_connection_that_ends_during_a_delivery_raises_unsure(
    system: Callable[[], Any], engine: Engine, address: str
) -> None:
    """The relay claims again, asks, and goes on."""
    for _ in range(10):
        engine.send("t", b"x")

    class Cut(PostgresTarget):
        cuts = 2

        def deliver(self, batch: fmq.relay.RelayBatch) -> None:
            if self.cuts:
                self.cuts -= 1
                assert self._connection is not None
                pid = self._connection.info.backend_pid
                told(address, f"SELECT pg_terminate_backend({pid})")
            super().deliver(batch)

    system()
    relay = relayed(engine, Cut(address, "n"))
    assert (relay.stats().doubts, relay.stats().claims, relay.stats().messages) == (2, 3, 10)
    assert told(address, 'SELECT "offset" FROM fmq_relayed ORDER BY id') == [
        (n,) for n in range(10)
    ]


def test_a_claim_without_a_server_raises_unsure(engine: Engine) -> None:
    target = PostgresTarget("host=/nowhere connect_timeout=1")
    with pytest.raises(fmq.relay.Unsure, match="cannot be asked"):
        target.claim()

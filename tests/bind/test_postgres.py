"""A transaction bound to PostgreSQL, a real server: the rows and the messages, or neither."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
import fmq.bind
from fmq.errors import WrongState
from tests.bind.shop import PRODUCER, leave_prepared, question


@pytest.fixture
def connection(address: str) -> Iterator[Any]:
    """A connection to a database with new, empty tables."""
    with psycopg.connect(address) as connection:
        connection.execute("DROP TABLE IF EXISTS orders, fmq_tx")
        connection.execute("CREATE TABLE orders (name text PRIMARY KEY)")
        connection.commit()
        fmq.bind.create_table(connection)
        yield connection


def place(engine: fmq.Engine, connection: Any, order: str, tx_id: str | None = None) -> None:
    with engine.transaction(tx_id=tx_id, producer=PRODUCER, bind=connection) as tx:
        connection.execute("INSERT INTO orders VALUES (%s)", (order,))
        tx.send("orders", order.encode())


def rows(address: str) -> list[str]:
    with psycopg.connect(address) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY name")]


def messages(engine: fmq.Engine) -> list[str]:
    return [bytes(message.body).decode() for message in engine.read("orders")]


def test_a_block_that_ends_commits_both_and_one_that_raises_neither(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    place(engine, connection, "1")
    with pytest.raises(ValueError), engine.transaction(bind=connection) as tx:  # noqa: PT011
        connection.execute("INSERT INTO orders VALUES ('2')")
        tx.send("orders", b"2")
        raise ValueError
    place(engine, connection, "3")
    assert rows(address) == messages(engine) == ["1", "3"]


def test_the_marker_detects_a_swallowed_error(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    """PostgreSQL would roll back at COMMIT, and psycopg would report success."""
    with (
        pytest.raises(psycopg.errors.InFailedSqlTransaction),
        engine.transaction(bind=connection) as tx,
    ):
        tx.send("orders", b"1")
        with contextlib.suppress(psycopg.Error):
            connection.execute("INSERT INTO nonsense VALUES (1)")
    assert rows(address) == messages(engine) == []


@pytest.mark.parametrize("end", [psycopg.Connection.rollback, psycopg.Connection.commit])
def test_a_transaction_that_ended_is_noticed_after_another_began(
    engine: fmq.Engine, connection: Any, address: str, end: Callable[[Any], None]
) -> None:
    """The first transaction's work is gone or committed. The second one is rolled back."""
    with (
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=connection) as tx,
    ):
        connection.execute("INSERT INTO orders VALUES ('1')")
        tx.send("orders", b"1")
        end(connection)
        connection.execute("INSERT INTO orders VALUES ('2')")
    assert "2" not in rows(address)
    assert messages(engine) == []
    place(engine, connection, "3")
    assert messages(engine) == ["3"]


def test_the_program_may_use_savepoints(engine: fmq.Engine, connection: Any, address: str) -> None:
    with engine.transaction(bind=connection) as tx:
        connection.execute("INSERT INTO orders VALUES ('1')")
        with pytest.raises(psycopg.errors.UniqueViolation), connection.transaction():
            connection.execute("INSERT INTO orders VALUES ('1')")
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES ('2')")
        tx.send("orders", b"1")
    assert rows(address) == ["1", "2"]
    assert messages(engine) == ["1"]


@pytest.fixture
def tenant(connection: Any) -> Iterator[str]:
    """Another schema, which has a marker table, too."""
    connection.execute("CREATE SCHEMA tenant")
    connection.execute("SET search_path TO tenant")
    connection.execute(fmq.bind.ddl("postgres"))
    connection.execute("RESET search_path")
    connection.commit()
    yield "tenant"
    connection.rollback()
    connection.execute("DROP SCHEMA tenant CASCADE")
    connection.commit()


@pytest.mark.parametrize("inside", [True, False])
def test_a_marker_in_the_table_of_another_schema_is_refused(
    engine: fmq.Engine, connection: Any, address: str, tenant: str, inside: bool
) -> None:
    """The checker would not find the mark, and would roll the messages back."""
    place(engine, connection, "1")
    with psycopg.connect(address) as other:
        if not inside:
            other.execute(f"SET search_path TO {tenant}, public")
            other.commit()
        with (
            pytest.raises(fmq.bind.BindError, match="the fmq_tx of another schema"),
            engine.transaction(producer=PRODUCER, bind=other) as tx,
        ):
            other.execute("INSERT INTO orders VALUES ('2')")
            tx.send("orders", b"2")
            if inside:
                other.execute(f"SET LOCAL search_path TO {tenant}, public")
        other.execute(f"SET search_path TO {tenant}, public")
        other.commit()
        with engine.transaction(producer="the tenant's", bind=other) as tx:
            tx.send("orders", b"3")
        other.execute("DROP TABLE tenant.fmq_tx")
        other.commit()
        place(engine, other, "4")
    assert rows(address) == ["1", "4"]
    assert messages(engine) == ["1", "3", "4"]
    assert engine.undecided() == []


def test_a_commit_that_the_server_refuses_rolls_both_back(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    """A constraint that is checked at COMMIT fails, and the server's error proves the rollback."""
    connection.execute("CREATE TEMP TABLE lines (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    connection.commit()
    with (
        pytest.raises(psycopg.errors.UniqueViolation),
        engine.transaction(tx_id="order-1", bind=connection) as tx,
    ):
        connection.execute("INSERT INTO lines VALUES (1), (1)")
        tx.send("orders", b"1")
    assert messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"


def test_the_row_factory_of_a_connection_may_be_any_class(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    """The binding reads tuples whatever the row factory of the connection is."""
    with psycopg.connect(address, row_factory=psycopg.rows.dict_row) as other:
        place(engine, other, "1")
        assert fmq.bind.purge(engine, other, older_seconds=-9) == 1
    assert rows(address) == messages(engine) == ["1"]


@pytest.mark.parametrize("happens", [True, False])
def test_a_connection_that_breaks_at_commit_is_checked_at_once(
    engine: fmq.Engine, connection: Any, address: str, happens: bool
) -> None:
    """The server ends the connection right before the commit, or right after it."""
    place(engine, connection, "0")

    class Breaking(psycopg.Connection):
        def commit(self) -> None:
            if happens:
                super().commit()
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (self.info.backend_pid,))
            self.execute("SELECT 1")

    with pytest.raises(fmq.bind.InDoubt) as caught, Breaking.connect(address) as breaking:
        place(engine, breaking, "1", tx_id="order-1")
    assert caught.value.outcome == engine.outcome("order-1")
    assert rows(address) == messages(engine) == (["0", "1"] if happens else ["0"])


def test_a_commit_that_the_server_does_not_remember_is_in_doubt(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    """40003 is in the class of serialization failures, which roll back, but means "outcome
    unknown". CockroachDB raises it. Here a function raises it after the commit has happened.
    """
    place(engine, connection, "0")

    class Ambiguous(psycopg.Connection):
        def commit(self) -> None:
            super().commit()
            if self.execute("SELECT count(*) > 1 FROM orders").fetchone() == (True,):
                self.execute("DO $$ BEGIN RAISE 'ambiguous' USING ERRCODE = '40003'; END $$")

    with pytest.raises(fmq.bind.InDoubt) as caught, Ambiguous.connect(address) as ambiguous:
        place(engine, ambiguous, "1", tx_id="order-1")
    assert caught.value.outcome is not None
    assert caught.value.outcome.state == "committed"
    assert rows(address) == messages(engine) == ["0", "1"]


def test_an_error_of_the_program_stays_when_the_connection_is_lost_as_well(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    """The server has rolled back by itself, so the failed rollback does not replace the error."""
    with psycopg.connect(address) as lost:
        with pytest.raises(ZeroDivisionError), engine.transaction(bind=lost) as tx:
            lost.execute("INSERT INTO orders VALUES ('1')")
            tx.send("orders", b"1")
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (lost.info.backend_pid,))
            raise ZeroDivisionError
        with pytest.raises(fmq.bind.BindError, match="closed"):
            place(engine, lost, "2")
    assert engine.undecided() == []
    assert rows(address) == messages(engine) == []


def test_the_answer_is_unknown_while_the_producers_transaction_is_open(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    """The checker waits only shortly for the row of the open transaction."""
    place(engine, connection, "registers the producer")
    check = fmq.bind.checker_of(address)
    asked = question(engine)
    connection.execute(
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (%s, %s, 'C', now())",
        (asked.store, asked.tx_id),
    )
    assert check(asked) == "unknown"
    connection.commit()
    assert check(asked) == "commit"


def test_a_transaction_without_a_marker_can_never_commit_after_a_check(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    place(engine, connection, "registers the producer")
    check = fmq.bind.checker_of(address)
    asked = question(engine)
    assert check(asked) == "rollback"
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(
            "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (%s, %s, 'C', now())",
            (asked.store, asked.tx_id),
        )
    connection.rollback()


def test_a_transaction_that_a_crash_left_is_decided_at_open(
    connection: Any, address: str, tmp_path: Path
) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        place(engine, connection, "0")
        for tx_id, marked in (("order-1", True), ("order-2", False)):
            leave_prepared(engine, tx_id)
            if marked:
                connection.execute(
                    "INSERT INTO fmq_tx (store_id, tx_id, state, deadline)"
                    " VALUES (%s, %s, 'C', now())",
                    (engine.feedback.store, tx_id),
                )
                connection.commit()
    with fmq.open(tmp_path / "shop", resolve={PRODUCER: address}) as engine:
        assert engine.undecided() == []
        assert engine.outcome("order-1").state == "committed"
        assert engine.outcome("order-2").state == "rolled back"


def test_a_connection_that_cannot_be_bound_is_refused(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    with (
        psycopg.connect(address, autocommit=True) as other,
        pytest.raises(fmq.bind.BindError, match="without autocommit"),
    ):
        engine.transaction(bind=other)
    connection.execute("SELECT 1")
    with pytest.raises(fmq.bind.BindError, match="a transaction open already"):
        engine.transaction(bind=connection)
    connection.rollback()
    connection.execute("DROP TABLE fmq_tx")
    connection.commit()
    with pytest.raises(fmq.bind.NoMarkerTable, match="varchar"):
        engine.transaction(bind=connection)
    fmq.bind.create_table(connection)
    with pytest.raises(WrongState), engine.transaction(bind=connection) as tx:
        tx.commit()


def test_the_answer_is_unknown_without_a_server(
    engine: fmq.Engine, connection: Any, tmp_path: Path
) -> None:
    check = fmq.bind.checker_of(f"postgresql:///postgres?host={tmp_path}")
    assert check(question(engine)) == "unknown"


def test_markers_that_no_checker_needs_are_purged(
    engine: fmq.Engine, connection: Any, address: str
) -> None:
    for tx_id in ("old", "young"):
        place(engine, connection, tx_id, tx_id=tx_id)
    connection.execute(
        "UPDATE fmq_tx SET created_at = created_at - interval '8 d' WHERE tx_id <> 'young'"
    )
    connection.commit()
    assert fmq.bind.purge(engine, connection) == 1
    left = {tx_id for (tx_id,) in connection.execute("SELECT tx_id FROM fmq_tx")}
    assert left == {"young", f"§{PRODUCER}"}

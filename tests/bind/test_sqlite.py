"""A transaction bound to a sqlite3 connection: the rows and the messages, or neither."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.bind
from fmq.errors import BadOption, EngineFailed, LeaseLost, WrongState
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.bind.shop import PRODUCER, connect, messages, place, question, rows


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path)
    yield connection
    connection.close()


def test_a_block_that_ends_commits_both(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    place(engine, connection, "one")
    place(engine, connection, "two", tx_id="order-2")
    assert rows(tmp_path) == messages(engine) == ["one", "two"]
    assert engine.outcome("order-2").state == "committed"
    assert engine.undecided() == []


def test_a_block_that_raises_commits_neither_rows_nor_messages(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    for error in (ValueError, fmq.RollBack, KeyboardInterrupt):
        with pytest.raises(error), engine.transaction(bind=connection) as tx:
            connection.execute("INSERT INTO orders VALUES ('one')")
            tx.send("orders", b"one")
            raise error
    assert rows(tmp_path) == messages(engine) == []
    assert not connection.in_transaction
    place(engine, connection, "two")
    assert rows(tmp_path) == messages(engine) == ["two"]


def test_a_failure_after_the_databases_commit_has_a_note_about_the_messages(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    disk = FaultDisk(CrashDisk())
    with fmq.open("data", disk=disk, clock=FakeClock(), background=False) as engine:
        with pytest.raises(EngineFailed) as caught, engine.transaction(bind=connection) as tx:
            connection.execute("INSERT INTO orders VALUES ('one')")
            tx.send("orders", b"one")
            disk.fail("write", nth=1, error=errno.EIO, names="*.seg")
        (note,) = caught.value.__notes__
        assert "the database has committed" in note
        assert tx.tx_id in note
    assert rows(tmp_path) == ["one"]


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """A deferred foreign key fails at COMMIT.

    The transaction is still open, so the rollback is certain.
    """
    connection.execute("CREATE TABLE lines (order_name REFERENCES orders DEFERRABLE "
                       "INITIALLY DEFERRED)")  # fmt: skip
    connection.execute("PRAGMA foreign_keys = ON")
    with (
        pytest.raises(sqlite3.IntegrityError),
        engine.transaction(tx_id="order-1", bind=connection) as tx,
    ):
        connection.execute("INSERT INTO lines VALUES ('no such order')")
        tx.send("orders", b"one")
    assert messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"


class AnswerLost(sqlite3.Connection):
    """A connection whose commit raises an error of unknown outcome, with or without its work."""

    commits = 2  # the commits of the marker table and of the registration succeed
    happens = True

    def commit(self) -> None:
        if self.commits:
            self.commits -= 1
            super().commit()
            return
        if self.happens:
            super().commit()
        else:
            super().rollback()
        raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(tmp_path: Path, happens: bool) -> None:
    """The error is typed, and the messages follow what a new connection finds."""
    connection = connect(tmp_path, AnswerLost)
    assert isinstance(connection, AnswerLost)
    connection.happens = happens
    with fmq.open(tmp_path / "shop") as engine:
        with pytest.raises(fmq.bind.InDoubt) as caught:
            place(engine, connection, "one", tx_id="order-1")
        assert caught.value.outcome is not None
        assert rows(tmp_path) == messages(engine) == (["one"] if happens else [])
        assert caught.value.outcome == engine.outcome("order-1")
    connection.close()


def test_the_error_says_what_a_check_found_also_without_messages(tmp_path: Path) -> None:
    """The transaction has committed, and has no receipts."""
    connection = connect(tmp_path, AnswerLost)
    with (
        fmq.open(tmp_path / "shop") as engine,
        pytest.raises(fmq.bind.InDoubt, match=r"found that it did\."),
        engine.transaction(producer=PRODUCER, bind=connection),
    ):
        connection.execute("INSERT INTO orders VALUES ('one')")
    connection.close()


def test_a_missing_table_is_named_with_the_statement_that_makes_it(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    connection = sqlite3.connect(tmp_path / "bare.db")
    connection.execute("PRAGMA synchronous = EXTRA")
    with pytest.raises(fmq.bind.NoMarkerTable) as caught:
        engine.transaction(bind=connection)
    assert fmq.bind.ddl("sqlite") in str(caught.value)
    assert not connection.in_transaction
    connection.execute(fmq.bind.ddl("sqlite"))
    with engine.transaction(bind=connection) as tx:
        tx.send("orders", b"one")
    assert messages(engine) == ["one"]
    connection.close()


def test_a_connection_with_work_open_is_refused(
    engine: fmq.Engine, connection: sqlite3.Connection
) -> None:
    connection.execute("INSERT INTO orders VALUES ('begun before')")
    with pytest.raises(fmq.bind.BindError, match="a transaction open already"):
        engine.transaction(bind=connection)
    connection.rollback()
    tx = engine.transaction(tx_id="order-1", bind=connection)
    connection.execute("INSERT INTO orders VALUES ('begun between')")
    with pytest.raises(fmq.bind.BindError, match="a transaction open already"), tx:
        pass
    connection.rollback()
    place(engine, connection, "one", tx_id="order-1")
    assert messages(engine) == ["one"]


def test_a_commit_of_the_program_inside_of_the_block_is_refused(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    with (
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=connection) as tx,
    ):
        connection.execute("INSERT INTO orders VALUES ('one')")
        tx.send("orders", b"one")
        connection.commit()
    assert rows(tmp_path) == ["one"]
    assert messages(engine) == []


def rolled_back_by_sqlite(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE once (name PRIMARY KEY ON CONFLICT ROLLBACK)")
    connection.execute("INSERT INTO once VALUES (1)")
    with contextlib.suppress(sqlite3.IntegrityError):
        connection.execute("INSERT INTO once VALUES (1)")


ENDS: list[Callable[[sqlite3.Connection], object]] = [
    sqlite3.Connection.commit,
    sqlite3.Connection.rollback,
    lambda connection: connection.executescript(""),
    rolled_back_by_sqlite,
]


@pytest.mark.parametrize("end", ENDS)
def test_a_transaction_that_ended_is_noticed_after_another_began(
    engine: fmq.Engine, connection: sqlite3.Connection, end: Callable[[Any], object]
) -> None:
    """sqlite3 begins again with the next statement that writes.

    That second transaction is rolled back.
    """
    with (
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=connection) as tx,
    ):
        connection.execute("INSERT INTO orders VALUES ('one')")
        tx.send("orders", b"one")
        end(connection)
        connection.execute("INSERT INTO orders VALUES ('two')")
    assert ("two",) not in connection.execute("SELECT name FROM orders").fetchall()
    assert messages(engine) == []
    place(engine, connection, "three")
    assert messages(engine) == ["three"]


def test_the_program_may_use_savepoints(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """COMMIT includes a savepoint that is still open."""
    with engine.transaction(bind=connection) as tx:
        for name, end in (("one", "RELEASE a"), ("two", "ROLLBACK TO a"), ("three", "")):
            connection.execute("SAVEPOINT a")
            connection.execute("INSERT INTO orders VALUES (?)", (name,))
            connection.execute(end)
        tx.send("orders", b"one")
    assert rows(tmp_path) == ["one", "three"]
    assert messages(engine) == ["one"]


def test_a_running_statement_does_not_count_as_the_end(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """SQLite's error names the running statement, and both are rolled back."""
    with (
        pytest.raises(sqlite3.OperationalError, match="in progress"),
        engine.transaction(bind=connection) as tx,
    ):
        running = connection.execute("INSERT INTO orders VALUES ('1'), ('2') RETURNING name")
        tx.send("orders", b"1")
    running.close()
    assert rows(tmp_path) == messages(engine) == []


class PythonFrom312(sqlite3.Connection):
    """A connection as Python 3.12 makes it with autocommit=True, where commit does nothing."""

    autocommit: Any = True


def test_a_connection_made_with_autocommit_is_refused(engine: fmq.Engine, tmp_path: Path) -> None:
    connect(tmp_path).close()
    if sys.version_info >= (3, 12):
        connections = [sqlite3.connect(tmp_path / "shop.db", autocommit=on) for on in (True, False)]
    else:
        connections = [sqlite3.connect(tmp_path / "shop.db", factory=PythonFrom312)]
    for connection in connections:
        with pytest.raises(fmq.bind.BindError, match="LEGACY_TRANSACTION_CONTROL"):
            place(engine, connection, "one")
        connection.close()
    assert rows(tmp_path) == messages(engine) == []


def test_prepare_commit_and_rollback_are_refused_inside_a_bound_block(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    with engine.transaction(bind=connection) as tx:
        tx.send("orders", b"one")
        for step in (tx.prepare, tx.commit, tx.rollback):
            with pytest.raises(WrongState, match=r"raise fmq\.RollBack"):
                step()
    [receipt] = tx.commit()
    assert (receipt.topic, receipt.offset) == ("orders", 0)


def test_a_database_in_memory_is_refused(engine: fmq.Engine) -> None:
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(fmq.bind.BindError, match="gone with its process"),
    ):
        engine.transaction(bind=connection)


@pytest.mark.parametrize("nonsense", ["sqlite:///shop.db", 7, object()])
def test_an_object_that_is_not_a_connection_is_refused(
    engine: fmq.Engine, nonsense: object
) -> None:
    with pytest.raises(fmq.bind.BindError, match="must be a connection of"):
        engine.transaction(bind=nonsense)


def test_a_producer_binds_one_database(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """After a crash the checker could ask the wrong one, which would answer "rollback"."""
    (tmp_path / "other").mkdir()
    other = connect(tmp_path / "other")
    place(engine, connection, "one")
    with pytest.raises(BadOption, match=r"other.*shop\.db"):
        engine.transaction(producer=PRODUCER, bind=other)
    with engine.transaction(producer="another", bind=other) as tx:
        tx.send("orders", b"two")
    assert messages(engine) == ["one", "two"]
    other.close()


def test_a_database_that_may_lose_commits_is_warned_about(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    connection = connect(tmp_path)
    connection.execute("PRAGMA synchronous = NORMAL")
    with (
        pytest.warns(fmq.bind.DurabilityWarning, match="synchronous=FULL") as warned,
        engine.transaction(bind=connection),
    ):
        pass
    assert warned[0].filename == __file__
    connection.close()


def test_the_row_factory_of_a_connection_may_be_any_class(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """The binding reads tuples whatever the row factory of the connection is."""
    connection.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    place(engine, connection, "one")
    assert rows(tmp_path) == messages(engine) == ["one"]
    assert fmq.bind.purge(engine, connection, older_seconds=-9) == 1


def test_the_text_factory_of_a_connection_may_be_bytes(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    connection.text_factory = bytes
    place(engine, connection, "one")
    tx = engine.transaction(tx_id="undecided", producer=PRODUCER)
    tx.prepare()
    connection.execute(
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (?, 'undecided', 'C', 0)",
        (engine.feedback.store,),
    )
    assert fmq.bind.purge(engine, connection, older_seconds=-9) == 1
    connection.text_factory = str
    assert keys(connection) == {"undecided", f"§{PRODUCER}"}
    assert rows(tmp_path) == messages(engine) == ["one"]


# --- what a checker does ------------------------------------------------------------------------


def test_a_checker_rules_out_a_transaction_without_a_marker(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """It leaves a tombstone, so that a late producer cannot commit."""
    check = fmq.bind.checker_of(f"sqlite:///{tmp_path}/shop.db")
    place(engine, connection, "registers the producer")
    asked = question(engine)
    assert check(asked) == "rollback"
    late = sqlite3.connect(tmp_path / "shop.db")
    with pytest.raises(sqlite3.IntegrityError):
        late.execute(
            "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (?, ?, 'C', 0)",
            (asked.store, asked.tx_id),
        )
    late.close()


def test_a_producer_that_was_ruled_out_raises_fenced(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    place(engine, connection, "registers the producer")
    connection.execute(
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (?, 'order-1', 'R', 0)",
        (engine.feedback.store,),
    )
    connection.commit()
    with pytest.raises(fmq.bind.Fenced, match="ruled it out"):
        place(engine, connection, "one", tx_id="order-1")
    assert rows(tmp_path) == messages(engine) == ["registers the producer"]
    assert engine.undecided() == []


def test_the_answer_is_unknown_while_the_producers_transaction_is_open(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    check = fmq.bind.checker_of(f"sqlite:///{tmp_path}/shop.db")
    place(engine, connection, "registers the producer")
    asked = question(engine)
    connection.execute("BEGIN IMMEDIATE")
    assert check(asked) == "unknown"
    connection.rollback()
    assert check(asked) == "rollback"


def test_a_database_that_was_never_bound_answers_nothing(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """Otherwise its missing row would roll back what the right database has committed."""
    (tmp_path / "other").mkdir()
    other = connect(tmp_path / "other")
    other.close()
    asked = question(engine)
    with pytest.raises(fmq.bind.WrongDatabase, match="name the right database"):
        fmq.bind.checker_of(f"sqlite:///{tmp_path}/other/shop.db")(asked)
    assert [each.tx_id for each in engine.undecided()] == ["order-1"]


def test_a_question_that_another_call_took_raises_lease_lost(
    engine: fmq.Engine, connection: sqlite3.Connection
) -> None:
    """A check at once takes the question from the checker that had it."""
    asked = question(engine)
    [again] = engine.feedback.ask_about("order-1")
    with pytest.raises(LeaseLost):
        engine.feedback.answer(asked, "unknown")
    assert engine.feedback.answer(again, "rollback") is not None
    assert engine.feedback.ask_about("order-1") == []


@pytest.mark.parametrize("address", ["", "shop.db", "sqlite://", "sqlite:///", "oracle:///x"])
def test_an_address_that_cannot_be_asked_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadOption, match=r"sqlite:///shop\.db"):
        fmq.open(tmp_path / "shop", resolve={PRODUCER: address})
    with fmq.open(tmp_path / "shop"):
        pass  # the directory is unlocked again


# --- purging ------------------------------------------------------------------------------------


def age(connection: sqlite3.Connection, tx_id: str, seconds: int) -> None:
    """Make the transaction's row older."""
    connection.execute(
        "UPDATE fmq_tx SET created_at = created_at - ?, deadline = deadline - ? WHERE tx_id = ?",
        (seconds, seconds, tx_id),
    )
    connection.commit()


def keys(connection: sqlite3.Connection) -> set[str]:
    return {tx_id for (tx_id,) in connection.execute("SELECT tx_id FROM fmq_tx")}


def test_only_markers_that_no_checker_needs_are_purged(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """Young markers, those of undecided transactions and the producers' own rows stay."""
    for tx_id in ("old", "young"):
        place(engine, connection, tx_id, tx_id=tx_id)
    tx = engine.transaction(tx_id="undecided", producer=PRODUCER)
    tx.prepare()
    connection.execute(
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (?, 'undecided', 'C', 0)",
        (engine.feedback.store,),
    )
    week = 8 * 86400
    for key in ("old", "undecided", f"§{PRODUCER}"):
        age(connection, key, week)
    assert fmq.bind.purge(engine, connection) == 1
    assert keys(connection) == {"young", "undecided", f"§{PRODUCER}"}
    tx.commit()
    assert fmq.bind.purge(engine, connection) == 1
    assert keys(connection) == {"young", f"§{PRODUCER}"}


def test_a_tombstone_stays_until_its_producer_can_no_longer_insert_the_marker(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    place(engine, connection, "registers the producer", tx_id="first")
    check = fmq.bind.checker_of(f"sqlite:///{tmp_path}/shop.db")
    asked = question(engine)
    assert check(asked) == "rollback"
    engine.feedback.answer(asked, "rollback")
    age(connection, "order-1", 2 * 3600 - 60)
    assert fmq.bind.purge(engine, connection) == 0
    age(connection, "order-1", 120)
    assert fmq.bind.purge(engine, connection) == 1


def test_another_engines_rows_are_not_purged(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    place(engine, connection, "1", tx_id="order-1")
    age(connection, "order-1", 30 * 86400)
    with fmq.open(tmp_path / "another shop") as another:
        assert fmq.bind.purge(another, connection) == 0
    assert fmq.bind.purge(engine, connection) == 1

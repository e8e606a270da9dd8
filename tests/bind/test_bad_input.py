"""Mistakes with a bound database, SQLite and PostgreSQL: each is an error, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
import fmq.bind
from fmq.bind.bound_transaction import BoundTransaction
from fmq.errors import BadOption
from tests.bind.databases import Database, Postgres, Sqlite, make_tables, rows, told
from tests.bind.shop import PRODUCER, messages, question


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    with contextlib.closing(database.connect()) as connection:
        yield connection


def insert(connection: Any, order: str) -> None:
    connection.execute(f"INSERT INTO orders VALUES ('{order}')")


def place(engine: fmq.Engine, connection: Any, order: str) -> None:
    with engine.transaction(tx_id=order, producer=PRODUCER, bind=connection) as tx:
        insert(connection, order)
        tx.send("orders", order.encode())


def in_another_thread(call: Callable[[], object]) -> BaseException | None:
    """Return the error that `call` raises in another thread."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


# --- the connection -----------------------------------------------------------------------------


def test_a_closed_connection_is_refused(engine: fmq.Engine, database: Database) -> None:
    connection = database.connect()
    connection.close()
    with pytest.raises(fmq.bind.BindError, match=r"closed.* Nothing was changed"):
        engine.transaction(bind=connection)


def test_a_connection_closed_inside_of_the_block_rolls_both_back(
    engine: fmq.Engine, database: Database
) -> None:
    connection = database.connect()
    with (
        pytest.raises((sqlite3.ProgrammingError, psycopg.OperationalError), match="closed"),
        engine.transaction(bind=connection) as tx,
    ):
        insert(connection, "1")
        tx.send("orders", b"1")
        connection.close()
    assert rows(database) == messages(engine) == []
    assert engine.undecided() == []


def test_a_database_is_asked_after_its_first_connection_is_closed(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    """The producer's checker outlives the connection, and finds a committed mark."""
    with contextlib.closing(database.connect()) as first:
        place(engine, first, "1")
    tx = engine.transaction(tx_id="2", producer=PRODUCER, bind=connection)
    assert isinstance(tx, BoundTransaction)
    tx.__enter__()
    insert(connection, "2")
    tx.send("orders", b"2")
    tx.seal()
    connection.commit()  # the program dies before it confirms
    assert engine.settle().committed == ("2",)
    assert rows(database) == messages(engine) == ["1", "2"]


@pytest.mark.parametrize("wrong", ["7 days", None, timedelta(days=7), float("nan")], ids=repr)
def test_an_age_that_is_not_a_number_of_seconds_is_refused(
    engine: fmq.Engine, database: Database, connection: Any, wrong: Any
) -> None:
    """SQLite reads "7 days" as 7 and other text as 0, so that young markers would go."""
    place(engine, connection, "1")
    with pytest.raises((TypeError, BadOption), match="older_seconds="):
        fmq.bind.purge(engine, connection, older_seconds=wrong)
    assert fmq.bind.purge(engine, connection, older_seconds=-9) == 1


def test_a_cursor_is_refused_as_a_connection(engine: fmq.Engine, connection: Any) -> None:
    """Each call refuses a cursor: it has no transaction of its own."""
    cursor = connection.cursor()
    for call in (
        lambda: engine.transaction(bind=cursor),
        lambda: fmq.bind.create_table(cursor),
        lambda: fmq.bind.purge(engine, cursor),
    ):
        with pytest.raises(fmq.bind.BindError, match=r"Cursor cannot be bound.* Nothing was chang"):
            call()
    place(engine, connection, "1")
    assert messages(engine) == ["1"]


def test_a_connection_in_a_pipeline_is_refused(engine: fmq.Engine, address: str) -> None:
    """The result of the mark would come too late. A pipeline inside of the block is accepted."""
    database = Postgres(address)
    make_tables(database)
    with database.connect() as connection:
        with (
            connection.pipeline(),
            pytest.raises(fmq.bind.BindError, match="is in a pipeline"),
        ):
            place(engine, connection, "1")
        place(engine, connection, "2")
        with (
            connection.pipeline(),
            pytest.raises(fmq.bind.BindError, match="is in a pipeline"),
            engine.transaction(producer=PRODUCER, bind=connection),
        ):
            pass
        with engine.transaction(producer=PRODUCER, bind=connection) as tx, connection.pipeline():
            insert(connection, "3")
            tx.send("orders", b"3")
    assert rows(database) == messages(engine) == ["2", "3"]


def test_a_connection_is_in_one_transaction_at_a_time(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    """The second transaction is refused, and the first goes on.

    The connection is free again after it.
    """
    with engine.transaction(producer=PRODUCER, bind=connection) as tx:
        insert(connection, "1")
        tx.send("orders", b"1")
        for producer in (PRODUCER, "new to the database"):
            with (
                pytest.raises(fmq.bind.BindError, match="a transaction open already"),
                engine.transaction(producer=producer, bind=connection),
            ):
                pass
    place(engine, connection, "2")
    assert rows(database) == messages(engine) == ["1", "2"]


def test_two_engines_do_not_share_a_transaction(
    engine: fmq.Engine, database: Database, connection: Any, tmp_path: Path
) -> None:
    """Both would end it. One after the other, both can use the same marker table."""
    with fmq.open(tmp_path / "another") as another:
        with engine.transaction(bind=connection) as tx:
            insert(connection, "1")
            tx.send("orders", b"1")
            with pytest.raises(fmq.bind.BindError, match="a transaction open already"):
                another.transaction(bind=connection)
        place(another, connection, "2")
        assert (messages(engine), messages(another)) == (["1"], ["2"])
    assert rows(database) == ["1", "2"]


def test_a_sqlite_connection_of_another_thread_is_refused(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    database = Sqlite(tmp_path)
    make_tables(database)
    with contextlib.closing(database.connect()) as connection:
        error = in_another_thread(lambda: engine.transaction(bind=connection))
        assert isinstance(error, fmq.bind.BindError)
        assert "only be used in that same thread" in str(error)
        place(engine, connection, "1")
    assert rows(database) == messages(engine) == ["1"]


def test_a_block_ended_in_another_thread_commits_both_or_neither(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    """sqlite3 refuses that, so both roll back. psycopg allows it, so both commit."""
    tx = engine.transaction(bind=connection)
    tx.__enter__()
    insert(connection, "1")
    tx.send("orders", b"1")
    error = in_another_thread(lambda: tx.__exit__(None, None, None))
    if isinstance(database, Sqlite):
        assert isinstance(error, sqlite3.ProgrammingError)
        connection.rollback()
    else:
        assert error is None
    assert rows(database) == messages(engine) == ([] if error else ["1"])
    assert engine.undecided() == []


# --- the table ----------------------------------------------------------------------------------


def test_a_missing_table_is_named_with_the_statement_that_makes_it(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    told(database, "DROP TABLE fmq_tx")
    with pytest.raises(fmq.bind.NoMarkerTable) as caught:
        place(engine, connection, "1")
    assert database.ddl in str(caught.value)
    told(database, database.ddl)
    place(engine, connection, "1")
    assert rows(database) == messages(engine) == ["1"]


def test_a_table_that_is_dropped_while_the_program_runs_is_named_as_well(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    """Both the producer and the checker name it. The producer's transaction rolls back."""
    place(engine, connection, "1")
    asked = question(engine, "2")
    told(database, "DROP TABLE fmq_tx")
    with pytest.raises(fmq.bind.NoMarkerTable) as caught:
        place(engine, connection, "3")
    assert database.ddl in str(caught.value)
    with pytest.raises(fmq.bind.NoMarkerTable):
        fmq.bind.checker_of(database.address)(asked)
    assert rows(database) == messages(engine) == ["1"]
    assert [tx.tx_id for tx in engine.undecided()] == ["2"]


def test_the_ddl_statement_leaves_an_existing_table_alone(
    engine: fmq.Engine, database: Database
) -> None:
    """A program may run the statement at each start."""
    with contextlib.closing(database.connect()) as connection:
        with engine.transaction(producer=PRODUCER, bind=connection) as tx:
            tx.send("orders", b"1")
        connection.execute(database.ddl)
        connection.commit()
    assert len(told(database, "SELECT tx_id FROM fmq_tx")) == 2


def test_ddl_inside_of_the_block_is_part_of_it(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    with engine.transaction(bind=connection) as tx:
        connection.execute("DROP TABLE IF EXISTS made")
        connection.execute("CREATE TABLE made (name varchar(9))")
        connection.execute("INSERT INTO made VALUES ('1')")
        tx.send("orders", b"1")
    with pytest.raises(fmq.RollBack), engine.transaction(bind=connection) as tx:
        connection.execute("DROP TABLE made")
        tx.send("orders", b"2")
        raise fmq.RollBack
    assert told(database, "SELECT name FROM made") == [("1",)]
    assert messages(engine) == ["1"]


def test_a_script_before_which_sqlite3_commits_is_refused(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """`executescript` commits the open transaction, so its rows stay without a message."""
    database = Sqlite(tmp_path)
    make_tables(database)
    with (
        contextlib.closing(database.connect()) as connection,
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=connection) as tx,
    ):
        insert(connection, "1")
        tx.send("orders", b"1")
        connection.executescript("CREATE TABLE made (name)")
    assert (rows(database), messages(engine)) == (["1"], [])


@pytest.mark.parametrize("elsewhere", ["attached", "temp"])
def test_a_marker_table_of_another_file_does_not_count(
    engine: fmq.Engine, tmp_path: Path, elsewhere: str
) -> None:
    """SQLite commits each file by itself, so a mark in another file proves nothing."""
    database = Sqlite(tmp_path)
    make_tables(database)
    with contextlib.closing(database.connect()) as connection:
        connection.execute("ATTACH ? AS attached", (str(tmp_path / "other.db"),))
        connection.execute("DROP TABLE fmq_tx")
        connection.execute(database.ddl.replace("fmq_tx", f"{elsewhere}.fmq_tx"))
        connection.commit()
        with pytest.raises(fmq.bind.NoMarkerTable):
            place(engine, connection, "1")
        fmq.bind.create_table(connection)
        place(engine, connection, "1")
        [(marks,)] = connection.execute(f"SELECT count(*) FROM {elsewhere}.fmq_tx")
    assert marks == 0
    assert rows(database) == messages(engine) == ["1"]


# --- the wrong database, and rows deleted by hand -----------------------------------------------


def test_a_database_that_never_saw_the_producer_decides_nothing(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    place(engine, connection, "1")
    asked = question(engine, "2")
    other = database.other()
    make_tables(other)
    with pytest.raises(fmq.bind.WrongDatabase, match="name the right database"):
        fmq.bind.checker_of(other.address)(asked)
    assert [tx.tx_id for tx in engine.undecided()] == ["2"]
    assert fmq.bind.checker_of(database.address)(asked) == "rollback"


def test_the_wrong_database_is_not_bound_while_something_is_undecided(
    database: Database, connection: Any, tmp_path: Path
) -> None:
    """Otherwise the wrong database would be asked, and would have no mark."""
    left_undecided(tmp_path, database)
    other = database.other()
    make_tables(other)
    with fmq.open(tmp_path / "crashed") as engine:
        with (
            contextlib.closing(other.connect()) as wrong,
            pytest.raises(fmq.bind.BindError, match="no row that says they were bound"),
        ):
            place(engine, wrong, "2")
        place(engine, connection, "2")
        engine.settle()
        assert rows(database) == sorted(messages(engine)) == ["1", "2", "committed"]
    assert rows(other) == []
    assert told(other, "SELECT * FROM fmq_tx") == []


def left_undecided(folder: Path, database: Database) -> None:
    """Leave the engine as after a crash between the database's commit and its own."""
    with (
        fmq.open(folder / "crashed") as engine,
        contextlib.closing(database.connect()) as connection,
    ):
        place(engine, connection, "1")
        asked = question(engine, "committed", b"committed")
        insert(connection, "committed")
        deadline = "now()" if isinstance(database, Postgres) else "0"
        connection.execute(
            f"INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES ('{asked.store}',"
            f" 'committed', 'C', {deadline})"
        )
        connection.commit()


def test_nothing_is_decided_after_all_markers_were_deleted(
    database: Database, tmp_path: Path
) -> None:
    """The producers' own rows are gone, too, so checkers and new blocks raise WrongDatabase."""
    left_undecided(tmp_path, database)
    told(database, "DELETE FROM fmq_tx")
    with fmq.open(tmp_path / "crashed", resolve={PRODUCER: database.address}) as engine:
        assert [tx.tx_id for tx in engine.undecided()] == ["committed"]
        with (
            contextlib.closing(database.connect()) as connection,
            pytest.raises(fmq.bind.BindError, match=r"rows of fmq_tx were deleted.*decide"),
        ):
            place(engine, connection, "2")
        engine.decide("committed", "commit", reason="the row is there")
        with contextlib.closing(database.connect()) as connection:
            place(engine, connection, "2")
        assert rows(database) == sorted(messages(engine)) == ["1", "2", "committed"]


def test_a_transaction_whose_marker_was_deleted_is_taken_for_rolled_back(
    database: Database, tmp_path: Path
) -> None:
    """The two cases look the same, so only fmq.bind.purge may delete rows, as the guide says."""
    left_undecided(tmp_path, database)
    told(database, "DELETE FROM fmq_tx WHERE tx_id = 'committed'")
    with fmq.open(tmp_path / "crashed", resolve={PRODUCER: database.address}) as engine:
        assert engine.outcome("committed").state == "rolled back"


def test_a_running_program_notices_no_deletion_of_markers(
    engine: fmq.Engine, database: Database, connection: Any
) -> None:
    place(engine, connection, "1")
    told(database, "DELETE FROM fmq_tx")
    place(engine, connection, "2")
    assert rows(database) == messages(engine) == ["1", "2"]


# --- a checker that may not write ---------------------------------------------------------------


def test_a_read_only_replica_answers_unknown(engine: fmq.Engine, address: str) -> None:
    """It cannot insert a tombstone, and may not have the mark yet."""
    database = Postgres(address)
    make_tables(database)
    with contextlib.closing(database.connect()) as connection:
        place(engine, connection, "1")
    asked = question(engine, "2")
    read_only = f"{address}&options=-c%20default_transaction_read_only%3Don"
    assert fmq.bind.checker_of(read_only)(asked) == "unknown"
    assert fmq.bind.checker_of(address)(asked) == "rollback"


@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL"])
def test_a_file_that_cannot_be_written_answers_unknown(
    engine: fmq.Engine, journal_mode: str
) -> None:
    # Not in tmp_path, which only its owner may enter: root may write anything, so we step down.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = Sqlite(folder)
        make_tables(database)
        told(database, f"PRAGMA journal_mode = {journal_mode}")
        with contextlib.closing(database.connect()) as connection:
            place(engine, connection, "1")
        asked = question(engine, "2")
        folder.chmod(0o555)
        (folder / "shop.db").chmod(0o444)
        with nobody_in_particular():
            assert fmq.bind.checker_of(database.address)(asked) == "unknown"
        folder.chmod(0o755)
        (folder / "shop.db").chmod(0o644)
        assert fmq.bind.checker_of(database.address)(asked) == "rollback"


@contextlib.contextmanager
def nobody_in_particular() -> Iterator[None]:
    """Run as another user, if the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)

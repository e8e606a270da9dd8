"""Django: what a block of fmq.bind.django.atomic writes and sends is there, or neither is."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
    transaction,
)
from django.db.transaction import TransactionManagementError

import fmq
import fmq.bind
from fmq.bind.bound_transaction import BoundTransaction
from fmq.bind.django import atomic
from fmq.errors import BadOption
from tests.bind.databases import Database, Postgres, Sqlite, make_tables, rows, told
from tests.bind.django_shop import Order, leave, point_at
from tests.bind.shop import PRODUCER, leave_prepared, messages, question


@pytest.fixture
def using(database: Database) -> Iterator[str]:
    """The alias of each database in turn. The connection is closed at the end of each test."""
    alias = point_at(database)
    yield alias
    connection = connections[alias]
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    assert not connection.run_on_commit
    Order.objects.using(alias).create(name="the connection works")
    assert "the connection works" in rows(database), "and commits by itself, as ever"
    leave(alias)


def place(engine: fmq.Engine, using: str, order: str) -> None:
    with atomic(engine, using, producer=PRODUCER, tx_id=order) as tx:
        Order.objects.using(using).create(name=order)
        tx.send("orders", order.encode())


# --- both or neither ----------------------------------------------------------------------------


def test_a_block_that_ends_commits_both_and_one_that_raises_neither(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    place(engine, using, "1")
    for error in (ValueError, fmq.RollBack, KeyboardInterrupt, IntegrityError):
        with pytest.raises(error), atomic(engine, using) as tx:
            Order.objects.using(using).create(name="2")
            tx.send("orders", b"2")
            raise error
    place(engine, using, "3")
    assert rows(database) == messages(engine) == ["1", "3"]
    assert engine.undecided() == []


def test_a_connection_of_djangos_can_be_bound_as_any_other(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """So can `django.db.connection`, a proxy for the connection of the thread."""
    with engine.transaction(bind=connections[using]) as tx:
        Order.objects.using(using).create(name="1")
        tx.send("orders", b"1")
    if using == "default":
        from django.db import connection

        with engine.transaction(bind=connection) as tx:
            tx.send("orders", b"2")
    assert rows(database) == ["1"]
    assert messages(engine) == (["1", "2"] if using == "default" else ["1"])


def test_the_program_may_use_savepoints(engine: fmq.Engine, database: Database, using: str) -> None:
    """Rows of a savepoint that is rolled back are gone, and the mark is in no savepoint."""
    orders = Order.objects.using(using)
    with atomic(engine, using) as tx:
        orders.create(name="1")
        with pytest.raises(ValueError, match="inner"), transaction.atomic(using):
            orders.create(name="2")
            raise ValueError("inner")
        with pytest.raises(IntegrityError), transaction.atomic(using):
            orders.create(name="1")
        with transaction.atomic(using):
            orders.create(name="3")
        tx.send("orders", b"1 and 3")
    assert rows(database) == ["1", "3"]
    assert messages(engine) == ["1 and 3"]


def test_a_swallowed_error_rolls_both_back_and_is_reported(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """Django itself rolls such a block back without an error."""
    orders = Order.objects.using(using)
    with pytest.raises(TransactionManagementError), atomic(engine, using) as tx:
        orders.create(name="1")
        tx.send("orders", b"1")
        with pytest.raises(IntegrityError):
            orders.create(name="1")
    with pytest.raises(TransactionManagementError), atomic(engine, using) as tx:
        orders.create(name="2")
        tx.send("orders", b"2")
        transaction.set_rollback(True, using)
    assert rows(database) == messages(engine) == []


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """A constraint that is checked at COMMIT, as Django's own foreign keys are."""
    told(database, "DROP TABLE IF EXISTS lines")
    told(
        database,
        "CREATE TABLE lines (name varchar(99) REFERENCES orders DEFERRABLE INITIALLY DEFERRED)",
    )
    with pytest.raises(IntegrityError), atomic(engine, using, tx_id="order-1") as tx:
        with connections[using].cursor() as cursor:
            cursor.execute("INSERT INTO lines VALUES ('no such order')")
        tx.send("orders", b"1")
    told(database, "DROP TABLE lines")
    assert messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"


def test_functions_of_on_commit_find_the_messages(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """They run after both have committed. If one fails, both stay committed."""
    found: list[list[str]] = []

    def look() -> None:
        found.append(messages(engine))

    def fail() -> None:
        raise ValueError("in on_commit")

    with atomic(engine, using) as tx:
        tx.send("orders", b"1")
        transaction.on_commit(look, using)
        assert found == []
    with pytest.raises(fmq.RollBack), atomic(engine, using):
        transaction.on_commit(look, using)
        raise fmq.RollBack
    with pytest.raises(ValueError, match="in on_commit"), atomic(engine, using) as tx:
        Order.objects.using(using).create(name="2")
        tx.send("orders", b"2")
        transaction.on_commit(fail, using)
    assert found == [["1"]]
    assert rows(database) == ["2"]
    assert messages(engine) == ["1", "2"]


# --- in doubt -----------------------------------------------------------------------------------


class AnswerLost(sqlite3.Connection):
    """A connection whose commits raise errors of unknown outcome, from a given one on."""

    commits = -1
    happens = True

    def commit(self) -> None:
        self.commits -= 1
        if self.commits:
            super().commit()
            return
        if self.happens:
            super().commit()
        else:
            super().rollback()
        raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine, tmp_path: Path, happens: bool
) -> None:
    database = Sqlite(tmp_path)
    make_tables(database)
    using = point_at(database)
    options = connections[using].settings_dict["OPTIONS"]
    options["factory"] = AnswerLost
    try:
        place(engine, using, "0")
        driver = connections[using].connection
        assert isinstance(driver, AnswerLost)
        driver.commits, driver.happens = 1, happens
        with pytest.raises(fmq.bind.InDoubt) as caught:
            place(engine, using, "1")
    finally:
        del options["factory"]
        leave(using)
    assert isinstance(caught.value.__cause__, OperationalError), "Django's own"
    assert caught.value.outcome == engine.outcome("1")
    assert rows(database) == messages(engine) == (["0", "1"] if happens else ["0"])


DIE_AT_COMMIT = """
    CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER die AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION die();
"""


def test_a_server_that_is_lost_at_commit_is_asked_at_once(engine: fmq.Engine, address: str) -> None:
    """The connection is lost during the commit, and a new one finds that it did not happen."""
    database = Postgres(address)
    make_tables(database)
    using = point_at(database)
    place(engine, using, "0")
    told(database, DIE_AT_COMMIT)
    with pytest.raises(fmq.bind.InDoubt) as caught:
        place(engine, using, "1")
    told(database, "DROP TRIGGER die ON orders; DROP FUNCTION die")
    assert isinstance(caught.value.__cause__, OperationalError)
    assert caught.value.outcome == engine.outcome("1")
    assert engine.outcome("1").state == "rolled back"
    place(engine, using, "2")  # on a connection that Django has made anew
    assert rows(database) == messages(engine) == ["0", "2"]
    leave(using)


def test_a_transaction_that_was_ruled_out_raises_fenced(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    place(engine, using, "0")
    store, deadline = engine.feedback.store, "now()" if using == "postgres" else "0"
    told(
        database,
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline)"
        f" VALUES ('{store}', '1', 'R', {deadline})",
    )
    with pytest.raises(fmq.bind.Fenced):
        place(engine, using, "1")
    assert rows(database) == messages(engine) == ["0"]


def test_a_transaction_that_a_crash_left_is_decided_by_asking_an_alias(
    database: Database, using: str, tmp_path: Path
) -> None:
    with fmq.open(tmp_path / "crashed") as engine:
        place(engine, using, "0")
        for tx_id in ("committed", "not"):
            leave_prepared(engine, tx_id, tx_id.encode())
        deadline = "now()" if using == "postgres" else "0"
        told(
            database,
            "INSERT INTO fmq_tx (store_id, tx_id, state, deadline)"
            f" VALUES ('{engine.feedback.store}', 'committed', 'C', {deadline})",
        )
    with fmq.open(tmp_path / "crashed", resolve={PRODUCER: f"django://{using}"}) as engine:
        assert engine.undecided() == []
        assert messages(engine) == ["0", "committed"]
        assert engine.outcome("not").state == "rolled back"


def test_a_database_is_asked_after_django_closed_its_connection(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """Django closes it at the end of each request. The transaction here was not confirmed."""
    place(engine, using, "1")
    connections[using].close()
    tx = engine.transaction(tx_id="2", producer=PRODUCER, bind=connections[using])
    assert isinstance(tx, BoundTransaction)
    binding = tx._binding
    tx.__enter__()
    Order.objects.using(using).create(name="2")
    tx.send("orders", b"2")
    tx.seal()
    binding.commit()
    binding.leave()
    connections[using].close()
    assert engine.settle().committed == ("2",)
    assert rows(database) == messages(engine) == ["1", "2"]


def test_a_database_that_cannot_be_reached_answers_unknown(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    asked = question(engine)
    nowhere = Postgres(f"postgresql://postgres@/postgres?host={tmp_path}")
    for database in (Sqlite(tmp_path / "no such folder"), nowhere):
        alias = point_at(database)
        assert fmq.bind.checker_of(f"django://{alias}")(asked) == "unknown"
    with pytest.raises(BadOption, match="DATABASES has only default, postgres"):
        fmq.bind.checker_of("django://nonsense")


# --- as a decorator -----------------------------------------------------------------------------


def test_a_decorated_function_runs_in_a_new_block_at_each_call(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """This holds in the threads of a server, too, each with its own connection."""

    @atomic(lambda: engine, using)  # the engine may be opened after the function was made
    def place_one(order: str, *, tx: fmq.Transaction, fail: bool = False) -> str:
        """A function whose docstring the decorator keeps."""
        Order.objects.using(using).create(name=order)
        tx.send("orders", order.encode())
        if fail:
            raise ValueError(order)
        return order

    def place_some(first: int) -> None:
        for number in range(first, first + 3):
            place_one(str(number))
        leave(using)

    assert place_one("0") == "0"
    with pytest.raises(ValueError, match="1"):
        place_one("1", fail=True)
    threads = [threading.Thread(target=place_some, args=(first,)) for first in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place_one.__doc__ == "A function whose docstring the decorator keeps."
    assert len(rows(database)) == 10
    assert rows(database) == sorted(messages(engine))


def test_a_coroutine_function_is_not_decorated(engine: fmq.Engine) -> None:
    """Its block would end before its body begins."""
    with pytest.raises(TypeError, match="sync_to_async"):

        @atomic(engine)
        async def place() -> None: ...


# --- what is refused ----------------------------------------------------------------------------


def test_a_block_inside_of_another_block_is_refused(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """It could not know whether the outermost block commits."""
    with transaction.atomic(using):
        Order.objects.using(using).create(name="1")
        with (
            pytest.raises(fmq.bind.BindError, match=r"non_atomic_requests.*TransactionTestCase"),
            atomic(engine, using),
        ):
            pass
        with pytest.raises(fmq.bind.BindError, match="open already"):
            fmq.bind.create_table(connections[using])
        with pytest.raises(fmq.bind.BindError, match="open already"):
            fmq.bind.purge(engine, connections[using])
    with atomic(engine, using) as tx:
        Order.objects.using(using).create(name="2")
        tx.send("orders", b"2")
        with pytest.raises(fmq.bind.BindError, match="open already"), atomic(engine, using):
            pass
    assert rows(database) == ["1", "2"]
    assert messages(engine) == ["2"]


def test_django_without_autocommit_is_refused(engine: fmq.Engine, using: str) -> None:
    transaction.set_autocommit(False, using)
    with pytest.raises(fmq.bind.BindError, match="AUTOCOMMIT off"):
        engine.transaction(bind=connections[using])
    transaction.set_autocommit(True, using)


def test_a_connection_of_another_thread_is_refused(engine: fmq.Engine, using: str) -> None:
    """Models use the connection of this thread instead."""
    raised: list[BaseException] = []
    theirs = connections[using]

    def bind() -> None:
        try:
            engine.transaction(bind=theirs)
        except fmq.bind.BindError as error:
            raised.append(error)
        leave(using)

    thread = threading.Thread(target=bind)
    thread.start()
    thread.join()
    assert "belongs to another thread" in str(raised[0])


def test_a_missing_table_is_named_and_can_be_made(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    told(database, "DROP TABLE fmq_tx")
    with pytest.raises(fmq.bind.NoMarkerTable) as caught:
        place(engine, using, "1")
    assert database.ddl in str(caught.value)
    fmq.bind.create_table(connections[using])
    place(engine, using, "1")
    assert rows(database) == messages(engine) == ["1"]


def test_a_database_that_may_lose_commits_is_refused_if_strict(
    database: Database, using: str, tmp_path: Path
) -> None:
    setting = {"default": "PRAGMA synchronous = NORMAL", "postgres": "SET synchronous_commit = off"}
    with connections[using].cursor() as cursor:
        cursor.execute(setting[using])
    with (
        fmq.open(tmp_path / "strict", fmq.Options(strict_bind=True)) as engine,
        pytest.raises(fmq.bind.NotDurable, match="Nothing was begun"),
    ):
        place(engine, using, "1")


def test_a_connection_closed_inside_of_the_block_commits_neither_rows_nor_messages(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    with pytest.raises((TransactionManagementError, InterfaceError)), atomic(engine, using) as tx:
        Order.objects.using(using).create(name="1")
        tx.send("orders", b"1")
        connections[using].close()
    assert rows(database) == messages(engine) == []


def test_a_database_that_is_busy_leaves_nothing_begun(engine: fmq.Engine, tmp_path: Path) -> None:
    """SQLite has one writer, and the block takes the right to write when it begins."""
    database = Sqlite(tmp_path)
    make_tables(database)
    using = point_at(database)
    connections[using].settings_dict["OPTIONS"]["timeout"] = 0.1
    place(engine, using, "0")
    other = database.connect()
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseError, match="locked"):
        place(engine, using, "1")
    other.rollback()
    other.close()
    place(engine, using, "1")
    assert rows(database) == messages(engine) == ["0", "1"]
    del connections[using].settings_dict["OPTIONS"]["timeout"]
    leave(using)


# --- the marker table ---------------------------------------------------------------------------


def shape(database: Database) -> Any:
    """Return the description of the marker table that the database gives."""
    if isinstance(database, Sqlite):
        return told(database, "SELECT sql FROM sqlite_master WHERE tbl_name = 'fmq_tx'")
    columns = told(
        database,
        "SELECT column_name, data_type, character_maximum_length, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_name = 'fmq_tx' ORDER BY ordinal_position",
    )
    constraints = told(
        database,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = to_regclass('fmq_tx') ORDER BY 1",
    )
    return columns, constraints


def migrate(using: str, *target: str) -> None:
    from django.core.management import call_command

    call_command("migrate", *target, database=using, verbosity=0)


def test_the_migration_makes_the_table_that_ddl_prints(database: Database, using: str) -> None:
    wanted = shape(database)
    told(database, "DROP TABLE fmq_tx")
    told(database, "DROP TABLE IF EXISTS django_migrations")
    migrate(using)
    assert shape(database) == wanted
    migrate(using, "fmq", "zero")
    assert shape(database) in ([], ([], []))
    fmq.bind.create_table(connections[using])
    migrate(using)  # a table that is there is left as it is
    assert shape(database) == wanted


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_migrations_are_up_to_date_with_the_model(using: str) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_markers_can_be_read_and_are_not_flushed(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """`flush` leaves them, because only they show what became of transactions."""
    from datetime import UTC, datetime

    from django.core.management import call_command

    from fmq.bind.django.models import Marker

    before = datetime.now(UTC).replace(microsecond=0)
    place(engine, using, "1")
    call_command("flush", database=using, interactive=False, verbosity=0)
    markers = Marker.objects.using(using)
    found = markers.get(tx_id="1")
    assert (found.store_id, found.state, str(found)) == (engine.feedback.store, "C", "1")
    assert before <= found.created_at < found.deadline
    assert found.checked_at is None
    assert markers.filter(created_at__gte=before).count() == 2, "and the producer's own row"
    assert markers.filter(deadline__gt=found.deadline).count() == 0


def test_markers_are_purged_through_djangos_connection(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    place(engine, using, "1")
    assert fmq.bind.purge(engine, connections[using]) == 0
    assert fmq.bind.purge(engine, connections[using], older_seconds=-60) == 1

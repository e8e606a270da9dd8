"""A transaction bound to a Session or Connection of SQLAlchemy over SQLite: both, or neither."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool, StaticPool

import fmq
import fmq.bind
from fmq.bind.sqlalchemy.database import dialect_named
from fmq.errors import BadOption
from tests.bind.orm import AnswerLost, Order, driver_of, place, rows
from tests.bind.orm import database as made
from tests.bind.shop import PRODUCER, leave_prepared, messages, question


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    # No threads that ask: the tests are the first to ask.
    with fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0)) as engine:
        yield engine


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    database = made(tmp_path)
    yield database
    database.dispose()


@pytest.fixture
def session(database: Engine) -> Iterator[Session]:
    with Session(database) as session:
        yield session


def test_a_block_that_ends_commits_both(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    place(engine, session, "one")
    place(engine, session, "two", tx_id="order-2")
    assert rows(database) == messages(engine) == ["one", "two"]
    assert engine.outcome("order-2").state == "committed"
    assert not session.in_transaction()


def test_a_block_that_raises_commits_neither_rows_nor_messages(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    for error in (ValueError, fmq.RollBack, KeyboardInterrupt):
        with pytest.raises(error), engine.transaction(bind=session) as tx:
            session.add(Order(name="one"))
            session.flush()
            tx.send("orders", b"one")
            raise error
    place(engine, session, "two")
    assert rows(database) == messages(engine) == ["two"]


def test_a_listener_that_swallows_a_rollback_of_sqlite_commits_neither(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The marker is gone with the rows. The commit of sqlite3 then does nothing, and succeeds."""
    place(engine, session, "one")

    def swallow(session: Session) -> None:
        with contextlib.suppress(IntegrityError):
            session.connection().exec_driver_sql("INSERT OR ROLLBACK INTO orders VALUES ('one')")

    event.listen(session, "before_commit", swallow)
    with pytest.raises(fmq.bind.BindError, match="ended inside"):
        place(engine, session, "two", tx_id="order-2")
    event.remove(session, "before_commit", swallow)
    assert rows(database) == messages(engine) == ["one"]
    assert engine.outcome("order-2").state == "rolled back"
    place(engine, session, "three")
    assert rows(database) == messages(engine) == ["one", "three"]


def test_a_scoped_session_is_the_session_of_its_thread(
    engine: fmq.Engine, database: Engine
) -> None:
    session = scoped_session(sessionmaker(database))
    place(engine, session, "one")
    session.remove()
    assert rows(database) == messages(engine) == ["one"]


def test_a_connection_is_bound_as_a_session_is(engine: fmq.Engine, database: Engine) -> None:
    with database.connect() as connection:
        with engine.transaction(bind=connection) as tx:
            connection.execute(text("INSERT INTO orders VALUES ('one')"))
            tx.send("orders", b"one")
        with pytest.raises(ValueError), engine.transaction(bind=connection) as tx:  # noqa: PT011
            connection.execute(text("INSERT INTO orders VALUES ('two')"))
            tx.send("orders", b"two")
            raise ValueError
    assert rows(database) == messages(engine) == ["one"]


def test_objects_that_cannot_be_flushed_end_both(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The flush comes before the mark, so nothing was prepared."""
    place(engine, session, "one")
    session.expunge_all()
    with pytest.raises(IntegrityError):
        place(engine, session, "one", tx_id="order-2")
    place(engine, session, "two", tx_id="order-2")
    assert rows(database) == messages(engine) == ["one", "two"]


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """A deferred foreign key fails at COMMIT.

    The transaction is still open, so the rollback is certain.
    """
    with database.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE lines (name REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"
        )
    with pytest.raises(IntegrityError), engine.transaction(tx_id="order-1", bind=session) as tx:
        session.execute(text("INSERT INTO orders VALUES ('one')"))
        session.execute(text("INSERT INTO lines VALUES ('no such order')"))
        tx.send("orders", b"one")
    assert rows(database) == messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"
    place(engine, session, "two")


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"pool_size": 1, "max_overflow": 0}, {"poolclass": NullPool}, {"poolclass": StaticPool}],
    ids=["pool", "pool of one", "no pool", "static pool"],
)
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    tmp_path: Path, happens: bool, options: dict[str, Any]
) -> None:
    """The check uses a new connection even if the pool is empty, and the messages follow it."""
    database = made(tmp_path, connect_args={"factory": AnswerLost}, **options)
    with fmq.open(tmp_path / "shop") as engine, Session(database) as session:
        with (
            pytest.raises(fmq.bind.InDoubt) as caught,
            engine.transaction(tx_id="order-1", producer=PRODUCER, bind=session) as tx,
        ):
            session.add(Order(name="one"))
            tx.send("orders", b"one")
            driver_of(session).happens = happens
        assert isinstance(caught.value.__cause__, OperationalError)
        assert caught.value.outcome == engine.outcome("order-1")
        assert rows(database) == messages(engine) == (["one"] if happens else [])
        session.expunge_all()
        place(engine, session, "two")
    database.dispose()


def test_a_hook_that_fails_before_the_commit_leaves_no_doubt(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The hook runs after the mark, and COMMIT was not tried."""

    def refuse(session: Session) -> None:
        raise ValueError("not today")

    event.listen(session, "before_commit", refuse)
    with pytest.raises(ValueError, match="not today"):
        place(engine, session, "one", tx_id="order-1")
    assert rows(database) == messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"


def test_a_hook_that_fails_after_the_commit_undoes_nothing(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    def complain(session: Session) -> None:
        raise ValueError("too late")

    event.listen(session, "after_commit", complain)
    with pytest.raises(fmq.bind.InDoubt, match="found that it did"):
        place(engine, session, "one")
    assert rows(database) == messages(engine) == ["one"]


# --- savepoints -----------------------------------------------------------------------------------


def test_a_savepoint_that_is_rolled_back_leaves_the_marker(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with engine.transaction(bind=session) as tx:
        session.add(Order(name="one"))
        tx.send("orders", b"one")
        with contextlib.suppress(ValueError), session.begin_nested():
            session.add(Order(name="two"))
            raise ValueError
        with session.begin_nested():
            session.add(Order(name="three"))
    assert rows(database) == ["one", "three"]
    assert messages(engine) == ["one"]


def test_a_savepoint_before_the_first_statement_commits_nothing(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """By itself sqlite3 would not begin before the savepoint, and its release would commit."""
    with pytest.raises(fmq.RollBack), engine.transaction(bind=session) as tx:
        with session.begin_nested():
            session.add(Order(name="one"))
        tx.send("orders", b"one")
        raise fmq.RollBack
    assert rows(database) == messages(engine) == []


# --- what cannot be bound -------------------------------------------------------------------------


def test_a_maker_of_connections_or_sessions_is_refused(
    engine: fmq.Engine, database: Engine
) -> None:
    """An engine or a sessionmaker has no transaction, and a pool's connection is not the driver's.

    Each is refused by its name. Making the table accepts an engine.
    """
    with contextlib.closing(database.raw_connection()) as pooled:
        for wrong in (database, sessionmaker(database), pooled, text("SELECT 1")):
            with pytest.raises(fmq.bind.BindError, match=r"sqlalchemy\..* cannot be bound: it"):
                engine.transaction(bind=wrong)
        for wrong in (sessionmaker(database), pooled):
            with pytest.raises(fmq.bind.BindError, match=r"cannot be bound: it must"):
                fmq.bind.create_table(wrong)
            with pytest.raises(fmq.bind.BindError, match=r"cannot be bound: it must"):
                fmq.bind.purge(engine, wrong)
    fmq.bind.create_table(database)
    assert fmq.bind.purge(engine, database) == 0


def refused(engine: fmq.Engine, bound: object, match: str) -> None:
    with pytest.raises(fmq.bind.BindError, match=match), engine.transaction(bind=bound):
        pass


def test_a_transaction_that_is_open_already_is_refused(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    session.add(Order(name="begun before"))
    refused(engine, session, "a transaction open already")
    session.rollback()
    with database.connect() as connection:
        connection.execute(text("SELECT 1"))
        refused(engine, connection, "a transaction open already")
    place(engine, session, "one")


def test_autocommit_is_refused(engine: fmq.Engine, database: Engine) -> None:
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        refused(engine, connection, "commits each statement by itself")
        assert not connection.in_transaction()
    with Session(database.execution_options(isolation_level="AUTOCOMMIT")) as session:
        refused(engine, session, "commits each statement by itself")


@pytest.mark.parametrize("options", [{}, {"poolclass": StaticPool}])
def test_a_database_in_memory_is_refused(engine: fmq.Engine, options: dict[str, Any]) -> None:
    memory = sqlalchemy.create_engine("sqlite://", **options)
    with Session(memory) as session:
        refused(engine, session, "gone with its process")
    memory.dispose()


def test_a_session_that_has_not_one_database_is_refused(
    engine: fmq.Engine, database: Engine
) -> None:
    refused(engine, Session(binds={Order: database}), "no one database")
    with database.connect() as connection:
        refused(engine, Session(connection), "bind the connection")


def test_a_session_that_works_in_another_database_is_refused(
    engine: fmq.Engine, database: Engine, tmp_path: Path
) -> None:
    """Rows of the other database would commit without a mark and without messages."""
    (tmp_path / "other").mkdir()
    other = made(tmp_path / "other")
    session = Session(database, binds={Order: other})
    with pytest.raises(fmq.bind.BindError, match="another database"):
        place(engine, session, "one")
    assert rows(database) == rows(other) == messages(engine) == []
    with engine.transaction(bind=session) as tx:
        session.execute(text("INSERT INTO orders VALUES ('two')"))
        tx.send("orders", b"two")
    assert rows(database) == messages(engine) == ["two"]
    other.dispose()


def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(fmq.bind.BindError, match="'oracle' cannot be bound; these can: sqlite"):
        dialect_named("oracle")


def test_a_commit_of_the_program_inside_of_the_block_is_refused(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    for end in (session.commit, lambda: session.execute(text("COMMIT"))):
        with (
            pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
            engine.transaction(bind=session) as tx,
        ):
            session.add(Order(name=f"{end}"))
            session.flush()
            tx.send("orders", b"one")
            end()
    assert len(rows(database)) == 2
    assert messages(engine) == []


def rolled_back_by_sqlite(session: Session) -> None:
    session.execute(text("CREATE TABLE once (name PRIMARY KEY ON CONFLICT ROLLBACK)"))
    for _ in range(2):
        with contextlib.suppress(IntegrityError):
            session.execute(text("INSERT INTO once VALUES (1)"))


@pytest.mark.parametrize(
    "end", [rolled_back_by_sqlite, lambda session: session.execute(text("ROLLBACK"))]
)
def test_a_transaction_that_ended_is_noticed_after_another_began(
    engine: fmq.Engine, session: Session, database: Engine, end: Callable[[Session], object]
) -> None:
    """SQLite itself ended it, or a statement that SQLAlchemy does not understand."""
    with (
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=session) as tx,
    ):
        session.execute(text("INSERT INTO orders VALUES ('one')"))
        tx.send("orders", b"one")
        end(session)
        session.execute(text("INSERT INTO orders VALUES ('two')"))
    assert rows(database) == messages(engine) == []
    place(engine, session, "three")
    assert rows(database) == messages(engine) == ["three"]


def test_a_savepoint_that_is_open_at_the_end_is_committed_along(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with engine.transaction(bind=session) as tx:
        session.begin_nested()
        session.begin_nested()
        session.add(Order(name="one"))
        tx.send("orders", b"one")
    with database.connect() as connection, engine.transaction(bind=connection) as tx:
        connection.begin_nested()
        connection.execute(text("INSERT INTO orders VALUES ('two')"))
        tx.send("orders", b"two")
    assert rows(database) == messages(engine) == ["one", "two"]


# --- pysqlite's ways ------------------------------------------------------------------------------


def test_a_program_may_begin_transactions_by_itself(engine: fmq.Engine, tmp_path: Path) -> None:
    """It uses SQLAlchemy's recipe for savepoints: no isolation_level, and BEGIN in an event."""
    database = made(tmp_path)
    database.dispose()

    @event.listens_for(database, "connect")
    def leave_it(driver: Any, record: object) -> None:
        driver.isolation_level = None

    @event.listens_for(database, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with Session(database) as session:
        place(engine, session, "one")
        with pytest.raises(OperationalError, match="locked"), engine.transaction(bind=session):
            session.execute(text("SELECT * FROM orders"))
            with sqlite3.connect(tmp_path / "shop.db") as other:
                other.execute("INSERT INTO orders VALUES ('two')")
            other.close()
            session.add(Order(name="three"))  # after this transaction has read
    assert rows(database) == ["one", "two"]
    assert messages(engine) == ["one"]
    assert engine.undecided() == []
    database.dispose()


def test_a_database_that_may_lose_commits_is_warned_about(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    event.listen(
        database, "connect", lambda driver, record: driver.execute("PRAGMA synchronous = NORMAL")
    )
    database.dispose()
    with (
        pytest.warns(fmq.bind.DurabilityWarning, match="synchronous=FULL") as warned,
        engine.transaction(bind=session),
    ):
        pass
    assert warned[0].filename == __file__


# --- the table, the checker -----------------------------------------------------------------------


def test_a_missing_table_is_named_with_the_statement_that_makes_it(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with database.begin() as connection:
        connection.execute(text("DROP TABLE fmq_tx"))
    with pytest.raises(fmq.bind.NoMarkerTable) as caught:
        engine.transaction(bind=session)
    assert fmq.bind.ddl("sqlite") in str(caught.value)
    for _ in range(2):
        fmq.bind.create_table(session)
    place(engine, session, "one")
    with database.begin() as connection:
        connection.execute(text("DROP TABLE fmq_tx"))
    session.expunge_all()
    with pytest.raises(fmq.bind.NoMarkerTable):
        place(engine, session, "two")
    assert rows(database) == messages(engine) == ["one"]


def mark(session: Session, asked: fmq.Question, state: str = "C") -> None:
    session.execute(
        text("INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (:a, :b, :c, 0)"),
        {"a": asked.store, "b": asked.tx_id, "c": state},
    )


@pytest.fixture
def check(tmp_path: Path) -> Any:
    return fmq.bind.checker_of(f"sqlite+pysqlite:///{tmp_path}/shop.db")


def test_a_checker_waits_for_no_lock_and_reads_the_committed_state(
    engine: fmq.Engine, session: Session, check: Any
) -> None:
    place(engine, session, "registers the producer")
    asked = question(engine)
    mark(session, asked)
    assert check(asked) == "unknown"
    session.commit()
    assert check(asked) == "commit"


def test_a_checker_rules_out_a_transaction_without_a_marker(
    engine: fmq.Engine, session: Session, check: Any
) -> None:
    place(engine, session, "registers the producer")
    asked = question(engine)
    assert check(asked) == check(asked) == "rollback"
    with pytest.raises(IntegrityError):
        mark(session, asked)


def test_a_producer_that_was_ruled_out_raises_fenced(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    place(engine, session, "registers the producer")
    session.execute(
        text("INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (:a, 'late', 'R', 0)"),
        {"a": engine.feedback.store},
    )
    session.commit()
    with pytest.raises(fmq.bind.Fenced, match="ruled it out"):
        place(engine, session, "one", tx_id="late")
    assert rows(database) == messages(engine) == ["registers the producer"]
    assert engine.undecided() == []


def test_a_database_that_was_never_bound_answers_nothing(
    engine: fmq.Engine, database: Engine, check: Any
) -> None:
    with pytest.raises(fmq.bind.WrongDatabase, match="name the right database"):
        check(question(engine))


def test_the_answer_is_unknown_without_a_database(engine: fmq.Engine, tmp_path: Path) -> None:
    check = fmq.bind.checker_of(f"sqlite+pysqlite:///{tmp_path}/nowhere/shop.db")
    assert check(question(engine)) == "unknown"


@pytest.mark.parametrize("kind", ["URL", "engine", "disposed engine"])
def test_a_transaction_that_a_crash_left_is_decided_at_open(
    database: Engine, session: Session, tmp_path: Path, kind: str
) -> None:
    with fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0)) as engine:
        place(engine, session, "registers the producer")
        mark(session, question(engine, "order-1"))
        session.commit()
        leave_prepared(engine, "order-2")
    if kind == "disposed engine":
        session.close()
        database.dispose()
    address = f"sqlite+pysqlite:///{tmp_path}/shop.db" if kind == "URL" else database
    with fmq.open(tmp_path / "shop", resolve={PRODUCER: address}) as engine:
        assert engine.undecided() == []
        assert engine.outcome("order-1").state == "committed"
        assert engine.outcome("order-2").state == "rolled back"


@pytest.mark.parametrize("address", ["sqlite+nonsense:///x", "nonsense+sqlite://", "a+b"])
def test_an_address_that_sqlalchemy_does_not_know_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadOption, match="SQLAlchemy can reach"):
        fmq.open(tmp_path / "shop", resolve={PRODUCER: address})


def test_markers_that_no_checker_needs_are_purged(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    for tx_id in ("old", "young"):
        place(engine, session, tx_id, tx_id=tx_id)
    with database.begin() as connection:
        connection.execute(
            text("UPDATE fmq_tx SET created_at = created_at - 8 * 86400 WHERE tx_id <> 'young'")
        )
    assert fmq.bind.purge(engine, session) == 1
    assert fmq.bind.purge(engine, database) == 0
    left = session.scalars(text("SELECT tx_id FROM fmq_tx"))
    assert set(left) == {"young", f"§{PRODUCER}"}


def test_a_producer_may_bind_a_database_through_either_library(
    engine: fmq.Engine, session: Session, tmp_path: Path
) -> None:
    """Both libraries reach the same file."""
    place(engine, session, "one")
    plain = sqlite3.connect(tmp_path / "shop.db")
    with engine.transaction(producer=PRODUCER, bind=plain) as tx:
        plain.execute("INSERT INTO orders VALUES ('two')")
        tx.send("orders", b"two")
    plain.close()
    assert messages(engine) == ["one", "two"]

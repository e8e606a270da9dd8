"""SQLAlchemy over a real PostgreSQL: what it does differently from SQLite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, MetaData, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InternalError
from sqlalchemy.orm import Session

import fmq
import fmq.bind
from fmq.bind.sqlalchemy import attach, marker_table
from tests.bind.orm import Base, Order, driver_of, place, rows
from tests.bind.shop import PRODUCER, messages, question


@pytest.fixture(scope="session")
def address(address: str) -> str:
    """The address of the tests' server, as SQLAlchemy writes it."""
    return address.replace("postgresql:", "postgresql+psycopg:")


@pytest.fixture
def database(address: str) -> Iterator[Engine]:
    """The database, with new, empty tables."""
    database = sqlalchemy.create_engine(address)
    with database.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS orders, fmq_tx"))
    Base.metadata.create_all(database)
    fmq.bind.create_table(database)
    yield database
    database.dispose()


@pytest.fixture
def session(database: Engine) -> Iterator[Session]:
    with Session(database) as session:
        yield session


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    # No threads that ask: the tests are the first to ask.
    with fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0)) as engine:
        yield engine


def test_a_block_that_ends_commits_both_and_one_that_raises_neither(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    place(engine, session, "1")
    with pytest.raises(ValueError), engine.transaction(bind=session) as tx:  # noqa: PT011
        session.add(Order(name="2"))
        tx.send("orders", b"2")
        raise ValueError
    place(engine, session, "3")
    with database.connect() as connection, engine.transaction(bind=connection) as tx:
        connection.execute(text("INSERT INTO orders VALUES ('4')"))
        tx.send("orders", b"4")
    assert rows(database) == messages(engine) == ["1", "3", "4"]


MARK = text("INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (:a, :b, 'C', now())")


def swallow(session: Session) -> None:
    """Swallow an error, so that PostgreSQL rolls back at COMMIT and reports success."""
    with contextlib.suppress(DBAPIError):
        session.execute(text("INSERT INTO nonsense VALUES (1)"))


def test_the_marker_detects_a_swallowed_error(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with pytest.raises(InternalError), engine.transaction(bind=session) as tx:
        session.add(Order(name="1"))
        tx.send("orders", b"1")
        swallow(session)
    outbox = attach(session, engine)
    with pytest.raises(InternalError):
        commit_one(session, outbox, swallow)
    session.rollback()
    assert rows(database) == messages(engine) == []
    assert engine.undecided() == []


def commit_one(session: Session, outbox: Any, then: Any) -> str:
    """Place an order by the session's own commit, and return the id of its transaction."""
    session.add(Order(name="1"))
    session.flush()
    outbox.of(session).send("orders", b"1")
    tx_id: str = outbox.of(session).tx_id
    then(session)
    session.commit()
    return tx_id


def test_an_error_that_a_hook_swallows_after_the_marker_is_detected(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The commit returns without an error, but the database is asked and has rolled back."""
    outbox = attach(session, engine)
    event.listen(session, "before_commit", swallow)
    tx_id = commit_one(session, outbox, lambda session: None)
    assert rows(database) == messages(engine) == []
    assert engine.outcome(tx_id).state == "rolled back"


def test_a_block_checks_after_the_hooks_that_its_transaction_is_open(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """Otherwise the server rolls back at COMMIT, reports success, and the messages appear."""
    event.listen(session, "before_commit", swallow)
    with pytest.raises(InternalError), engine.transaction(bind=session) as tx:
        session.add(Order(name="1"))
        tx.send("orders", b"1")
    assert rows(database) == messages(engine) == []
    assert engine.undecided() == []


def test_a_commit_that_the_server_refuses_rolls_both_back(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """A constraint that is checked at COMMIT fails, and the server's error proves the rollback."""
    with database.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS lines"))
        connection.execute(text("CREATE TABLE lines (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)"))
    with pytest.raises(IntegrityError), engine.transaction(tx_id="a", bind=session) as tx:
        session.execute(text("INSERT INTO lines VALUES (1), (1)"))
        tx.send("orders", b"1")
    outbox = attach(session, engine)
    with pytest.raises(IntegrityError):
        commit_one(
            session,
            outbox,
            lambda session: session.execute(text("INSERT INTO lines VALUES (1), (1)")),
        )
    session.rollback()
    assert rows(database) == messages(engine) == []
    assert engine.outcome("a").state == "rolled back"
    assert engine.undecided() == []


def test_a_hook_that_fails_before_the_commit_leaves_no_doubt(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The hook runs after the mark, and COMMIT was not tried."""

    def refuse(session: Session) -> None:
        raise ValueError("not today")

    event.listen(session, "before_commit", refuse)
    with pytest.raises(ValueError, match="not today"):
        place(engine, session, "1", tx_id="a")
    assert rows(database) == messages(engine) == []
    assert engine.outcome("a").state == "rolled back"


def test_a_commit_of_the_program_inside_of_the_block_is_refused(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with (
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=session) as tx,
    ):
        session.add(Order(name="1"))
        tx.send("orders", b"1")
        session.commit()
    assert rows(database) == ["1"]
    assert messages(engine) == []


def test_a_transaction_that_ended_is_noticed_after_another_began(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The driver's connection ended it, which SQLAlchemy does not notice."""
    with (
        pytest.raises(fmq.bind.BindError, match="ended inside of the block"),
        engine.transaction(bind=session) as tx,
    ):
        session.execute(text("INSERT INTO orders VALUES ('1')"))
        tx.send("orders", b"1")
        driver_of(session).rollback()
        session.execute(text("INSERT INTO orders VALUES ('2')"))
    assert rows(database) == messages(engine) == []


@pytest.mark.parametrize("way", ["bound", "followed"])
def test_a_marker_in_the_table_of_another_schema_is_refused(
    engine: fmq.Engine, session: Session, database: Engine, way: str
) -> None:
    """The checker would not find the mark, and would roll the messages back."""
    with database.begin() as connection:
        for statement in (
            "CREATE SCHEMA tenant",
            "SET LOCAL search_path TO tenant",
            fmq.bind.ddl("postgres"),
        ):
            connection.execute(text(statement))
    outbox = attach(session, engine, producer=PRODUCER)
    try:
        with pytest.raises(fmq.bind.BindError, match="the fmq_tx of another schema"):
            if way == "bound":
                with engine.transaction(producer=PRODUCER, bind=session) as tx:
                    session.execute(text("SET LOCAL search_path TO tenant, public"))
                    session.add(Order(name="1"))
                    tx.send("orders", b"1")
            else:
                session.execute(text("SET LOCAL search_path TO tenant, public"))
                session.add(Order(name="1"))
                outbox.of(session).send("orders", b"1")
                session.commit()
        session.rollback()
        place(engine, session, "2")
    finally:
        with database.begin() as connection:
            connection.execute(text("DROP SCHEMA tenant CASCADE"))
    assert rows(database) == messages(engine) == ["2"]
    assert engine.undecided() == []


def break_at_commit(database: Engine, session: Session, happens: bool) -> None:
    """Make the server end the session's connection right before its COMMIT, or right after it."""
    driver = driver_of(session)
    commit, backend = driver.commit, driver.info.backend_pid

    def broken() -> None:
        if happens:
            commit()
        with database.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
        driver.execute("SELECT 1")

    driver.commit = broken


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("way", ["bound", "followed"])
def test_a_connection_that_breaks_at_commit_is_checked_at_once(
    engine: fmq.Engine, session: Session, database: Engine, happens: bool, way: str
) -> None:
    with pytest.raises(fmq.bind.InDoubt) as caught:
        if way == "bound":
            with engine.transaction(tx_id="a", producer=PRODUCER, bind=session) as tx:
                session.add(Order(name="1"))
                tx.send("orders", b"1")
                break_at_commit(database, session, happens)
        else:
            outbox = attach(session, engine, producer=PRODUCER)
            commit_one(session, outbox, lambda session: break_at_commit(database, session, happens))
    assert caught.value.outcome is not None
    assert rows(database) == messages(engine) == (["1"] if happens else [])
    session.rollback()
    session.expunge_all()
    place(engine, session, "2")
    assert rows(database) == messages(engine) == (["1", "2"] if happens else ["2"])


def test_an_error_of_the_program_stays_when_the_connection_is_lost_as_well(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    """The rollback fails then, and its error would say less."""
    with pytest.raises(ValueError, match="the program's"), engine.transaction(bind=session) as tx:
        tx.send("orders", b"1")
        backend = driver_of(session).info.backend_pid
        with database.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
        raise ValueError("the program's")
    place(engine, session, "2")
    assert rows(database) == messages(engine) == ["2"]


def test_the_answer_is_unknown_while_the_producers_transaction_is_open(
    engine: fmq.Engine, session: Session, address: str
) -> None:
    """The checker waits only shortly for the row of the open transaction."""
    place(engine, session, "registers the producer")
    check = fmq.bind.checker_of(address)
    answers = {}
    for end in (session.commit, session.rollback):
        asked = question(engine, end.__name__)
        session.execute(
            text(
                "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES (:a, :b, 'C', now())"
            ),
            {"a": asked.store, "b": asked.tx_id},
        )
        assert check(asked) == "unknown"
        end()
        answers[end.__name__] = check(asked)
    assert answers == {"commit": "commit", "rollback": "rollback"}


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_checker_sees_a_marker_at_any_isolation_level(
    engine: fmq.Engine, database: Engine, address: str, level: str
) -> None:
    strict = sqlalchemy.create_engine(address, isolation_level=level)
    with Session(strict) as session:
        place(engine, session, "1")
        asked = question(engine)
        check = fmq.bind.checker_of(strict)
        assert check(asked) == check(asked) == "rollback"
    strict.dispose()


def test_a_session_in_two_phases_can_be_bound(engine: fmq.Engine, database: Engine) -> None:
    """SQLAlchemy's two-phase session uses PREPARE TRANSACTION and COMMIT PREPARED."""
    with Session(database, twophase=True) as session:
        place(engine, session, "1")
        outbox = attach(session, engine)
        session.add(Order(name="2"))
        outbox.of(session).send("orders", b"2")
        session.commit()
    assert rows(database) == messages(engine) == ["1", "2"]


def test_a_connection_that_cannot_be_bound_is_refused(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with (
        database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(fmq.bind.BindError, match="commits each statement"),
        engine.transaction(bind=connection),
    ):
        pass
    session.execute(text("DROP TABLE fmq_tx"))
    session.commit()
    with pytest.raises(fmq.bind.NoMarkerTable, match="varchar"):
        place(engine, session, "1")


def test_a_server_that_may_lose_commits_is_warned_about(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    with database.begin() as connection:
        connection.execute(text("ALTER ROLE postgres SET synchronous_commit = off"))
    database.dispose()
    with pytest.warns(fmq.bind.DurabilityWarning, match="synchronous_commit=off"):
        place(engine, session, "1")
    with database.begin() as connection:
        connection.execute(text("ALTER ROLE postgres RESET synchronous_commit"))


def test_markers_that_no_checker_needs_are_purged(
    engine: fmq.Engine, session: Session, database: Engine
) -> None:
    for tx_id in ("old", "young"):
        place(engine, session, tx_id, tx_id=tx_id)
    session.execute(
        text("UPDATE fmq_tx SET created_at = created_at - interval '8 d' WHERE tx_id <> 'young'")
    )
    session.commit()
    assert fmq.bind.purge(engine, session) == 1
    left = session.scalars(text("SELECT tx_id FROM fmq_tx"))
    assert set(left) == {"young", f"§{PRODUCER}"}


COLUMNS = (
    "SELECT attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)"
    " FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
    " WHERE attrelid = 'fmq_tx'::regclass AND attnum > 0 ORDER BY attnum"
)
CONSTRAINTS = (
    "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE conrelid = 'fmq_tx'::regclass ORDER BY conname"
)
INDEXES = "SELECT indexdef FROM pg_indexes WHERE tablename = 'fmq_tx'"


def test_each_way_to_make_the_marker_table_gives_that_of_fmq_ddl(database: Engine) -> None:
    """The comparison covers columns, defaults, constraints and indexes."""
    metadata = MetaData()
    marker_table(metadata)
    found = []
    for make in (
        lambda: execute(database, fmq.bind.ddl("postgres")),
        lambda: metadata.create_all(database),
        lambda: fmq.bind.create_table(database),
    ):
        execute(database, "DROP TABLE fmq_tx")
        make()
        with database.connect() as connection:
            looks = COLUMNS, CONSTRAINTS, INDEXES
            found.append([connection.exec_driver_sql(look).all() for look in looks])
    assert len(found[0][0]) == 6
    assert found == [found[0]] * 3


def execute(database: Engine, statement: str) -> None:
    with database.begin() as connection:
        connection.exec_driver_sql(statement)

"""A data manager of the `transaction` package, beside that of zope.sqlalchemy and others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import transaction
import zope.sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool
from transaction import TransactionManager

import fmq
import fmq.bind
from fmq.bind.zope import join
from fmq.errors import WrongState
from tests.bind.orm import AnswerLost, Base, Order, driver_of, rows
from tests.bind.orm import database as made
from tests.bind.shop import PRODUCER, messages, reopened

ROOT = Path(__file__).parent.parent.parent
CALLS_MAX = 30


@pytest.fixture
def manager() -> TransactionManager:
    return TransactionManager()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    database = made(tmp_path, connect_args={"factory": AnswerLost})
    yield database
    database.dispose()


@pytest.fixture
def session(database: Engine, manager: TransactionManager) -> Session:
    return registered(database, manager)


def registered(database: Engine, manager: TransactionManager) -> Session:
    session = Session(database)
    zope.sqlalchemy.register(session, transaction_manager=manager)
    return session


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "shop") as engine:
        yield engine


def place(
    engine: fmq.Engine, session: Session, manager: Any, order: str, tx_id: str | None = None
) -> None:
    """One order of the current transaction, which is not committed yet."""
    tx = join(engine, session, producer=PRODUCER, tx_id=tx_id, manager=manager)
    session.add(Order(name=order))
    tx.send("orders", order.encode())


class Resource:
    """Another data manager, which does something of its own at one of the calls."""

    def __init__(self, manager: Any, key: str, at: str, act: Callable[[], None]) -> None:
        self.transaction_manager = manager
        self.sortKey = lambda: key
        for name in ("abort", "tpc_begin", "commit", "tpc_vote", "tpc_finish", "tpc_abort"):
            setattr(self, name, (lambda _: act()) if name == at else (lambda _: None))
        manager.get().join(self)


class No(Exception):
    """What a resource says."""


def refuse() -> None:
    raise No


def test_both_are_committed_or_aborted_with_the_current_transaction(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager
) -> None:
    place(engine, session, manager, "one", tx_id="order-1")
    manager.commit()
    place(engine, session, manager, "two")
    manager.abort()
    place(engine, session, manager, "three")
    place(engine, session, manager, "four")
    manager.commit()
    assert rows(database) == messages(engine) == ["one", "three", "four"]
    assert engine.outcome("order-1").state == "committed"


def test_the_threads_own_transaction_is_joined_if_no_other_is_named(
    engine: fmq.Engine, database: Engine
) -> None:
    session = scoped_session(sessionmaker(database))
    zope.sqlalchemy.register(session)
    join(engine, session).send("orders", b"one")
    session.add(Order(name="one"))
    transaction.commit()
    assert rows(database) == messages(engine) == ["one"]


def test_a_session_that_has_written_nothing_that_is_known_commits_nevertheless(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager
) -> None:
    """zope.sqlalchemy closes a session whose statements were not those of its objects."""
    tx = join(engine, session, producer=PRODUCER, manager=manager)
    session.execute(text("INSERT INTO orders VALUES ('one')"))
    tx.send("orders", b"one")
    manager.commit()
    join(engine, session, producer=PRODUCER, manager=manager).send("orders", b"no row")
    manager.commit()
    assert rows(database) == ["one"]
    assert messages(engine) == ["one", "no row"]


def test_what_a_later_hook_writes_belongs_to_it(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager
) -> None:
    """The mark is made by the vote, so it is the last statement whatever hooks there are."""
    place(engine, session, manager, "one")
    manager.get().addBeforeCommitHook(lambda: session.add(Order(name="two")))
    manager.commit()
    assert rows(database) == ["one", "two"]
    assert messages(engine) == ["one"]


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, tmp_path: Path, manager: TransactionManager
) -> None:
    """It does so by its vote, after the messages were prepared: the mark tells. There is no pool,
    as SQLAlchemy would give it a connection on which the refused transaction is still open.
    """
    database = made(tmp_path, poolclass=NullPool)
    session = registered(database, manager)
    with database.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE lines (name REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"
        )
    place(engine, session, manager, "one", tx_id="order-1")
    session.execute(text("INSERT INTO lines VALUES ('no such order')"))
    with pytest.raises(IntegrityError):
        manager.commit()
    assert rows(database) == messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"
    manager.abort()
    place(engine, session, manager, "two")
    manager.commit()
    assert rows(database) == messages(engine) == ["two"]


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine,
    session: Session,
    database: Engine,
    manager: TransactionManager,
    happens: bool,
) -> None:
    place(engine, session, manager, "one", tx_id="order-1")
    driver_of(session).happens = happens
    with pytest.raises(DBAPIError):
        manager.commit()
    assert rows(database) == messages(engine) == (["one"] if happens else [])
    assert engine.undecided() == []


@pytest.mark.parametrize("key", ["a", "~g"])
def test_when_another_resource_refuses_nothing_is_left(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager, key: str
) -> None:
    """Before the messages were prepared, and after; the database has not committed then."""
    place(engine, session, manager, "one", tx_id="order-1")
    Resource(manager, key, "tpc_vote", refuse)
    with pytest.raises(No):
        manager.commit()
    assert rows(database) == messages(engine) == []
    assert engine.undecided() == []


def test_when_another_resource_fails_to_finish_the_messages_follow_the_database(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager
) -> None:
    """It is against the rules, and the package tells all to abort, which have not finished."""
    place(engine, session, manager, "one")
    Resource(manager, "a", "tpc_finish", refuse)
    with pytest.raises(No):
        manager.commit()
    assert rows(database) == messages(engine) == ["one"]


def test_an_engine_that_cannot_show_the_messages_now_does_so_later(
    engine: fmq.Engine,
    session: Session,
    database: Engine,
    manager: TransactionManager,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing may be raised when all have voted: it is logged."""
    place(engine, session, manager, "one", tx_id="order-1")
    Resource(manager, "a", "tpc_finish", engine.close)
    manager.commit()
    [record] = caplog.records
    assert "'order-1'" in record.getMessage()
    with reopened(tmp_path) as again:
        assert rows(database) == messages(again) == ["one"]


def test_a_session_of_another_transaction_decides_nothing(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager
) -> None:
    """It has not committed when this one has, so the messages are not shown."""
    session.add(Order(name="one"))  # joins the transaction that it is registered for
    other = TransactionManager()
    tx = join(engine, session, producer=PRODUCER, tx_id="order-1", manager=other)
    tx.send("orders", b"one")
    other.commit()
    assert messages(engine) == []
    manager.abort()
    engine.settle()
    assert rows(database) == messages(engine) == []
    assert engine.outcome("order-1").state == "rolled back"


def test_a_session_that_works_in_another_database_too_is_refused(
    engine: fmq.Engine, session: Session, database: Engine, manager: TransactionManager
) -> None:
    """That part would have no mark."""
    place(engine, session, manager, "one")
    other = sqlalchemy.create_engine("sqlite://")
    session.execute(text("SELECT 1"), bind_arguments={"bind": other})
    with pytest.raises(fmq.bind.BindError, match="another database, too"):
        manager.commit()
    assert rows(database) == messages(engine) == []
    other.dispose()


def test_a_database_that_may_forget_is_refused_if_the_user_says_so(
    database: Engine, manager: TransactionManager, tmp_path: Path
) -> None:
    session = registered(database, manager)
    session.execute(text("PRAGMA synchronous = OFF"))
    with fmq.open(tmp_path / "shop", fmq.Options(strict_bind=True)) as engine:
        place(engine, session, manager, "one")
        with pytest.raises(fmq.bind.NotDurable):
            manager.commit()
        assert rows(database) == messages(engine) == []


def test_only_a_session_is_joined(
    engine: fmq.Engine, manager: TransactionManager, database: Engine
) -> None:
    """A connection or an engine is refused, and the current transaction goes on without it."""
    with manager, database.connect() as connection:
        for wrong in (connection, database):
            with pytest.raises(fmq.bind.BindError, match="what is joined is a Session"):
                join(engine, wrong, manager=manager)  # type: ignore[arg-type]
    assert messages(engine) == []


def test_a_session_in_two_phases_is_refused(
    engine: fmq.Engine, database: Engine, manager: TransactionManager
) -> None:
    with pytest.raises(fmq.bind.BindError, match="without twophase=True"):
        join(engine, Session(database, twophase=True), manager=manager)


# --- savepoints ---------------------------------------------------------------------------------


def test_a_savepoint_drops_what_came_after_it(
    engine: fmq.Engine, manager: TransactionManager
) -> None:
    tx = join(engine, manager=manager)
    tx.send("orders", b"one")
    savepoint = manager.savepoint()
    tx.send("orders", b"two")
    tx.send("emails", b"two")
    savepoint.rollback()
    tx.send("orders", b"three")
    manager.commit()
    assert messages(engine) == ["one", "three"]
    assert engine.queues("emails") == []


def test_a_transaction_that_joined_after_a_savepoint_is_dropped_with_it(
    engine: fmq.Engine, manager: TransactionManager
) -> None:
    savepoint = manager.savepoint()
    tx = join(engine, manager=manager)
    tx.send("orders", b"one")
    savepoint.rollback()
    with pytest.raises(WrongState, match="is rolled back"):
        tx.send("orders", b"two")
    join(engine, manager=manager).send("orders", b"three")
    manager.commit()
    assert messages(engine) == ["three"]


def test_a_savepoint_of_the_database_drops_rows_and_messages(
    engine: fmq.Engine, address: str, manager: TransactionManager
) -> None:
    """zope.sqlalchemy has them on PostgreSQL, and not on SQLite."""
    database = sqlalchemy.create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    with database.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS orders, fmq_tx")
    Base.metadata.create_all(database)
    fmq.bind.create_table(database)
    session = registered(database, manager)
    tx = join(engine, session, producer=PRODUCER, manager=manager)
    for order in ("one", "two"):
        savepoint = manager.savepoint()
        session.add(Order(name=order))
        session.flush()
        tx.send("orders", order.encode())
    savepoint.rollback()
    manager.commit()
    assert rows(database) == messages(engine) == ["one"]
    database.dispose()


# --- without a database -------------------------------------------------------------------------


def test_without_a_database_it_commits_in_one_phase(
    engine: fmq.Engine, manager: TransactionManager
) -> None:
    """By its vote, as the last one: it may refuse, and nobody has to ask afterwards."""
    join(engine, tx_id="order-1", manager=manager).send("orders", b"one")
    Resource(manager, "~sqlalchemy", "tpc_vote", lambda: seen.append(len(messages(engine))))
    Resource(manager, "a", "tpc_finish", lambda: seen.append(len(messages(engine))))
    seen: list[int] = []
    manager.commit()
    assert seen == [0, 1]
    assert engine.outcome("order-1").state == "committed"
    join(engine, manager=manager).send("orders", b"two")
    manager.abort()
    join(engine, manager=manager).send("orders", b"three")
    Resource(manager, "a", "tpc_vote", refuse)
    with pytest.raises(No):
        manager.commit()
    assert messages(engine) == ["one"]


# --- kills --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_leaves_both_or_neither(tmp_path: Path, when: str) -> None:
    """At every statement and commit of the driver's connection, before and after it."""
    seen = set()
    for call in range(1, CALLS_MAX):
        folder = tmp_path / str(call)
        folder.mkdir()
        child = subprocess.run(
            [sys.executable, "-m", "tests.bind.zope_child", str(folder), str(call), when],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert child.returncode in (0, -9), child.stderr
        with reopened(folder) as engine:
            assert engine.undecided() == []
            database = made(folder)
            assert rows(database) == messages(engine), f"died {when} call {call}"
            seen.add(len(rows(database)))
            database.dispose()
        if child.stdout:
            break
    else:
        raise AssertionError("so many calls?")
    assert seen == {1, 2}, "it died on both sides of the commit"

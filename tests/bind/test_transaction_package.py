"""The two recipes of databases/pyramid.md for the `transaction` package keep what they promise.

The snippets themselves run in tests/test_public.py. Here the outbox works with zope.sqlalchemy, and
the data manager is the one that the page prints.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import zope.sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from transaction import TransactionManager

import fmq
import fmq.bind
from fmq.bind.sqlalchemy import Outbox, attach
from fmq.errors import WrongState
from tests.bind.orm import AnswerLost, Base, Order, driver_of, rows
from tests.bind.orm import database as made
from tests.bind.shop import PRODUCER, messages

PAGE = Path(__file__).parent.parent.parent / "docs" / "databases" / "pyramid.md"
SNIPPET = re.compile(r"```python runnable\n(.*?)```", re.DOTALL)


@pytest.fixture
def manager() -> TransactionManager:
    return TransactionManager()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    database = made(tmp_path, connect_args={"factory": AnswerLost})
    yield database
    database.dispose()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "shop") as engine:
        yield engine


class Shop:
    """A session with its outbox, which ends as the current transaction does."""

    def __init__(self, engine: fmq.Engine, database: Engine, manager: TransactionManager) -> None:
        self.session = Session(database)
        self._manager = manager
        zope.sqlalchemy.register(self.session, transaction_manager=manager)
        self._outbox: Outbox = attach(self.session, engine, producer=PRODUCER)

    def send(self, order: str) -> None:
        self._outbox.of(self.session).send("orders", order.encode())
        zope.sqlalchemy.mark_changed(self.session, transaction_manager=self._manager)

    def place(self, order: str) -> None:
        self.session.add(Order(name=order))
        self.send(order)


@pytest.fixture
def shop(engine: fmq.Engine, database: Engine, manager: TransactionManager) -> Shop:
    return Shop(engine, database, manager)


class Resource:
    """Another data manager, which does something of its own at one of the calls."""

    def __init__(self, manager: Any, key: str, at: str, act: Callable[[], None]) -> None:
        self.transaction_manager = manager
        self.sortKey = lambda: key
        for name in ("abort", "tpc_begin", "commit", "tpc_vote", "tpc_finish", "tpc_abort"):
            setattr(self, name, (lambda _: act()) if name == at else (lambda _: None))
        manager.get().join(self)


class Refused(Exception):
    """Raised by a resource that refuses."""


def refuse() -> None:
    raise Refused


# --- with zope.sqlalchemy -----------------------------------------------------------------------


def test_rows_and_messages_follow_the_current_transaction(
    engine: fmq.Engine, shop: Shop, database: Engine, manager: TransactionManager
) -> None:
    """Both are committed, or both are dropped."""
    shop.place("one")
    manager.commit()
    shop.place("two")
    manager.abort()
    shop.place("three")
    shop.place("four")
    manager.commit()
    assert rows(database) == messages(engine) == ["one", "three", "four"]


def test_a_session_whose_objects_have_not_changed_commits_with_mark_changed(
    engine: fmq.Engine, shop: Shop, database: Engine, manager: TransactionManager
) -> None:
    """zope.sqlalchemy does not notice statements that are not those of its objects."""
    shop.session.execute(text("INSERT INTO orders VALUES ('one')"))
    shop.send("one")
    manager.commit()
    shop.send("no row")
    manager.commit()
    assert rows(database) == ["one"]
    assert messages(engine) == ["one", "no row"]


def test_a_row_of_a_later_hook_belongs_to_the_transaction(
    engine: fmq.Engine, shop: Shop, database: Engine, manager: TransactionManager
) -> None:
    """The mark is the last statement whatever hooks there are, as the vote makes it."""
    shop.place("one")
    manager.get().addBeforeCommitHook(lambda: shop.session.add(Order(name="two")))
    manager.commit()
    assert rows(database) == ["one", "two"]
    assert messages(engine) == ["one"]


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, tmp_path: Path, manager: TransactionManager
) -> None:
    """There is no pool, because that would hand out the connection of the refused transaction."""
    database = made(tmp_path, poolclass=NullPool)
    shop = Shop(engine, database, manager)
    with database.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE lines (name REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"
        )
    shop.place("one")
    shop.session.execute(text("INSERT INTO lines VALUES ('no such order')"))
    with pytest.raises(IntegrityError):
        manager.commit()
    assert rows(database) == messages(engine) == []
    assert engine.undecided() == []
    manager.abort()
    shop.place("two")
    manager.commit()
    assert rows(database) == messages(engine) == ["two"]


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine, shop: Shop, database: Engine, manager: TransactionManager, happens: bool
) -> None:
    """The messages follow what the database did, and the error says that it was in doubt."""
    shop.place("one")
    driver_of(shop.session).happens = happens
    with pytest.raises((DBAPIError, fmq.bind.InDoubt)):
        manager.commit()
    assert rows(database) == messages(engine) == (["one"] if happens else [])
    assert engine.undecided() == []


def test_a_resource_that_refuses_leaves_neither_rows_nor_messages(
    engine: fmq.Engine, shop: Shop, database: Engine, manager: TransactionManager
) -> None:
    """It votes before the database commits."""
    shop.place("one")
    Resource(manager, "a", "tpc_vote", refuse)
    with pytest.raises(Refused):
        manager.commit()
    assert rows(database) == messages(engine) == []
    assert engine.undecided() == []


def test_messages_follow_the_database_when_another_resource_fails_to_finish(
    engine: fmq.Engine, shop: Shop, database: Engine, manager: TransactionManager
) -> None:
    """The database has committed by then."""
    shop.place("one")
    Resource(manager, "a", "tpc_finish", refuse)
    with pytest.raises(Refused):
        manager.commit()
    assert rows(database) == messages(engine) == ["one"]


def test_a_savepoint_of_the_database_drops_rows_and_messages(
    engine: fmq.Engine, address: str, manager: TransactionManager
) -> None:
    """zope.sqlalchemy has savepoints on PostgreSQL, and not on SQLite."""
    database = sqlalchemy.create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    with database.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS orders, fmq_tx")
    Base.metadata.create_all(database)
    fmq.bind.create_table(database)
    shop = Shop(engine, database, manager)
    shop.place("one")
    savepoint = manager.savepoint()
    shop.place("two")
    savepoint.rollback()
    manager.commit()
    assert rows(database) == messages(engine) == ["one"]
    database.dispose()


# --- the data manager of the page ---------------------------------------------------------------

Join = Callable[[], fmq.Transaction]


@pytest.fixture
def join(engine: fmq.Engine, manager: TransactionManager, tmp_path: Path) -> Join:
    """Join the current transaction with the data manager that the page prints."""
    [source] = [each for each in SNIPPET.findall(PAGE.read_text()) if "MessageManager" in each]
    folder = tmp_path / "guide"
    folder.mkdir()
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        exec(source, names)

    def join() -> fmq.Transaction:
        tx = engine.transaction()
        manager.get().join(names["MessageManager"](tx, manager))
        return tx

    return join


def test_the_data_manager_commits_by_its_vote_which_is_the_last(
    engine: fmq.Engine, manager: TransactionManager, join: Join
) -> None:
    """Others vote before the messages are there, and finish after."""
    join().send("orders", b"one")
    seen: list[int] = []
    Resource(manager, "~sqlalchemy", "tpc_vote", lambda: seen.append(len(messages(engine))))
    Resource(manager, "a", "tpc_finish", lambda: seen.append(len(messages(engine))))
    manager.commit()
    assert seen == [0, 1]
    assert messages(engine) == ["one"]


def test_the_data_manager_rolls_back_with_the_current_transaction(
    engine: fmq.Engine, manager: TransactionManager, join: Join
) -> None:
    """It was aborted, or another resource has refused."""
    join().send("orders", b"one")
    manager.abort()
    join().send("orders", b"two")
    Resource(manager, "a", "tpc_vote", refuse)
    with pytest.raises(Refused):
        manager.commit()
    assert messages(engine) == []


def test_a_savepoint_of_the_data_manager_drops_later_messages(
    engine: fmq.Engine, manager: TransactionManager, join: Join
) -> None:
    """A data manager that joined after the savepoint is rolled back with it."""
    tx = join()
    tx.send("orders", b"one")
    savepoint = manager.savepoint()
    tx.send("orders", b"two")
    later = join()
    later.send("orders", b"three")
    savepoint.rollback()
    with pytest.raises(WrongState, match="is rolled back"):
        later.send("orders", b"four")
    manager.commit()
    assert messages(engine) == ["one"]

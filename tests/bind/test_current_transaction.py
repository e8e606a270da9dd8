"""Code that is called in a bound block, and is not given it, finds it: fmq.current_transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from django.db import connections, transaction
from sqlalchemy import Engine, event, insert, text
from sqlalchemy.orm import Session, sessionmaker

import fmq
from fmq.bind.django import atomic
from fmq.bind.sqlalchemy import attach
from tests.bind.databases import Sqlite, make_tables
from tests.bind.django_shop import leave, point_at
from tests.bind.orm import Order, rows
from tests.bind.orm import database as made
from tests.bind.shop import PRODUCER, connect, messages

Sessions = sessionmaker[Session]


@pytest.fixture
def using(tmp_path: Path) -> Iterator[str]:
    database = Sqlite(tmp_path)
    make_tables(database)
    alias = point_at(database)
    yield alias
    leave(alias)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    database = made(tmp_path)
    yield database
    database.dispose()


@pytest.fixture
def sessions(database: Engine, engine: fmq.Engine) -> Sessions:
    """A maker of sessions that an outbox is attached to."""
    sessions = sessionmaker(database)
    attach(sessions, engine, producer=PRODUCER)
    return sessions


def enqueue(engine: fmq.Engine, body: str) -> str:
    """Send as an adapter does: with the block that runs, or at once. Return which."""
    tx = fmq.current_transaction(engine)
    (engine if tx is None else tx).send("orders", body.encode())
    return "at once" if tx is None else "with the block"


def test_a_running_bound_block_is_found(engine: fmq.Engine, tmp_path: Path) -> None:
    connection = connect(tmp_path)
    with engine.transaction(producer=PRODUCER, bind=connection):
        assert enqueue(engine, "1") == "with the block"
        assert messages(engine) == []
    with (
        pytest.raises(fmq.RollBack),
        engine.transaction(producer=PRODUCER, bind=connection),
    ):
        assert enqueue(engine, "2") == "with the block"
        raise fmq.RollBack
    assert enqueue(engine, "3") == "at once"
    assert messages(engine) == ["1", "3"]
    connection.close()


def test_a_block_of_asyncio_is_found_in_its_task(engine: fmq.Engine, tmp_path: Path) -> None:
    connect(tmp_path).close()

    async def program() -> None:
        async with aiosqlite.connect(tmp_path / "shop.db") as connection:
            async with engine.transaction(producer=PRODUCER, bind=connection):
                assert enqueue(engine, "1") == "with the block"
            assert enqueue(engine, "2") == "at once"
            with pytest.raises(fmq.RollBack):
                async with engine.transaction(producer=PRODUCER, bind=connection):
                    assert enqueue(engine, "3") == "with the block"
                    raise fmq.RollBack
            assert fmq.current_transaction() is None

    asyncio.run(program())
    assert messages(engine) == ["1", "2"]


def test_a_block_of_django_is_found_until_it_commits(engine: fmq.Engine, using: str) -> None:
    """A callback of `on_commit` runs after the commit of the rows, so it sends at once."""
    told: list[str] = []
    with atomic(engine, using, producer=PRODUCER):
        with transaction.atomic(using):
            told.append(enqueue(engine, "1"))
        call: Any = lambda: told.append(enqueue(engine, "2"))  # noqa: E731
        transaction.on_commit(call, using)
        assert messages(engine) == []
    assert told == ["with the block", "at once"]
    assert sorted(messages(engine)) == ["1", "2"]
    assert not connections[using].in_atomic_block


def test_a_session_that_has_begun_is_found(
    engine: fmq.Engine, database: Engine, sessions: Sessions
) -> None:
    with sessions.begin() as session:
        session.add(Order(name="1"))
        assert enqueue(engine, "1") == "with the block"
        assert messages(engine) == []
    with pytest.raises(fmq.RollBack), sessions.begin():
        assert enqueue(engine, "2") == "with the block"
        raise fmq.RollBack
    assert enqueue(engine, "3") == "at once"
    assert rows(database) == ["1"]
    assert messages(engine) == ["1", "3"]


def test_a_session_that_only_reads_is_not_found(engine: fmq.Engine, sessions: Sessions) -> None:
    """SQLAlchemy begins a transaction for it, which nothing commits."""
    with sessions() as session:
        session.scalars(text("SELECT name FROM orders")).all()
        assert session.in_transaction()
        assert enqueue(engine, "1") == "at once"
    assert messages(engine) == ["1"]


@pytest.mark.parametrize("way", ["add", "flush", "execute"])
def test_a_session_is_found_once_it_has_changed_something(
    engine: fmq.Engine, sessions: Sessions, way: str
) -> None:
    for name, ends in (("1", True), ("2", False)):
        with sessions() as session:
            if way == "execute":
                session.execute(insert(Order).values(name=name))
            else:
                session.add(Order(name=name))
                if way == "flush":
                    session.flush()
            assert enqueue(engine, name) == "with the block"
            if ends:
                session.commit()
                assert enqueue(engine, "after it") == "at once"
    assert messages(engine) == ["1", "after it"]


def test_a_flush_that_a_commit_makes_finds_the_session(
    engine: fmq.Engine, sessions: Sessions
) -> None:
    told = []

    def sends(session: Session, *_: object) -> None:
        told.append(enqueue(engine, "flushed"))

    event.listen(sessions, "before_flush", sends)
    with sessions() as session:
        session.add(Order(name="1"))
        session.commit()
    assert told == ["with the block"]
    assert messages(engine) == ["flushed"]


def test_after_a_session_has_committed_its_events_send_at_once(
    engine: fmq.Engine, sessions: Sessions
) -> None:
    told = []
    event.listen(sessions, "after_commit", lambda session: told.append(enqueue(engine, "2")))
    with sessions.begin() as session:
        session.add(Order(name="1"))
        enqueue(engine, "1")
    assert told == ["at once"]
    assert sorted(messages(engine)) == ["1", "2"]

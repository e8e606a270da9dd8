"""Sessions of SQLAlchemy's asyncio, over aiosqlite and psycopg: rows and messages, or neither."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

import fmq
import fmq.bind
from tests.bind.orm import Base, Order, durable, rows
from tests.bind.shop import PRODUCER, leave_prepared, messages


@pytest.fixture(params=["sqlite+aiosqlite", "postgresql+psycopg"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite+aiosqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/shop.db"
    address: str = request.getfixturevalue("address")
    return address.replace("postgresql:", "postgresql+psycopg:")


@pytest.fixture
def database(url: str) -> Engine:
    """The database for blocking code, with empty tables."""
    database = sqlalchemy.create_engine(url.replace("aiosqlite", "pysqlite"), poolclass=NullPool)
    if database.dialect.name == "sqlite":
        event.listen(database, "connect", durable)
    Base.metadata.drop_all(database)
    Base.metadata.create_all(database)
    fmq.bind.create_table(database)
    return database


@pytest.fixture
def asynchronous(database: Engine, url: str) -> AsyncEngine:
    found = create_async_engine(url, poolclass=NullPool)
    if database.dialect.name == "sqlite":
        event.listen(found.sync_engine, "connect", durable_on_loop)
    return found


def durable_on_loop(connection: Any, record: object) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA {pragma}")
        cursor.close()


def test_a_block_that_ends_commits_both_and_one_that_raises_neither(
    engine: fmq.Engine, database: Engine, asynchronous: AsyncEngine
) -> None:
    async def main() -> None:
        async with AsyncSession(asynchronous) as session:
            async with engine.transaction(producer=PRODUCER, bind=session) as tx:
                session.add(Order(name="1"))
                tx.send("orders", b"1")
            with pytest.raises(fmq.RollBack):
                async with engine.transaction(producer=PRODUCER, bind=session) as tx:
                    session.add(Order(name="2"))
                    await session.flush()
                    tx.send("orders", b"2")
                    raise fmq.RollBack
        async with asynchronous.connect() as connection:
            async with engine.transaction(producer=PRODUCER, bind=connection) as tx:
                await connection.execute(text("INSERT INTO orders VALUES ('3')"))
                tx.send("orders", b"3")
            with pytest.raises(fmq.bind.BindError, match="a transaction open already"):
                await connection.execute(text("SELECT 1"))
                async with engine.transaction(producer=PRODUCER, bind=connection):
                    pass

    asyncio.run(main())
    assert rows(database) == messages(engine) == ["1", "3"]


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine, database: Engine, asynchronous: AsyncEngine, happens: bool
) -> None:
    """The check runs on a new loop, and the messages follow its answer."""

    async def main() -> None:
        async with AsyncSession(asynchronous) as session:
            with pytest.raises(fmq.bind.InDoubt) as caught:
                async with engine.transaction(tx_id="a", bind=session) as tx:
                    session.add(Order(name="1"))
                    tx.send("orders", b"1")
                    await session.flush()
                    lose_answer(asynchronous.sync_engine.dialect, happens)
            assert caught.value.outcome == engine.outcome("a")

    asyncio.run(main())
    assert rows(database) == messages(engine) == (["1"] if happens else [])


def lose_answer(dialect: Any, happens: bool) -> None:
    """Make the next commit raise an error of unknown outcome, after its work or without it."""
    commit, rollback = dialect.do_commit, dialect.do_rollback

    def lost(connection: Any) -> None:
        dialect.do_commit = commit
        (commit if happens else rollback)(connection)
        raise dialect.loaded_dbapi.OperationalError("the answer was lost")

    dialect.do_commit = lost


def test_a_transaction_that_a_crash_left_is_decided_at_open(
    database: Engine, asynchronous: AsyncEngine, tmp_path: Path
) -> None:
    """`resolve=` takes an engine of asyncio, which the open engine asks without awaiting."""

    async def main() -> None:
        options = fmq.Options(checker_threads=0)
        with fmq.open(tmp_path / "shop", options) as engine:
            session = AsyncSession(asynchronous)
            async with session, engine.transaction(producer=PRODUCER, bind=session):
                pass
            leave_prepared(engine, "a")

    asyncio.run(main())
    resolve = {PRODUCER: asynchronous.sync_engine}
    with fmq.open(tmp_path / "shop", resolve=resolve) as engine:
        assert engine.outcome("a").state == "rolled back"
        leave_prepared(engine, "b")
    # The engine of the program is asked, too.
    with fmq.open(tmp_path / "shop", resolve={PRODUCER: asynchronous}) as engine:
        assert engine.outcome("b").state == "rolled back"


def test_an_asynchronous_session_needs_an_async_with_block(
    engine: fmq.Engine, asynchronous: AsyncEngine
) -> None:
    with (
        pytest.raises(fmq.bind.BindError, match="async with"),
        engine.transaction(bind=AsyncSession(asynchronous)),
    ):
        pass


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_the_table_is_made_and_purged_with_sessions_and_engines_of_asyncio(
    engine: fmq.Engine, database: Engine, asynchronous: AsyncEngine, kind: str
) -> None:
    """Calls with a session or connection are awaited."""
    with database.begin() as connection:
        connection.execute(text("DROP TABLE fmq_tx"))

    async def main() -> None:
        opened: Any = AsyncSession(asynchronous) if kind == "session" else asynchronous.connect()
        async with opened as bound:
            for _ in range(2):
                await fmq.bind.create_table(bound)
            async with engine.transaction(producer=PRODUCER, bind=bound) as tx:
                tx.send("orders", b"1")
            assert await fmq.bind.purge(engine, bound) == 0
            assert await fmq.bind.purge(engine, bound, older_seconds=-9) == 1

    asyncio.run(main())
    assert messages(engine) == ["1"]

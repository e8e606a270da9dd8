"""A transaction bound to psycopg's AsyncConnection: the rows and the messages, or neither."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
import fmq.bind
from tests.bind.cancelling import Cancelling, cut_everywhere

PRODUCER = "checkout"
STEPS_MAX = 200
Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
def engine(tmp_path: Path, address: str) -> Iterator[fmq.Engine]:
    """An engine, with empty tables in the database."""
    with psycopg.connect(address) as connection:
        connection.execute("DROP TABLE IF EXISTS orders, fmq_tx")
        connection.execute("CREATE TABLE orders (name text PRIMARY KEY)")
        connection.commit()
        fmq.bind.create_table(connection)
    with fmq.open(tmp_path / "shop") as engine:
        yield engine


async def place(
    engine: fmq.Engine, connection: Connection, order: str, tx_id: str | None = None
) -> None:
    async with engine.transaction(tx_id=tx_id, producer=PRODUCER, bind=connection) as tx:
        await connection.execute("INSERT INTO orders VALUES (%s)", (order,))
        tx.send("orders", order.encode())


def rows(address: str) -> list[str]:
    with psycopg.connect(address) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY name")]


def messages(engine: fmq.Engine) -> list[str]:
    return sorted(bytes(message.body).decode() for message in engine.read("orders", limit=9999))


def test_a_block_that_ends_commits_both_and_one_that_raises_neither(
    engine: fmq.Engine, address: str
) -> None:
    async def program() -> None:
        async with await Connection.connect(address) as connection:
            await place(engine, connection, "1", tx_id="order-1")
            with pytest.raises(psycopg.errors.UniqueViolation):
                await place(engine, connection, "1", tx_id="order-2")
            await place(engine, connection, "3", tx_id="order-2")

    asyncio.run(program())
    assert rows(address) == messages(engine) == ["1", "3"]


@pytest.mark.parametrize("everything", [False, True])
def test_a_cancellation_at_any_step_leaves_row_and_message_or_neither(
    engine: fmq.Engine, address: str, everything: bool
) -> None:
    """Here a driver that is cancelled asks the server to stop."""

    async def program(cancelling: Cancelling, order: str) -> None:
        async with await Connection.connect(address) as connection:
            await cancelling.run(place(engine, connection, order))
            if not everything:
                await place(engine, connection, f"after {order}")

    def both() -> tuple[list[str], list[str]]:
        return rows(address), messages(engine)

    cut_everywhere(engine, program, both, STEPS_MAX, everything=everything)


@pytest.mark.parametrize("happens", [True, False])
def test_a_connection_that_breaks_at_commit_is_checked_at_once(
    engine: fmq.Engine, address: str, happens: bool
) -> None:
    """The server ends the connection right before the commit, or right after it."""

    class Breaking(psycopg.AsyncConnection[Any]):
        async def commit(self) -> None:
            if happens:
                await super().commit()
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (self.info.backend_pid,))
            await self.execute("SELECT 1")

    async def program() -> None:
        async with await Connection.connect(address) as connection:
            await place(engine, connection, "0")
        with pytest.raises(fmq.bind.InDoubt) as caught:
            async with await Breaking.connect(address) as breaking:
                await place(engine, breaking, "1", tx_id="order-1")
        assert caught.value.outcome == engine.outcome("order-1")

    asyncio.run(program())
    assert rows(address) == messages(engine) == (["0", "1"] if happens else ["0"])


def test_the_marker_detects_a_swallowed_error(engine: fmq.Engine, address: str) -> None:
    async def program() -> None:
        async with await Connection.connect(address) as connection:
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                async with engine.transaction(producer=PRODUCER, bind=connection) as tx:
                    tx.send("orders", b"1")
                    with contextlib.suppress(psycopg.Error):
                        await connection.execute("INSERT INTO nonsense VALUES (1)")

    asyncio.run(program())
    assert rows(address) == messages(engine) == []


def test_a_connection_that_cannot_be_bound_is_refused_when_the_block_begins(
    engine: fmq.Engine, address: str
) -> None:
    async def program() -> None:
        async with await Connection.connect(address, autocommit=True) as connection:
            with pytest.raises(fmq.bind.BindError, match="each statement by itself"):
                await place(engine, connection, "1", tx_id="order-1")
        async with await Connection.connect(address) as connection:
            await connection.execute("SELECT 1")
            with pytest.raises(fmq.bind.BindError, match="a transaction open already"):
                await place(engine, connection, "1", tx_id="order-1")
            await connection.rollback()
            await place(engine, connection, "1", tx_id="order-1")

    asyncio.run(program())
    assert rows(address) == messages(engine) == ["1"]


def test_the_table_is_made_and_purged_with_a_connection_of_asyncio(
    engine: fmq.Engine, address: str
) -> None:
    """The table may be made twice.

    The purge removes the same rows as with a blocking connection.
    """

    async def program() -> None:
        async with await Connection.connect(address) as connection:
            await connection.execute("DROP TABLE fmq_tx")
            await connection.commit()
            for _ in range(2):
                await fmq.bind.create_table(connection)
            await place(engine, connection, "1")
            assert await fmq.bind.purge(engine, connection) == 0
            assert await fmq.bind.purge(engine, connection, older_seconds=-9) == 1

    asyncio.run(program())
    assert messages(engine) == ["1"]

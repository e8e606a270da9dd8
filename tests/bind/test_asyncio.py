"""A transaction bound to a connection of asyncio: the rows and the messages, or neither."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import aiosqlite
import pytest

import fmq
import fmq.bind
from fmq.testing import CrashDisk
from tests.bind.cancelling import Cancelling, cut_everywhere
from tests.bind.shop import PRODUCER, connect, messages, place_on_loop, rows

STEPS_MAX = 60


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    connect(tmp_path).close()
    with fmq.open(tmp_path / "shop") as engine:
        yield engine


def shop(folder: Path, kind: type[sqlite3.Connection] = sqlite3.Connection) -> aiosqlite.Connection:
    return aiosqlite.connect(folder / "shop.db", factory=kind)


def test_a_block_that_ends_commits_both_and_one_that_raises_neither(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    async def program() -> None:
        async with shop(tmp_path) as connection:
            await place_on_loop(engine, connection, "one", tx_id="order-1")
            with pytest.raises(fmq.RollBack):
                async with engine.transaction(producer=PRODUCER, bind=connection) as tx:
                    await connection.execute("INSERT INTO orders VALUES ('two')")
                    tx.send("orders", b"two")
                    raise fmq.RollBack
            await place_on_loop(engine, connection, "three")

    asyncio.run(program())
    assert rows(tmp_path) == messages(engine) == ["one", "three"]
    assert engine.outcome("order-1").state == "committed"
    assert engine.undecided() == []


@pytest.mark.parametrize("everything", [False, True])
def test_a_cancellation_at_any_step_leaves_row_and_message_or_neither(
    engine: fmq.Engine, tmp_path: Path, everything: bool
) -> None:
    """Cancel at each step of the block.

    If its task alone is cancelled, the transaction is decided and the connection works. If all
    tasks are, as at the end of a program, the checker may decide.
    """

    async def program(cancelling: Cancelling, order: str) -> None:
        async with shop(tmp_path) as connection:
            await cancelling.run(place_on_loop(engine, connection, order))
            if not everything:
                await place_on_loop(engine, connection, f"after {order}")

    def both() -> tuple[list[str], list[str]]:
        return rows(tmp_path), messages(engine)

    cut_everywhere(engine, program, both, STEPS_MAX, everything=everything)


def test_a_cancellation_at_the_end_has_a_note_of_the_outcome(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """The CancelledError has the note if the block itself was over."""

    async def block(connection: aiosqlite.Connection, tx_id: str, notes: list[str]) -> None:
        over = False
        try:
            async with engine.transaction(tx_id=tx_id, producer=PRODUCER, bind=connection):
                over = True  # nothing is awaited between this and the end
        except asyncio.CancelledError as error:
            if over:
                notes += error.__notes__
            raise

    async def program(cancelling: Cancelling, tx_id: str, notes: list[str]) -> None:
        async with shop(tmp_path) as connection:
            await cancelling.run(block(connection, tx_id, notes))

    told = 0
    for at in range(1, STEPS_MAX):
        cancelling, tx_id, notes = Cancelling(at), f"order-{at}", list[str]()
        asyncio.run(program(cancelling, tx_id, notes))
        if not cancelling.came:
            break
        for note in notes:
            assert f"{tx_id!r} was ended" in note
            assert f"it is {engine.outcome(tx_id).state}" in note
            assert engine.outcome(tx_id).state == "committed", "nothing was in its way"
            told += 1
    assert told


class AnswerLost(sqlite3.Connection):
    """A connection whose commit raises an error of unknown outcome, with or without its work."""

    commits = 1  # the commit of the registration succeeds
    happens = True

    def commit(self) -> None:
        self.commits -= 1
        if self.commits >= 0 or self.happens:
            super().commit()
        else:
            super().rollback()
        if self.commits < 0:
            raise sqlite3.OperationalError("disk I/O error")


class AnswerLostBefore(AnswerLost):
    happens = False


@pytest.mark.parametrize("kind", [AnswerLost, AnswerLostBefore])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine, tmp_path: Path, kind: type[AnswerLost]
) -> None:
    async def program() -> None:
        async with shop(tmp_path, kind) as connection:
            with pytest.raises(fmq.bind.InDoubt) as caught:
                await place_on_loop(engine, connection, "one", tx_id="order-1")
            assert caught.value.outcome == engine.outcome("order-1")

    asyncio.run(program())
    assert rows(tmp_path) == messages(engine) == (["one"] if kind.happens else [])


class Hesitant(sqlite3.Connection):
    """A connection whose last commit waits for a while for a check of its outcome."""

    commits = 1  # the commit of the registration does not wait

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.begun, self.looked_at = Event(), Event()

    def commit(self) -> None:
        self.commits -= 1
        if self.commits < 0:
            self.begun.set()
            self.looked_at.wait(0.2)
        super().commit()

    @property
    def in_transaction(self) -> bool:
        found = super().in_transaction
        if self.begun.is_set():
            self.looked_at.set()
        return found


def test_an_abandoned_commit_is_not_checked_before_it_has_ended(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """The thread of aiosqlite goes on with the commit after its task was cancelled."""

    async def program() -> None:
        async with shop(tmp_path, Hesitant) as connection:
            placing = asyncio.ensure_future(place_on_loop(engine, connection, "one"))
            await asyncio.to_thread(connection._conn.begun.wait)  # type: ignore[attr-defined]
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await placing

    asyncio.run(program())
    assert rows(tmp_path) == messages(engine) == ["one"]


def test_the_loop_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """Other threads do all writes and syncs between the first and the last step."""
    connect(tmp_path).close()
    disk, threads = CrashDisk(), set()

    async def program(engine: fmq.Engine) -> None:
        async with shop(tmp_path) as connection:
            disk.watch(lambda _: threads.add(get_ident()))
            await place_on_loop(engine, connection, "one")
            disk.watch(None)

    with fmq.open("shop", disk=disk, background=False) as engine:
        asyncio.run(program(engine))
        assert messages(engine) == ["one"]
    assert threads
    assert get_ident() not in threads


def test_the_task_that_holds_the_lock_can_always_finish(engine: fmq.Engine, tmp_path: Path) -> None:
    """Tasks that wait for the lock do not use up the loop's thread pool of one thread."""

    async def program() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await asyncio.gather(*(alone(order) for order in "123"))

    async def alone(order: str) -> None:
        async with shop(tmp_path) as connection:
            await place_on_loop(engine, connection, order)

    asyncio.run(program())
    assert sorted(rows(tmp_path)) == sorted(messages(engine)) == ["1", "2", "3"]


def test_the_error_names_the_right_with_statement(engine: fmq.Engine, tmp_path: Path) -> None:
    """The tx_id is free again after the error."""

    async def program() -> None:
        blocking = connect(tmp_path)
        with pytest.raises(fmq.bind.BindError, match="so write `with "):
            async with engine.transaction(tx_id="order-1", bind=blocking):
                pass
        blocking.close()
        async with shop(tmp_path) as connection:
            with (
                pytest.raises(fmq.bind.BindError, match="so write `async with "),
                engine.transaction(tx_id="order-1", bind=connection),
            ):
                pass
            await place_on_loop(engine, connection, "one", tx_id="order-1")

    asyncio.run(program())
    assert messages(engine) == ["one"]


def test_a_connection_that_cannot_be_bound_is_refused_when_the_block_begins(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """Refused are open work, a missing table and a database in memory. The tx_id is free again."""

    async def refused(connection: aiosqlite.Connection, why: str) -> None:
        with pytest.raises(fmq.bind.BindError, match=why):
            await place_on_loop(engine, connection, "one", tx_id="order-1")

    async def program() -> None:
        async with aiosqlite.connect(":memory:") as connection:
            await refused(connection, "gone with its process")
        async with aiosqlite.connect(tmp_path / "bare.db") as connection:
            await refused(connection, "CREATE TABLE IF NOT EXISTS fmq_tx")
            await fmq.bind.create_table(connection)
        async with shop(tmp_path) as connection:
            await connection.execute("INSERT INTO orders VALUES ('begun before')")
            await refused(connection, "a transaction open already")
            await connection.rollback()
            await place_on_loop(engine, connection, "one", tx_id="order-1")

    asyncio.run(program())
    assert rows(tmp_path) == messages(engine) == ["one"]


def test_a_database_that_may_lose_commits_is_warned_about_or_refused(tmp_path: Path) -> None:
    """A refusal leaves no transaction open."""

    async def program(engine: fmq.Engine, answer: Any) -> None:
        async with shop(tmp_path) as connection:
            await connection.execute("PRAGMA synchronous = NORMAL")
            with answer:
                await place_on_loop(engine, connection, "one")
            assert not connection.in_transaction

    connect(tmp_path).close()
    for strict, answer in (
        (True, pytest.raises(fmq.bind.NotDurable)),
        (False, pytest.warns(fmq.bind.DurabilityWarning, match="synchronous=FULL")),
    ):
        with fmq.open(tmp_path / "shop", fmq.Options(strict_bind=strict)) as engine:
            asyncio.run(program(engine, answer))
            assert messages(engine) == ([] if strict else ["one"])


def test_a_commit_of_the_program_inside_of_the_block_is_refused(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    async def program() -> None:
        async with shop(tmp_path) as connection:
            with pytest.raises(fmq.bind.BindError, match="ended inside of the block"):
                async with engine.transaction(producer=PRODUCER, bind=connection) as tx:
                    tx.send("orders", b"one")
                    await connection.commit()

    asyncio.run(program())
    assert messages(engine) == []


def test_the_table_is_made_and_purged_with_a_connection_of_asyncio(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """The table may be made twice.

    The purge removes the same rows as with a blocking connection.
    """

    async def program() -> None:
        async with aiosqlite.connect(tmp_path / "new.db") as connection:
            await connection.execute("PRAGMA synchronous = EXTRA")
            await connection.execute("CREATE TABLE orders (name)")
            for _ in range(2):
                await fmq.bind.create_table(connection)
            await place_on_loop(engine, connection, "one")
            assert await fmq.bind.purge(engine, connection) == 0
            assert await fmq.bind.purge(engine, connection, older_seconds=-9) == 1
            assert not connection.in_transaction

    asyncio.run(program())
    assert messages(engine) == ["one"]

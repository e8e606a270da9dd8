"""The steps of a bound block run on the loop, and are suspended where they wait."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

import fmq
import fmq.bind
from fmq.errors import EngineFailed
from fmq.testing import CrashDisk, FaultDisk
from tests.bind.shop import connect, messages, place_on_loop, rows

STEP = "fmq bound transaction"  # the name of a thread that takes a step


class Watched(aiosqlite.Connection):
    """Notes the threads that there are when its transaction commits; may wait there."""

    held: asyncio.Event | None = None

    async def commit(self) -> None:
        self.threads = {each.name for each in threading.enumerate()}
        if self.held is not None:
            await self.held.wait()
        await super().commit()


def watched(folder: Path) -> Watched:
    def connector() -> sqlite3.Connection:
        return sqlite3.connect(folder / "shop.db")

    return Watched(connector, 64)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    connect(tmp_path).close()
    with fmq.open(tmp_path / "shop") as engine:
        yield engine


def run(folder: Path, program: Callable[[Watched], Any]) -> Watched:
    async def main() -> Watched:
        connection = watched(folder)
        async with connection:
            await connection.execute("PRAGMA synchronous = FULL")
            await program(connection)
        return connection

    return asyncio.run(main())


def test_a_bound_block_starts_no_thread(engine: fmq.Engine, tmp_path: Path) -> None:
    connection = run(tmp_path, lambda connection: place_on_loop(engine, connection, "one"))
    assert STEP not in connection.threads
    assert rows(tmp_path) == messages(engine) == ["one"]


def test_without_a_committer_a_thread_takes_the_steps(tmp_path: Path) -> None:
    """Nothing would write what is planned while the loop goes on."""
    connect(tmp_path).close()
    with fmq.open(tmp_path / "shop", background=False) as engine:
        connection = run(tmp_path, lambda connection: place_on_loop(engine, connection, "one"))
        assert STEP in connection.threads
        assert rows(tmp_path) == messages(engine) == ["one"]


def test_the_loop_goes_on_while_a_step_waits(engine: fmq.Engine, tmp_path: Path) -> None:
    """Another block begins and ends while the commit of the first one is held up."""

    async def program(connection: Watched) -> None:
        connection.held = asyncio.Event()
        first = asyncio.ensure_future(place_on_loop(engine, connection, "one"))
        while not hasattr(connection, "threads"):
            await asyncio.sleep(0)
        engine.send("orders", b"meanwhile")
        assert not first.done()
        connection.held.set()
        await first

    run(tmp_path, program)
    assert rows(tmp_path) == ["one"]
    assert messages(engine) == ["meanwhile", "one"]


def test_many_blocks_at_once_all_end(engine: fmq.Engine, tmp_path: Path) -> None:
    """Each has a connection of its own, and they take turns in the database."""

    async def one(number: int) -> None:
        async with watched(tmp_path) as connection:
            await connection.execute("PRAGMA synchronous = FULL")
            await place_on_loop(engine, connection, f"order {number:02}")

    async def main() -> None:
        await one(0)  # the database learns of the producer
        await asyncio.gather(*map(one, range(1, 12)))

    asyncio.run(main())
    names = [f"order {number:02}" for number in range(12)]
    assert sorted(rows(tmp_path)) == sorted(messages(engine)) == names


def test_a_loop_that_ends_leaves_the_transaction_undecided(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """As a crash would. The database is asked, and says that it has not committed."""

    async def main(connection: Watched) -> None:
        await connection.execute("PRAGMA synchronous = FULL")
        connection.held = asyncio.Event()
        await place_on_loop(engine, connection, "one", tx_id="order-1")

    loop = asyncio.new_event_loop()
    connection = watched(tmp_path)
    loop.run_until_complete(connection.__aenter__())
    loop.run_until_complete(place_on_loop(engine, connection, "zero"))
    del connection.threads
    task = loop.create_task(main(connection))
    while not hasattr(connection, "threads"):
        loop.run_until_complete(asyncio.sleep(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a task was destroyed while it was pending
        loop.close()
        loop.set_exception_handler(lambda *_: None)
        del task
        gc.collect()
    connection.stop()
    assert engine.outcome("order-1").state == "undecided"
    engine.settle(timeout=60)
    assert engine.outcome("order-1").state == "rolled back"
    assert messages(engine) == ["zero"]


def test_a_failed_sync_ends_the_step_once(tmp_path: Path) -> None:
    connect(tmp_path).close()
    disk = FaultDisk(CrashDisk())
    engine = fmq.open("shop", disk=disk)

    async def program(connection: Watched) -> None:
        await place_on_loop(engine, connection, "one")
        disk.fail("write", names="*.seg")
        with pytest.raises(EngineFailed):
            await place_on_loop(engine, connection, "two")

    run(tmp_path, program)
    assert rows(tmp_path) == ["one"]
    engine.close()


class Noting(sqlite3.Connection):
    """Notes the thread of each statement that writes, and of the commit."""

    def commit(self) -> None:
        assert STEP not in {each.name for each in threading.enumerate()}
        USED.add(threading.get_ident())
        super().commit()


USED: set[int] = set()


def test_with_aiosqlite_a_step_is_one_visit_to_its_thread(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    """Mark, prepare and commit are one function for it, and its begin is another."""
    USED.clear()

    async def main() -> int:
        async with aiosqlite.connect(tmp_path / "shop.db", factory=Noting) as connection:
            await connection.execute("PRAGMA synchronous = FULL")
            visits: list[object] = []
            queue = connection._tx
            connection._tx = Counting(queue, visits)  # type: ignore[assignment]
            await place_on_loop(engine, connection, "one")
            connection._tx = queue
            return len(visits)

    visits = asyncio.run(main())
    assert rows(tmp_path) == messages(engine) == ["one"]
    assert len(USED) == 1, "the connection has one thread"
    assert visits == 3, "its begin, the order, and its end"


class Counting:
    """A queue of aiosqlite that counts what is put into it."""

    def __init__(self, queue: Any, visits: list[object]) -> None:
        self._queue = queue
        self._visits = visits

    def put_nowait(self, item: object) -> None:
        self._visits.append(item)
        self._queue.put_nowait(item)


def test_a_closed_connection_of_aiosqlite_begins_nothing(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    async def main() -> None:
        connection = await aiosqlite.connect(tmp_path / "shop.db")
        await connection.close()
        with pytest.raises(fmq.bind.BindError, match="it is closed"):
            async with engine.transaction(tx_id="one", producer="p", bind=connection):
                raise AssertionError("the block does not run")
        engine.transaction(tx_id="one").rollback()  # its id is free again

    asyncio.run(main())


@pytest.mark.parametrize("raises", [False, True])
def test_a_connection_of_aiosqlite_that_is_closed_in_the_block_rolls_both_back(
    engine: fmq.Engine, tmp_path: Path, raises: bool
) -> None:
    async def main() -> None:
        async with aiosqlite.connect(tmp_path / "shop.db") as connection:
            expected = fmq.RollBack if raises else sqlite3.ProgrammingError
            with pytest.raises(expected):
                async with engine.transaction(tx_id="one", producer="p", bind=connection) as tx:
                    await connection.execute("INSERT INTO orders VALUES ('one')")
                    tx.send("orders", b"one")
                    await connection.close()
                    if raises:
                        raise fmq.RollBack
        engine.transaction(tx_id="one").rollback()  # its id is free again

    asyncio.run(main())
    assert rows(tmp_path) == messages(engine) == []

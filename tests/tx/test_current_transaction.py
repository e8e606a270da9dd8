"""`fmq.current_transaction`: the block that runs here, for code that does not get it as `tx`."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fmq import Engine, RollBack, current_transaction
from fmq.errors import WrongState
from fmq.testing import CrashDisk
from fmq.tx.commands.blocks import _blocks, enter
from tests.small import bodies, check, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk) as engine:
        yield engine
    check(disk)


def test_only_the_running_block_is_found(engine: Engine) -> None:
    """No transaction is found before the block or after it, even if it was rolled back. One that is
    open without a block is never found.
    """
    open_one = engine.transaction()
    assert current_transaction() is None
    with engine.transaction() as tx:
        assert current_transaction() is current_transaction(engine) is tx
    assert current_transaction() is None
    with pytest.raises(RollBack), engine.transaction():
        raise RollBack
    assert current_transaction() is None
    open_one.rollback()


def test_of_nested_blocks_the_innermost_is_found(engine: Engine) -> None:
    """Also if they end in another order than they began."""
    with engine.transaction() as outer:
        with engine.transaction() as inner:
            assert current_transaction() is inner
            outer.__exit__(None, None, None)
            assert current_transaction() is inner
        assert current_transaction() is None


def test_a_block_that_ended_early_is_not_found(engine: Engine) -> None:
    for end in ("commit", "rollback"):
        with engine.transaction() as outer, engine.transaction() as inner:
            getattr(inner, end)()
            assert current_transaction() is outer


def test_a_block_that_has_prepared_refuses_further_sends(engine: Engine) -> None:
    """It is still found, so that code in the block does not send beside the transaction: such a
    message would stay even if the transaction is rolled back.
    """
    with engine.transaction() as tx:
        tx.send("t", b"1")
        tx.prepare()
        found = current_transaction(engine)
        assert found is tx
        with pytest.raises(WrongState):
            found.send("t", b"2")
    assert bodies(engine, "t") == [b"1"]


def test_a_running_block_of_another_directory_is_ignored(engine: Engine) -> None:
    disk = CrashDisk()
    disk.random(16)  # another disk draws other ids
    with opened(disk) as other, engine.transaction() as outer, other.transaction() as inner:
        assert current_transaction() is inner
        assert current_transaction(engine) is outer
        assert current_transaction(other) is inner


def test_each_thread_has_its_own_blocks(engine: Engine) -> None:
    with ThreadPoolExecutor(1) as pool:
        with engine.transaction() as tx:
            assert pool.submit(current_transaction).result() is None
            copied = contextvars.copy_context()
            assert pool.submit(copied.run, current_transaction).result() is tx
        assert pool.submit(copied.run, current_transaction).result() is None


def test_each_task_has_its_own_blocks(engine: Engine) -> None:
    """A task begins with those of the code that started it, as long as these run."""

    async def place(name: str, go: asyncio.Event) -> None:
        with engine.transaction() as tx:
            await asyncio.sleep(0)
            found = current_transaction(engine)
            assert found is tx
            found.send("t", name.encode())
            await go.wait()
        assert current_transaction() is None

    async def late(go: asyncio.Event) -> object:
        assert current_transaction() is not None
        await go.wait()
        return current_transaction()

    async def program() -> None:
        go = asyncio.Event()
        placing = [asyncio.create_task(place(name, go)) for name in ("a", "b")]
        with engine.transaction():
            child = asyncio.create_task(late(go))
            await asyncio.sleep(0)
        go.set()
        assert await child is None
        await asyncio.gather(*placing)

    asyncio.run(program())
    assert sorted(bodies(engine, "t")) == [b"a", b"b"]


def test_blocks_that_end_in_other_threads_do_not_pile_up(engine: Engine) -> None:
    """A context that begins blocks which other threads end keeps a few of them at most."""

    def program() -> None:
        for _ in range(100):
            tx = engine.transaction()
            enter(tx)
            tx.rollback()
            del tx
            gc.collect(0)
        assert len(_blocks.get()) < 20

    contextvars.copy_context().run(program)

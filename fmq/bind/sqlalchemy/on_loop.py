"""SQLAlchemy's asyncio: the steps of a session on its loop, and what runs on a new connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import create_async_engine

from fmq.bind.sqlalchemy.binding import SqlAlchemyBinding

T = TypeVar("T")


class AsyncSqlAlchemyBinding:
    """An AsyncSession or AsyncConnection: each step is done in one piece, where its loop is."""

    def __init__(self, bridge: Any) -> None:
        """`bridge` is it, as fmq/bind/on_loop.py has it."""
        self._run = bridge.run_sync
        self._inner = inner = cast(SqlAlchemyBinding, self._run(SqlAlchemyBinding))
        self.path = inner.path
        self.register = inner.register
        self.check = inner.check
        self.purge = inner.purge

    def begin(self) -> str:
        return str(self._on_loop(self._inner.begin))

    def mark(self, store: str, tx_id: str) -> str:
        return str(self._on_loop(partial(self._inner.mark, store, tx_id)))

    def commit(self) -> None:
        self._on_loop(self._inner.commit)

    def rolled_back_for_sure(self) -> bool:
        return self._inner.rolled_back_for_sure()

    def rollback(self) -> None:
        self._on_loop(self._inner.rollback)

    def leave(self) -> None:
        self._on_loop(self._inner.leave)

    def _on_loop(self, step: Callable[[], object]) -> object:
        return self._run(lambda _: step())


def on_new_connection(engine: Engine, work: Callable[[Connection], T]) -> T:
    """What `work` returns, done on a new connection and on a loop of its own.

    In a thread of its own, as whoever wants to know may be on a loop, or on none.
    """

    async def connected() -> T:
        own = create_async_engine(engine.url, pool=engine.pool.recreate())
        try:
            async with own.connect() as connection:
                return await connection.run_sync(work)
        finally:
            await own.dispose()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, connected()).result()

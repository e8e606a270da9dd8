"""Work on a new connection of an asyncio engine of SQLAlchemy, for a caller without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import create_async_engine

T = TypeVar("T")


def on_new_connection(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run `work` on a new connection, on a new loop in a new thread, and return its result.

    The thread is needed because the caller's thread may run a loop already.
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

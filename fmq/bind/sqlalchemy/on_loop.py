"""SQLAlchemy's asyncio: what its engines are asked apart from everything that runs on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import create_async_engine

T = TypeVar("T")


def apart(engine: Engine, work: Callable[[Connection], T]) -> T:
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

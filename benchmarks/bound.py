"""Bound transactions beside an outbox table by hand: `python -m benchmarks.bound [rows]`.

Each row places orders: a row in the user's table, and a message. With fmq the message is sent in a
bound block. By hand it is a row of an outbox table in the same transaction, which somebody has to
poll and delete later; that is not counted. Both commit durably. The two take turns, round by round,
and the ratio is the median of the rounds' ratios: above 1, fmq is faster. `rows` are parts of
names, as in `python -m benchmarks.bound psycopg`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import fmq
import fmq.bind
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.programs import Folder

WORKERS, ROUNDS, SECONDS = 16, 5, 0.8
PRODUCERS = {"?": "with sqlite", "%s": "with postgres"}  # each has one database
TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (name varchar(99) PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS outbox (name varchar(99) PRIMARY KEY)",
)
ORDER, BY_HAND = "INSERT INTO orders VALUES ({})", "INSERT INTO outbox VALUES ({})"
NAMES = (f"order {number}" for number in itertools.count())
Place = Callable[[], object]
Way = Callable[["Shop", bool], AbstractContextManager[Callable[[float], float]]]
"""Makes what runs for some seconds and returns orders a second: with fmq, or by hand."""


class Shop:
    """An engine, a SQLite file and a PostgreSQL server, each with the tables."""

    def __init__(self, folder: Path) -> None:
        self.sqlite = folder / "shop.db"
        self.server = Postgres(folder)
        with self.server.connect() as connection:
            self.postgres = f"postgresql://postgres@/postgres?host={connection.info.host}"
        for made in (self.connect_sqlite(), psycopg.connect(self.postgres)):
            with contextlib.closing(made) as each:
                for table in TABLES:
                    each.execute(table)
                each.commit()
                fmq.bind.create_table(each)
        self.engine = fmq.open(folder / "shop")

    def connect_sqlite(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.sqlite)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def close(self) -> None:
        self.engine.close()
        self.server.close()


def repeated(place: Place, seconds: float) -> int:
    """Place orders for so long; return how many."""
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        place()
        done += 1
    return done


def blocking(engine: fmq.Engine, connection: Any, marker: str, *, bound: bool) -> None:
    """Place one order on a connection of sqlite3 or psycopg."""
    name = next(NAMES)
    if bound:
        with engine.transaction(producer=PRODUCERS[marker], bind=connection) as tx:
            connection.execute(ORDER.format(marker), (name,))
            tx.send("orders", name.encode())
    else:
        connection.execute(ORDER.format(marker), (name,))
        connection.execute(BY_HAND.format(marker), (name,))
        connection.commit()


@contextlib.contextmanager
def of_sqlite(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    with contextlib.closing(shop.connect_sqlite()) as connection:
        place = partial(blocking, shop.engine, connection, "?", bound=bound)
        yield lambda seconds: repeated(place, seconds) / seconds


@contextlib.contextmanager
def of_psycopg(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    with psycopg.connect(shop.postgres) as connection:
        place = partial(blocking, shop.engine, connection, "%s", bound=bound)
        yield lambda seconds: repeated(place, seconds) / seconds


@contextlib.contextmanager
def of_psycopg_threads(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(shop.postgres)) for _ in range(WORKERS)]
        pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
        places = [partial(blocking, shop.engine, each, "%s", bound=bound) for each in connections]
        yield lambda seconds: sum(pool.map(partial(repeated, seconds=seconds), places)) / seconds


@contextlib.contextmanager
def of_sqlalchemy(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    made = sqlalchemy.create_engine(shop.postgres.replace("postgresql:", "postgresql+psycopg:"))
    order, outbox = (sqlalchemy.text(each.format(":name")) for each in (ORDER, BY_HAND))
    with sqlalchemy.orm.Session(made) as session:

        def place() -> None:
            name = next(NAMES)
            if bound:
                with shop.engine.transaction(producer="with SQLAlchemy", bind=session) as tx:
                    session.execute(order, {"name": name})
                    tx.send("orders", name.encode())
            else:
                session.execute(order, {"name": name})
                session.execute(outbox, {"name": name})
                session.commit()

        yield lambda seconds: repeated(place, seconds) / seconds
    made.dispose()


@contextlib.contextmanager
def of_django(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    import django
    from django.conf import settings

    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(shop.sqlite)}
        database["OPTIONS"] = {"init_command": "PRAGMA synchronous = FULL"}  # type: ignore[assignment]
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["fmq.bind.django"])
        django.setup()
    from django.db import connection, transaction

    def place() -> None:
        name = next(NAMES)
        if bound:
            with shop.engine.transaction(producer="with Django", bind=connection) as tx:
                with connection.cursor() as cursor:
                    cursor.execute(ORDER.format("%s"), (name,))
                tx.send("orders", name.encode())
        else:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(ORDER.format("%s"), (name,))
                cursor.execute(BY_HAND.format("%s"), (name,))

    yield lambda seconds: repeated(place, seconds) / seconds
    connection.close()


# --- asyncio ------------------------------------------------------------------------------------

PlaceOnLoop = Callable[[], Awaitable[object]]


def on_loop(
    workers: Callable[[Shop, bool], contextlib.AbstractAsyncContextManager[list[PlaceOnLoop]]],
) -> Way:
    """Return the way that runs these workers as tasks of one loop."""

    async def run(shop: Shop, bound: bool, seconds: float) -> float:
        async with workers(shop, bound) as places:

            async def work(place: PlaceOnLoop) -> int:
                end, done = time.perf_counter() + seconds, 0
                while time.perf_counter() < end:
                    await place()
                    done += 1
                return done

            return sum(await asyncio.gather(*map(work, places))) / seconds

    @contextlib.contextmanager
    def way(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
        yield lambda seconds: asyncio.run(run(shop, bound, seconds))

    return way


async def placed(engine: fmq.Engine, connection: Any, marker: str, *, bound: bool) -> None:
    """Place one order on a connection of aiosqlite or psycopg."""
    name = next(NAMES)
    if bound:
        async with engine.transaction(producer=PRODUCERS[marker], bind=connection) as tx:
            await connection.execute(ORDER.format(marker), (name,))
            tx.send("orders", name.encode())
    else:
        await connection.execute(ORDER.format(marker), (name,))
        await connection.execute(BY_HAND.format(marker), (name,))
        await connection.commit()


@contextlib.asynccontextmanager
async def with_psycopg(shop: Shop, bound: bool) -> AsyncIterator[list[PlaceOnLoop]]:
    async with contextlib.AsyncExitStack() as stack:
        connect = psycopg.AsyncConnection.connect
        made = [
            await stack.enter_async_context(await connect(shop.postgres)) for _ in range(WORKERS)
        ]
        yield [partial(placed, shop.engine, each, "%s", bound=bound) for each in made]


@contextlib.asynccontextmanager
async def with_aiosqlite(shop: Shop, bound: bool) -> AsyncIterator[list[PlaceOnLoop]]:
    """One connection, which the tasks take in turn: SQLite has one writer."""
    turn = asyncio.Lock()
    async with aiosqlite.connect(shop.sqlite) as connection:
        await connection.execute("PRAGMA synchronous = FULL")

        async def place() -> None:
            async with turn:
                await placed(shop.engine, connection, "?", bound=bound)

        yield [place] * WORKERS


@contextlib.asynccontextmanager
async def with_sqlalchemy(shop: Shop, bound: bool) -> AsyncIterator[list[PlaceOnLoop]]:
    address = shop.postgres.replace("postgresql:", "postgresql+psycopg:")
    made = create_async_engine(address, pool_size=WORKERS)
    order, outbox = (sqlalchemy.text(each.format(":name")) for each in (ORDER, BY_HAND))

    async def place(session: AsyncSession) -> None:
        name = next(NAMES)
        if bound:
            asked: dict[str, Any] = {"producer": "with SQLAlchemy on a loop", "bind": session}
            async with shop.engine.transaction(**asked) as tx:
                await session.execute(order, {"name": name})
                tx.send("orders", name.encode())
        else:
            await session.execute(order, {"name": name})
            await session.execute(outbox, {"name": name})
            await session.commit()

    sessions = [AsyncSession(made) for _ in range(WORKERS)]
    yield [partial(place, each) for each in sessions]
    for each in sessions:
        await each.close()
    await made.dispose()


WAYS: dict[str, tuple[Way, float]] = {
    "sqlite3": (of_sqlite, 0.8),
    "psycopg": (of_psycopg, 0.8),
    f"psycopg, {WORKERS} threads": (of_psycopg_threads, 0.8),
    f"psycopg, {WORKERS} tasks": (on_loop(with_psycopg), 0.6),
    f"aiosqlite, {WORKERS} tasks": (on_loop(with_aiosqlite), 0.45),
    "SQLAlchemy": (of_sqlalchemy, 0.8),
    f"SQLAlchemy, {WORKERS} tasks": (on_loop(with_sqlalchemy), 0.6),
    "Django, SQLite": (of_django, 0.8),
}


def main(wanted: list[str]) -> None:
    folder = Folder("fmq-bound-")
    folder.path.chmod(0o755)
    shop = Shop(folder.path)
    print(f"{'':26} {'by hand':>9} {'fmq':>9}  ratio  aim   ms of processor: by hand, fmq")
    try:
        for name, (way, aim) in WAYS.items():
            if wanted and not any(each in name for each in wanted):
                continue
            with way(shop, False) as by_hand, way(shop, True) as bound:
                runs = [by_hand, bound]
                for run in runs:
                    run(0.2)
                rates: list[list[float]] = [[], []]
                spent: list[list[float]] = [[], []]
                for number in range(ROUNDS):
                    for which in (0, 1) if number % 2 else (1, 0):
                        before = time.process_time()
                        rates[which].append(runs[which](SECONDS))
                        used = time.process_time() - before
                        spent[which].append(used * 1000 / (rates[which][-1] * SECONDS))
            ratio = statistics.median(mine / other for other, mine in zip(*rates, strict=True))
            hand, mine = map(statistics.median, rates)
            cost = ", ".join(f"{statistics.median(each):.2f}" for each in spent)
            print(f"{name:26} {hand:7,.0f}/s {mine:7,.0f}/s  {ratio:5.2f}  {aim:4.2f}  {cost}")
    finally:
        shop.close()
        folder.remove()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    main(sys.argv[1:])

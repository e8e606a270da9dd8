"""Bound transactions beside an outbox table by hand: `python -m benchmarks.bound [rows]`.

Each row places orders: a row in the user's table, and a message. With fmq the message is sent in a
bound block. By hand it is a row of an outbox table in the same transaction, which somebody has to
poll and delete later; that is not counted. Both commit durably. They take turns, round by round,
and a ratio is the median of the rounds' ratios: above 1, fmq is faster. `rows` are parts of names,
as in `python -m benchmarks.bound psycopg`.

"bound" is the ratio of the table by hand with one raw sync more for each order, and nothing of fmq.
Messages that are durable outside of the database before it commits cannot be faster. It is not
measured with tasks, whose loop a raw sync would block.
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
RAW_BYTES, ORDER_BYTES = 1 << 22, 512  # what a bound block writes before the database commits
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
        self.syncs = False  # whether an order by hand makes one raw sync more
        self._raw = os.open(folder / "raw", os.O_CREAT | os.O_RDWR)
        os.pwrite(self._raw, bytes(RAW_BYTES), 0)
        os.fsync(self._raw)
        self._places = itertools.cycle(range(0, RAW_BYTES, ORDER_BYTES))

    def before_commit(self) -> None:
        """Make the raw sync, if one is to be made."""
        if self.syncs:
            os.pwritev(self._raw, (b"x" * ORDER_BYTES,), next(self._places), os.RWF_DSYNC)

    def connect_sqlite(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.sqlite)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def close(self) -> None:
        self.engine.close()
        self.server.close()
        os.close(self._raw)


def repeated(place: Place, seconds: float) -> int:
    """Place orders for so long; return how many."""
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        place()
        done += 1
    return done


def blocking(shop: Shop, connection: Any, marker: str, *, bound: bool) -> None:
    """Place one order on a connection of sqlite3 or psycopg."""
    name = next(NAMES)
    if bound:
        with shop.engine.transaction(producer=PRODUCERS[marker], bind=connection) as tx:
            connection.execute(ORDER.format(marker), (name,))
            tx.send("orders", name.encode())
    else:
        connection.execute(ORDER.format(marker), (name,))
        connection.execute(BY_HAND.format(marker), (name,))
        shop.before_commit()
        connection.commit()


@contextlib.contextmanager
def of_sqlite(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    with contextlib.closing(shop.connect_sqlite()) as connection:
        place = partial(blocking, shop, connection, "?", bound=bound)
        yield lambda seconds: repeated(place, seconds) / seconds


@contextlib.contextmanager
def of_psycopg(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    with psycopg.connect(shop.postgres) as connection:
        place = partial(blocking, shop, connection, "%s", bound=bound)
        yield lambda seconds: repeated(place, seconds) / seconds


@contextlib.contextmanager
def of_psycopg_threads(shop: Shop, bound: bool) -> Iterator[Callable[[float], float]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(psycopg.connect(shop.postgres)) for _ in range(WORKERS)]
        yield from in_threads([partial(blocking, shop, each, "%s", bound=bound) for each in made])


def in_threads(places: list[Place]) -> Iterator[Callable[[float], float]]:
    """Yield what runs `places`, each in a thread of its own."""
    with ThreadPoolExecutor(len(places)) as pool:
        yield lambda seconds: sum(pool.map(partial(repeated, seconds=seconds), places)) / seconds


@contextlib.contextmanager
def of_sqlalchemy(shop: Shop, bound: bool, workers: int = 1) -> Iterator[Callable[[float], float]]:
    address = shop.postgres.replace("postgresql:", "postgresql+psycopg:")
    made = sqlalchemy.create_engine(address, pool_size=workers)
    order, outbox = (sqlalchemy.text(each.format(":name")) for each in (ORDER, BY_HAND))

    def place(session: sqlalchemy.orm.Session) -> None:
        name = next(NAMES)
        if bound:
            with shop.engine.transaction(producer="with SQLAlchemy", bind=session) as tx:
                session.execute(order, {"name": name})
                tx.send("orders", name.encode())
        else:
            session.execute(order, {"name": name})
            session.execute(outbox, {"name": name})
            shop.before_commit()
            session.commit()

    sessions = [sqlalchemy.orm.Session(made) for _ in range(workers)]
    yield from in_threads([partial(place, each) for each in sessions])
    for each in sessions:
        each.close()
    made.dispose()


def set_django_up(shop: Shop) -> None:
    """Configure Django with both databases, once in a process."""
    import django
    from django.conf import settings

    if not settings.configured:
        at = psycopg.conninfo.conninfo_to_dict(shop.postgres)
        sqlite: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(shop.sqlite)}
        sqlite["OPTIONS"] = {"init_command": "PRAGMA synchronous = FULL"}
        postgres = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}
        postgres |= {"USER": str(at["user"]), "HOST": str(at["host"])}
        databases = {"default": sqlite, "postgres": postgres}
        settings.configure(DATABASES=databases, INSTALLED_APPS=["fmq.bind.django"])
        django.setup()


@contextlib.contextmanager
def of_django(
    shop: Shop, bound: bool, alias: str = "default", workers: int = 1
) -> Iterator[Callable[[float], float]]:
    set_django_up(shop)
    from django.db import connections, transaction

    def place() -> None:
        name, connection = next(NAMES), connections[alias]  # that of this thread
        if bound:
            producer = f"with Django, {alias}"
            with shop.engine.transaction(producer=producer, bind=connection) as tx:
                with connection.cursor() as cursor:
                    cursor.execute(ORDER.format("%s"), (name,))
                tx.send("orders", name.encode())
        else:
            with transaction.atomic(alias), connection.cursor() as cursor:
                cursor.execute(ORDER.format("%s"), (name,))
                cursor.execute(BY_HAND.format("%s"), (name,))
                shop.before_commit()

    yield from in_threads([place] * workers)


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
    """Return one connection, which the tasks use in turn, because SQLite has one writer."""
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
    f"SQLAlchemy, {WORKERS} threads": (partial(of_sqlalchemy, workers=WORKERS), 0.8),
    f"SQLAlchemy, {WORKERS} tasks": (on_loop(with_sqlalchemy), 0.6),
    "Django, SQLite": (of_django, 0.8),
    "Django, PostgreSQL": (partial(of_django, alias="postgres"), 0.8),
    f"Django, {WORKERS} threads": (partial(of_django, alias="postgres", workers=WORKERS), 0.8),
}


def measured(way: Way, shop: Shop, *, with_bound: bool) -> str:
    """Return the line of a row, without its name."""
    runs = [(way, False, False), (way, True, False), (way, False, True)][: 3 if with_bound else 2]
    rates: list[list[float]] = [[] for _ in runs]
    spent: list[list[float]] = [[] for _ in runs]
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(way(shop, bound)) for _, bound, _ in runs]
        for run in made:
            run(0.2)
        for number in range(ROUNDS):
            order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
            for which in order:
                shop.syncs = runs[which][2]
                before = time.process_time()
                rates[which].append(made[which](SECONDS))
                used = time.process_time() - before
                spent[which].append(used * 1000 / (rates[which][-1] * SECONDS))
                shop.syncs = False
    ratios = [
        statistics.median(mine / hand for hand, mine in zip(rates[0], other, strict=True))
        for other in rates[1:]
    ]
    hand, mine = map(statistics.median, rates[:2])
    floor = f"{ratios[1]:5.2f}" if with_bound else "    -"
    cost = ", ".join(f"{statistics.median(each):.2f}" for each in spent[:2])
    return f"{hand:7,.0f}/s {mine:7,.0f}/s  {ratios[0]:5.2f}  {floor}  {{aim:4.2f}}  {cost}"


def main(wanted: list[str]) -> None:
    folder = Folder("fmq-bound-")
    folder.path.chmod(0o755)
    shop = Shop(folder.path)
    print(f"{'':26} {'by hand':>9} {'fmq':>9}  ratio  bound   aim  ms of processor: by hand, fmq")
    try:
        for name, (way, aim) in WAYS.items():
            if not wanted or any(each in name for each in wanted):
                line = measured(way, shop, with_bound="tasks" not in name)
                print(f"{name:26} {line.format(aim=aim)}", flush=True)
    finally:
        shop.close()
        folder.remove()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    main(sys.argv[1:])

"""A shop with FastAPI and PostgreSQL: an order and its message are both there, or neither.

    DATABASE=postgresql://localhost/shop QUEUE=/var/lib/shop uvicorn shop:app

With several workers say `fmq.aio.connect` instead of `fmq.aio.open`.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
from fastapi import FastAPI

import fmq.aio
import fmq.bind

DATABASE, QUEUE = os.environ["DATABASE"], os.environ["QUEUE"]
TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (name text PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS shipments (name text PRIMARY KEY)",
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        for table in TABLES:
            await connection.execute(table)
        await fmq.bind.create_table(connection)
    # What a crash has left undecided is asked of the database before the first request.
    async with fmq.aio.open(QUEUE, resolve={"shop": DATABASE}, timeout=10) as engine:
        app.state.engine = engine
        shipping = asyncio.create_task(ship(engine))
        yield
        shipping.cancel()
        with suppress(asyncio.CancelledError):
            await shipping


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{name}", status_code=201)
async def order(name: str) -> str:
    engine: fmq.aio.AsyncEngine = app.state.engine
    async with (
        await psycopg.AsyncConnection.connect(DATABASE) as connection,
        engine.transaction(producer="shop", bind=connection) as tx,
    ):
        await connection.execute("INSERT INTO orders VALUES (%s)", (name,))
        tx.send("orders", name.encode())
    return name


async def ship(engine: fmq.aio.AsyncEngine) -> None:
    """Ship what was ordered. A crash before the ack brings the order again, hence ON CONFLICT."""
    insert = "INSERT INTO shipments VALUES (%s) ON CONFLICT DO NOTHING"
    async with engine.consumer("orders", group="shipping") as consumer:
        async for delivery in consumer:
            async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
                await connection.execute(insert, (delivery.body.decode(),))
            await delivery.ack()

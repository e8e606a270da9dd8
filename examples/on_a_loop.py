"""Coroutines share syncs: takers of orders, and a consumer that ships what they have taken."""

import asyncio
import tempfile

import fmq.aio

TAKERS, ORDERS = 8, 25


async def take(engine: fmq.aio.AsyncEngine, taker: int) -> None:
    for number in range(ORDERS):
        async with engine.transaction() as tx:  # what all of them commit at once shares a sync
            tx.send("orders", b"%d/%d" % (taker, number))
            tx.send("emails", b"receipt of %d/%d" % (taker, number))


async def ship(engine: fmq.aio.AsyncEngine) -> int:
    shipped = 0
    async with engine.consumer("orders", group="shipping") as consumer:
        async for delivery in consumer:  # waits without a thread
            async with engine.transaction() as tx:  # both, or neither
                tx.send("parcels", delivery.body)
                await tx.ack(delivery)
            shipped += 1
            if shipped == TAKERS * ORDERS:
                break
    return shipped


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with fmq.aio.open(f"{home}/shop") as engine:
            *_, shipped = await asyncio.gather(
                *[take(engine, n) for n in range(TAKERS)], ship(engine)
            )
            print(shipped, "shipped,", len(await engine.read("parcels", limit=1000)), "parcels")


asyncio.run(main())

"""fmq for asyncio: the names of fmq, with calls that are awaited.

    import fmq.aio

    async with fmq.aio.open("shop") as engine:
        await engine.send("audit", b"started")
        async with engine.transaction() as tx:
            tx.send("orders", b"order 1")

All that the coroutines of a loop write in one turn of the loop shares one sync. `docs/asyncio.md`
has more.
"""

from fmq.aio.face.consumer import AsyncConsumer
from fmq.aio.face.delivery import AsyncDeliveries, AsyncDelivery, AsyncDeliveryBatch
from fmq.aio.face.handles import AsyncDeadLetters, AsyncGroup, AsyncSchedule, AsyncTopic
from fmq.aio.face.transaction import AsyncTransaction
from fmq.aio.face.typed_topic import AsyncTypedTopic
from fmq.aio.feedback import AsyncFeedback
from fmq.aio.loop_engine import AsyncEngine
from fmq.aio.opening import connect, of, open

__all__ = [
    "AsyncConsumer",
    "AsyncDeadLetters",
    "AsyncDeliveries",
    "AsyncDelivery",
    "AsyncDeliveryBatch",
    "AsyncEngine",
    "AsyncFeedback",
    "AsyncGroup",
    "AsyncSchedule",
    "AsyncTopic",
    "AsyncTransaction",
    "AsyncTypedTopic",
    "connect",
    "of",
    "open",
]

"""Reading messages in batches, each of which is awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fmq.message import Message
from fmq.store.batch import Batch
from fmq.tx.names import check_place, check_seconds


async def read_in_batches(
    read_batch: Callable[[str, int, int, int, float], Awaitable[Batch | None]],
    topic: str,
    queue: int,
    offset: int,
    limit: int,
    timeout: float,
) -> list[Message]:
    """Return up to `limit` messages, from several batches if needed; wait only for the first."""
    queue, offset, limit = check_place(topic, queue, offset, limit, 0)
    timeout = check_seconds("timeout", timeout)
    found: list[Message] = []
    while len(found) < limit:
        wait = 0.0 if found else timeout
        batch = await read_batch(topic, queue, offset + len(found), limit - len(found), wait)
        if batch is None:
            break
        found += batch.messages
    return found

"""The loops over a consumer: deliveries one by one, some of them polled ahead, or in batches."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import AsyncIterator

from fmq.aio.face.delivery import AsyncDeliveries, AsyncDelivery
from fmq.aio.face.member_door import AsyncMemberDoor
from fmq.consume.calls.lookahead import Lookahead
from fmq.errors import Closed


async def one_by_one(door: AsyncMemberDoor) -> AsyncIterator[AsyncDelivery]:
    """Yield deliveries, and wait for the next; end when the consumer closes or drains.

    Deliveries that were polled ahead and that the program has not seen are given back at the end.
    """
    await door.join()  # on a loop: the member may not have joined yet
    ahead: Lookahead[AsyncDelivery] = Lookahead(
        door.monotonic, door.lease_seconds, door.retry, is_ordered=door.is_ordered
    )
    door.aheads.add(ahead)
    try:
        with door.draining.handling(door.caller()):
            while not has_ended(door):
                delivery = ahead.next()
                if delivery is not None:
                    yield delivery
                    continue
                await door.give_back_unseen(ahead.rest())
                if ahead.wants_to_know():
                    ahead.note_others(await door.count_members())
                limit = ahead.limit()
                if limit > 1:  # on a loop: tasks with earlier deliveries get their turn
                    await sleep(0)  # on a loop: let them run
                await door.give_back_unseen(ahead.fill(await next_deliveries(door, limit)))
    finally:
        door.aheads.discard(ahead)
        await door.give_back_unseen(ahead.rest())


async def in_batches(
    door: AsyncMemberDoor, max_size: int, max_wait: float
) -> AsyncIterator[AsyncDeliveries]:
    """Yield lists of up to `max_size` deliveries, which have come within `max_wait` seconds of the
    first one of their list. End when the consumer closes or drains.
    """
    await door.join()  # on a loop: the member may not have joined yet
    with door.draining.handling(door.caller()):
        while not has_ended(door):
            batch = AsyncDeliveries(door, await next_deliveries(door, max_size))
            deadline = door.monotonic() + max_wait
            while batch and len(batch) < max_size and not has_ended(door):
                left = max(deadline - door.monotonic(), 0.0)
                more = await next_deliveries(door, max_size - len(batch), left)
                if not more:
                    break
                batch += more
            if batch:
                yield batch


async def next_deliveries(
    door: AsyncMemberDoor, limit: int, timeout: float | None = None
) -> list[AsyncDelivery]:
    """Return the deliveries of one poll; none if the consumer closes meanwhile."""
    try:
        return await door.poll(limit, door.loop_seconds if timeout is None else timeout)
    except Closed:
        if not door.is_closed:
            raise
        return []


def has_ended(door: AsyncMemberDoor) -> bool:
    """Return whether the loops over the consumer have to end: it is closed, or drains."""
    return door.is_closed or door.draining.is_on

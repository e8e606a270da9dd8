# Made of fmq/aio/face/iteration.py by tools/make_faces.py: change that file, and run it.
"""The loops over a consumer: deliveries one by one, some of them polled ahead, or in batches."""

from __future__ import annotations

from collections.abc import Iterator

from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.calls.member_door import MemberDoor
from fmq.consume.claims.delivery import Deliveries, Delivery
from fmq.errors import Closed


def one_by_one(door: MemberDoor) -> Iterator[Delivery]:
    """Yield deliveries, and wait for the next; end when the consumer closes or drains.

    Deliveries that were polled ahead and that the program has not seen are given back at the end.
    """
    ahead: Lookahead[Delivery] = Lookahead(
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
                door.give_back_unseen(ahead.rest())
                if ahead.wants_to_know():
                    ahead.note_others(door.count_members())
                limit = ahead.limit()
                door.give_back_unseen(ahead.fill(next_deliveries(door, limit)))
    finally:
        door.aheads.discard(ahead)
        door.give_back_unseen(ahead.rest())


def in_batches(door: MemberDoor, max_size: int, max_wait: float) -> Iterator[Deliveries]:
    """Yield lists of up to `max_size` deliveries, which have come within `max_wait` seconds of the
    first one of their list. End when the consumer closes or drains.
    """
    with door.draining.handling(door.caller()):
        while not has_ended(door):
            batch = Deliveries(door, next_deliveries(door, max_size))
            deadline = door.monotonic() + max_wait
            while batch and len(batch) < max_size and not has_ended(door):
                left = max(deadline - door.monotonic(), 0.0)
                more = next_deliveries(door, max_size - len(batch), left)
                if not more:
                    break
                batch += more
            if batch:
                yield batch


def next_deliveries(door: MemberDoor, limit: int, timeout: float | None = None) -> list[Delivery]:
    """Return the deliveries of one poll; none if the consumer closes meanwhile."""
    try:
        return door.poll(limit, door.loop_seconds if timeout is None else timeout)
    except Closed:
        if not door.is_closed:
            raise
        return []


def has_ended(door: MemberDoor) -> bool:
    """Return whether the loops over the consumer have to end: it is closed, or drains."""
    return door.is_closed or door.draining.is_on

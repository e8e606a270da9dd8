"""What clients ask to have written, from one turn of the loop: planned together, one sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fmq.errors import FmqError
from fmq.store.commit_queue import CommitQueue


class WriteOrder(NamedTuple):
    """One thing to write."""

    plan: Callable[[], object]
    """Plans it, under the engine's lock. It may refuse."""
    done: Callable[[], None]
    """Called when it is durable."""
    refused: Callable[[Exception], None]
    """Called if it was refused, or the engine has failed."""
    sync: bool | None


class Turn:
    """Collects orders, and has them written in the order in which they came."""

    def __init__(self, commit_queue: CommitQueue, after: Callable[[], None]) -> None:
        """`after` is called once after each write."""
        self._commit_queue = commit_queue
        self._after = after
        self._orders: list[WriteOrder] = []

    def add(self, order: WriteOrder) -> None:
        """Have `order` written by the next `commit`."""
        self._orders.append(order)

    def commit(self) -> None:
        """Write all orders. Return when they are durable, and each was told."""
        orders, self._orders = self._orders, []
        if not orders:
            return
        syncs = {order.sync for order in orders}
        sync = True if True in syncs else None if None in syncs else False
        try:
            refusals = self._commit_queue.run(self._plan, orders, sync)
        except FmqError as error:
            for order in orders:
                order.refused(error)
            return
        for order, refusal in zip(orders, refusals, strict=True):
            if refusal is None:
                order.done()
            else:
                order.refused(refusal)
        self._after()

    def _plan(self, orders: list[WriteOrder]) -> list[Exception | None]:
        """Plan each order; return its refusal, or None. Under the lock."""
        refusal_of = self._commit_queue.changing.refusal_of
        return [refusal_of(order.plan) for order in orders]

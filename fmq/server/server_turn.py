"""The writes that clients ask for in one turn of the loop: planned together, with one sync."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from fmq.errors import FmqError, OutcomeUnknown
from fmq.store.journal.commit_queue import CommitQueue

logger = logging.getLogger("fmq.server")


class WriteOrder(NamedTuple):
    """One write that a client asks for."""

    plan: Callable[[], object]
    """Plans it, under the engine's lock. It may refuse."""
    done: Callable[[], None]
    """Called when it is durable."""
    failed: Callable[[Exception], None]
    """Called with the error, if it was refused or the engine has failed."""
    undo: Callable[[], None]
    """Called before `failed`, to give back what the order holds."""
    sync: bool | None


class Turn:
    """Collects orders, and has them written in the order in which they came."""

    def __init__(self, commit_queue: CommitQueue, after: Callable[[], None]) -> None:
        """`after` is called once after each write."""
        self._commit_queue = commit_queue
        self._after = after
        self._orders: list[WriteOrder] = []
        self.number = 0
        """How many turns were written."""

    def add(self, order: WriteOrder) -> None:
        """Let the next `commit` write `order`."""
        self._orders.append(order)

    def __len__(self) -> int:
        """Return how many orders wait."""
        return len(self._orders)

    def commit(self) -> None:
        """Write all orders. On return they are durable, and their clients have answers to be sent.
        Raises nothing.
        """
        orders, self._orders = self._orders, []
        if not orders:
            return
        self.number += 1
        syncs = {order.sync for order in orders}
        sync = True if True in syncs else None if None in syncs else False
        try:
            refusals = self._commit_queue.run(self._plan, orders, sync)
        except Exception as error:
            failure = error
            if not isinstance(error, FmqError):
                logger.exception("the engine has failed while it wrote for clients")
                failure = self._commit_queue.failed_error()
            for order in orders:
                _tell(order, failure)
            return
        for order, refusal in zip(orders, refusals, strict=True):
            _tell(order, refusal)
        self._after()

    def _plan(self, orders: list[WriteOrder]) -> list[Exception | None]:
        """Plan each order. Return the refusal of each, or None. The caller holds the
        engine's lock.
        """
        refusal_of = self._commit_queue.changing.refusal_of
        return [refusal_of(order.plan) for order in orders]


def _tell(order: WriteOrder, refusal: Exception | None) -> None:
    """Tell the client of `order` what became of it. Raises nothing, because other clients have to
    be told, too.
    """
    try:
        if refusal is None:
            order.done()
        else:
            order.undo()
    except Exception as error:
        logger.exception("an order of a client was not ended as it should be")
        refusal = refusal or OutcomeUnknown(
            f"what this call wrote is durable, but it has no answer ({error!r}). Look at it with "
            "engine.read, or engine.outcome for a transaction."
        )
    if refusal is not None:
        order.failed(refusal)

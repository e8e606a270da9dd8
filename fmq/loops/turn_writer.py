"""Writing what one turn of a loop has ordered with one plan, one waiter and one sync.

The loop itself writes while its writes are quick and no other thread writes, because handing a lone
write to the committer and back costs as much as the write. Otherwise the committer writes, and the
loop goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from fmq.errors import FmqError
from fmq.loops.event_loop import Loop
from fmq.store.journal.commit_queue import CommitQueue

QUICK_SECONDS = 0.002  # a write that takes longer holds up the loop
# After this many slow writes in a row the loop stops writing. A single one may only mean that the
# machine was busy.
SLOW_WRITES = 2
# After this many turns that the committer wrote, the loop writes again.
LOOKS_AGAIN = 16


class TurnOrder(Protocol):
    """One thing to write. It gets exactly one answer."""

    work: Any
    """A plan, and its argument. Planned under the engine's lock; it may refuse."""
    refusal: Exception | None

    @property
    def sync(self) -> bool | None: ...

    def finish(self) -> None:
        """Go on, because the order is durable. Raises nothing, because other orders still wait for
        their answers.
        """

    def fail(self, make: Callable[[], BaseException]) -> None:
        """Go on with an error: the order was refused, or the engine has failed. Raises nothing."""


class TurnOrders(Protocol):
    """What one turn has ordered."""

    @property
    def orders(self) -> Sequence[TurnOrder]: ...

    failure: BaseException | None


class Pace:
    """Decides whether the loop or the committer writes, by how long the loop's last writes took."""

    def __init__(self) -> None:
        self.turns_left = 0  # turns that the committer still has to write
        self._slow = 0  # slow writes in a row

    def is_quick(self) -> bool:
        """Return whether the loop itself writes this turn. Call it once for each turn."""
        if self.turns_left:
            self.turns_left -= 1
            return False
        return True

    def note(self, seconds: float) -> None:
        """Note how long a write of the loop took."""
        self._slow = 0 if seconds <= QUICK_SECONDS else self._slow + 1
        if self._slow >= SLOW_WRITES:
            self.turns_left = LOOKS_AGAIN


class TurnWriter:
    """Passes the orders of the turns of one loop to an engine of this process, which writes
    them.
    """

    def __init__(
        self,
        loop: Loop,
        commit_queue: CommitQueue,
        monotonic: Callable[[], float],
        after: Callable[[], None],
    ) -> None:
        """`after` is called once after each write."""
        self._loop = loop
        self._commit_queue = commit_queue
        # Not the clock of the loop: that of uvloop stands still during a callback.
        self._monotonic = monotonic
        self._after = after
        self.ended: Callable[[Any], object] = lambda batch: None
        """Gets each batch, once all its orders have their answers."""
        self.pace = Pace()
        self._planned_at = 0.0
        self._written_for: deque[TurnOrders] = deque()  # batches that another thread has written

    def write(self, batch: TurnOrders) -> None:
        """Plan the orders of `batch`, and have them written."""
        queue, orders = self._commit_queue, batch.orders
        if len(orders) == 1:
            sync = orders[0].sync
        else:
            syncs = {order.sync for order in orders}
            sync = True if True in syncs else None if None in syncs else False
        waits = queue.waits(sync)
        try:
            if not waits:
                queue.run(self._plan, orders, False)
            elif not queue.is_led and (queue.committer is None or self.pace.is_quick()):
                queue.run(self._plan, orders, sync)
                if queue.committer is not None:
                    self.pace.note(self._monotonic() - self._planned_at)
            else:
                queue.submit(self._plan, orders, partial(self._written, batch), sync)
                return
        except BaseException as error:
            self._fail(batch, error)
            if not isinstance(error, Exception):
                raise
            return
        self._served(batch)

    def _plan(self, orders: Sequence[TurnOrder]) -> None:
        """Plan each order, and note its refusal. The caller holds the engine's lock."""
        refusal_of = self._commit_queue.changing.refusal_of
        for order in orders:
            order.refusal = refusal_of(*order.work)
        self._planned_at = self._monotonic()

    def _written(self, batch: TurnOrders, failure: BaseException | None) -> None:
        """Note that a batch is durable, or has failed. Any thread may call this, and holds the
        engine's lock.
        """
        batch.failure = failure
        self._written_for.append(batch)
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._serve_written)

    def _serve_written(self) -> None:
        while self._written_for:
            self._served(self._written_for.popleft())

    def finish(self) -> None:
        """Wait until all is written, and answer."""
        with suppress(FmqError):  # the engine has failed, and each caller gets that error
            self._commit_queue.flush()
        self._serve_written()

    def _served(self, batch: TurnOrders) -> None:
        if batch.failure is not None:
            self._fail(batch, batch.failure)
            return
        for order in batch.orders:
            refusal = order.refusal
            if refusal is None:
                order.finish()
            else:
                order.fail(lambda error=refusal: error)  # type: ignore[misc]
        self.ended(batch)
        self._after()

    def _fail(self, batch: TurnOrders, error: BaseException) -> None:
        """Give all callers of a batch an error: the engine has failed, or is closed."""
        queue = self._commit_queue
        make = queue.failed_error if queue.broken() else lambda: error
        for order in batch.orders:
            order.fail(make)
        self.ended(batch)

"""Writing the orders of one turn of a loop, with one plan, one waiter and one sync.

    turn of the loop     coroutines call `engine.send`, `ack`, `commit`; each call becomes an
                         order, and its coroutine waits for a future
    end of the turn      `_write` plans all orders in one section of the commit queue
    write and sync       by this thread, or by the committer (see AioTurn)
    a later turn         `_served` sets the futures: each coroutine goes on

So 100 coroutines that send in one turn take one append, or a few, and one sync. No task and no
executor of the loop is used for this, so nothing that cancels tasks ends it.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from fmq.aio.order_batch import Gathering
from fmq.aio.orders import AioOrder, Joined, LateOrder, Place, Target, TurnBatch
from fmq.store.journal.commit_queue import CommitQueue
from fmq.tx.commands.command import Command
from fmq.tx.commands.sender import Sender
from fmq.tx.commands.writer import Writer

T = TypeVar("T")

QUICK_SECONDS = 0.002  # a write that takes longer holds up the loop
# So many slow writes in a row make the loop stop writing. One may only mean that the machine was
# busy.
SLOW_WRITES = 2
# After so many turns that the committer wrote, the loop writes again.
LOOKS_AGAIN = 16
Work = tuple[Callable[[Any], object], Any]
"""A plan, and its argument."""


class Pace:
    """Decides whether the loop writes by itself, from the time that its last writes took."""

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


class AioTurn:
    """Has the orders of the coroutines of one loop written, by an engine of this process.

    The loop itself writes while its writes are quick and no other thread writes: handing a lone
    write to the committer and back costs as much as the write. Otherwise the committer writes.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        commit_queue: CommitQueue,
        sender: Sender,
        writer: Writer,
        after: Callable[[], None],
    ) -> None:
        """`after` is called once after each write."""
        self._loop = loop
        self._thread = get_ident()
        self._commit_queue = commit_queue
        self._sender = sender
        self._send = writer.send
        self._after = after
        self._writing: TurnBatch | None = None  # the batch that this thread is writing
        self._pace = Pace()
        # Not the loop's own clock: that of uvloop stands still during a callback.
        self._monotonic = writer.clock.monotonic
        self._planned_at = 0.0
        self._gathering = Gathering(loop, self._make, _place_of, self._write)
        self.send, self.drain = self._gathering.send, self._gathering.drain

    def order(
        self,
        plan: Callable[[Any], object],
        what: Any,
        done: Callable[[], Any],
        sync: bool | None = None,
        size: int = 0,
        *,
        is_apart: bool = False,
    ) -> AioOrder:
        """Let `plan(what)` plan appends in this turn, and have them written. `done()` then returns
        the result of the call.
        """
        order = AioOrder(self._loop, (plan, what), done, sync, size)
        self._gathering.add(order, is_apart)
        return order

    def late(
        self, make: Callable[[T], Command[Any]], what: T, sync: bool | None, size: int
    ) -> AioOrder:
        """Let `make(what)` make a command at the end of the turn, and have it carried out. Its
        append takes at most `size` bytes.
        """
        order = LateOrder(self._loop, make, what, sync, size)
        self._gathering.add(order)
        return order

    def _make(self, target: Target, bodies: list[bytes], sync: bool | None) -> Work:
        return self._send, self._sender.joined(*target, bodies)

    def _write(self, batch: TurnBatch) -> None:
        queue = self._commit_queue
        syncs = {order.sync for order in batch.orders}
        waits = any(map(queue.waits, syncs))
        here = waits and (self._pace.is_quick() or queue.committer is None)
        self._writing = batch if here else None
        try:
            if waits:
                sync = True if True in syncs else None
                then = partial(self._written, batch)
                queue.submit(self._plan, batch.orders, then, sync, here=here)
            else:
                queue.run(self._plan, batch.orders, False)
        except BaseException as error:
            self._writing = None
            self._fail(batch, error)
            if not isinstance(error, Exception):
                raise
            return
        if not waits or (here and self._writing is None):
            self._served(batch)
        self._writing = None

    def _plan(self, orders: list[AioOrder | Joined]) -> None:
        """Plan each order, and note its refusal. The caller holds the engine's lock."""
        refusal_of = self._commit_queue.changing.refusal_of
        for order in orders:
            order.refusal = refusal_of(*order.work)
        self._planned_at = self._monotonic()

    def _written(self, batch: TurnBatch, failure: BaseException | None) -> None:
        """Note that a batch is durable, or has failed. Any thread may call this, and holds the
        engine's lock.
        """
        batch.failure = failure
        if self._writing is batch and get_ident() == self._thread:
            self._writing = None
            self._pace.note(self._monotonic() - self._planned_at)
            return
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
            self._loop.call_soon_threadsafe(self._served, batch)

    def _served(self, batch: TurnBatch) -> None:
        if batch.failure is not None:
            self._fail(batch, batch.failure)
            return
        for order in batch.orders:
            refusal = order.refusal
            if refusal is None:
                order.finish()
            else:
                order.fail(lambda error=refusal: error)  # type: ignore[misc]
        self._gathering.ended(batch)
        self._after()

    def _fail(self, batch: TurnBatch, error: BaseException) -> None:
        """Give all callers of a batch an error: the engine has failed, or is closed."""
        queue = self._commit_queue
        make = queue.failed_error if queue.broken() else lambda: error
        for order in batch.orders:
            order.fail(make)
        self._gathering.ended(batch)


def _place_of(work: Work) -> Place:
    run = work[1][-1]
    return run.queue, run.offset, run.position

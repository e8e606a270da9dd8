"""The orders of the coroutines of one loop, for an engine of this process.

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
from typing import Any, TypeVar

from fmq.aio.order_batch import Gathering
from fmq.aio.orders import AioOrder, LateOrder, RecordPlace, Target
from fmq.loops.turn_writer import TurnWriter
from fmq.steps.call_steps import Command
from fmq.store.journal.commit_queue import CommitQueue
from fmq.tx.commands.sender import Sender
from fmq.tx.commands.writer import Writer

T = TypeVar("T")

OrderWork = tuple[Callable[[Any], object], Any]
"""A plan, and its argument."""


class AioTurn:
    """Passes the orders of one loop's coroutines to the engine of this process, which writes
    them.
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
        self._sender = sender
        self._send = writer.send
        self.writer = TurnWriter(loop, commit_queue, writer.clock.monotonic, after)
        self._gathering = Gathering(loop, self._make, _place_of, self.writer.write)
        self.writer.ended = self._gathering.ended
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

    def _make(self, target: Target, bodies: list[bytes], sync: bool | None) -> OrderWork:
        return self._send, self._sender.joined(*target, bodies)


def _place_of(work: OrderWork) -> RecordPlace:
    run = work[1][-1]
    return run.queue, run.offset, run.position

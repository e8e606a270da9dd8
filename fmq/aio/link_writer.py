"""Sending the requests of one turn of a loop to an engine process, all at once."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any

from fmq.aio.link_reader import LoopReader
from fmq.aio.order_batch import Gathering
from fmq.aio.orders import AioOrder, Joined, RecordPlace, Target, TurnBatch
from fmq.aio.threads import Threads
from fmq.remote.link import Link
from fmq.remote.open_requests import Asked, ToAsk
from fmq.tx.commands.sender import Sender
from fmq.wire.frames import Op
from fmq.wire.sends import decode_sent, encode_send

LinkWork = tuple[Op, Callable[..., Any], tuple[Any, ...], int]
"""What `Link.write` takes: op, how to encode, of what, and the handle of a consumer."""


class Asking:
    """Sends the requests of one loop over one connection."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        link: Link,
        reader: LoopReader,
        sender: Sender,
        threads: Threads,
    ) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._link = link
        self._reader = reader
        self._sender = sender
        self._threads = threads
        # Requests that wait until the thread that connects or sends is done.
        self._backlog: list[ToAsk] = []
        # True while a thread connects or sends.
        self._is_sending = False
        self._gathering = Gathering(loop, self._make, _place_of, self._ask)
        gathering = self._gathering
        self.order, self.add, self.drain = gathering.order, gathering.add, gathering.drain
        self.add_send = gathering.add_send

    def _make(self, target: Target, bodies: list[bytes], sync: bool | None) -> LinkWork:
        return Op.SEND, encode_send, (sync, self._sender.joined(*target, bodies)), 0

    def ask(self, order: AioOrder) -> None:
        """Send a request at once. Neither the turn nor `drain` waits for its answer."""
        order.has_begun = True
        self.begin([self._to_ask(None, order)])

    def _ask(self, batch: TurnBatch) -> None:
        self.begin([self._to_ask(batch, each) for each in batch.orders])

    def _to_ask(self, batch: TurnBatch | None, order: AioOrder | Joined) -> ToAsk:
        op, encode, what, handle = order.work
        then = partial(self._answered, batch, order)
        return ToAsk(op, encode, what, handle, order.patience, then)

    def _answered(
        self,
        batch: TurnBatch | None,
        order: AioOrder | Joined,
        answer: bytes,
        error: Exception | None,
    ) -> None:
        """Hand an answer or an error to its order, in the thread of the loop. Any thread may call
        this.
        """
        if get_ident() == self._thread:
            self._settle(batch, order, answer, error)
            return
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
            self._loop.call_soon_threadsafe(self._settle, batch, order, answer, error)

    def _settle(
        self,
        batch: TurnBatch | None,
        order: AioOrder | Joined,
        answer: bytes,
        error: Exception | None,
    ) -> None:
        if error is None:
            order.finish(answer)
        else:
            order.fail(lambda: error)
        if batch is not None:
            batch.left -= 1
            if not batch.left:
                self._gathering.ended(batch)

    # --- requests -------------------------------------------------------------------------------

    def begin(self, requests: list[ToAsk]) -> list[Asked]:
        """Send the requests, now or once the thread that connects or sends is done. Return the
        requests that were sent.
        """
        self._reader.begin()
        if not self._is_sending:
            is_sent, found = self._link.begin(requests, waits=False)
            if is_sent:
                return found
            if found:
                self._in_thread(self._link.send_rest)
                return found
        self._backlog += requests
        if not self._is_sending:
            self._in_thread(partial(self._link.begin, self._take_backlog(), waits=True))
        return []

    def _take_backlog(self) -> list[ToAsk]:
        backlog, self._backlog = self._backlog, []
        return backlog

    def _in_thread(self, send: Callable[[], object]) -> None:
        self._is_sending = True
        self._threads.alone(partial(self._send, send))

    def _send(self, send: Callable[[], object]) -> None:
        try:
            send()
        finally:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._sent)

    def _sent(self) -> None:
        self._is_sending = False
        if self._backlog:
            self.begin(self._take_backlog())
        self._reader.look()


def _place_of(work: LinkWork, answer: bytes) -> RecordPlace:
    (receipt,) = decode_sent("", answer)
    return receipt.queue, receipt.offset, receipt.position

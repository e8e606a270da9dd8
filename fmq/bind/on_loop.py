"""A bound transaction over a connection of asyncio: psycopg's AsyncConnection, or aiosqlite's.

Its steps are told once, in fmq/bind/transaction.py, for connections that block. Here they run in
a thread, where waiting for the disk holds up nobody, and what they ask of the connection is done
on the loop that it belongs to. Steps that have begun are never left: a database that was told to
commit may have done it, and a thread that writes the journal cannot be stopped. So whoever is
cancelled meanwhile waits on, and is cancelled when they are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

from fmq.bind.errors import wrong_with
from fmq.bind.transaction import BoundTransaction
from fmq.errors import add_note
from fmq.tx.buffer import Phase

T = TypeVar("T")


class AsyncBoundTransaction(BoundTransaction):
    """As an `async with` block: begins the database's transaction, and ends both."""

    _connection: Any
    _meet: Callable[[Bridge], object]

    def bind_on_loop(
        self, connection: Any, meet: Callable[[Bridge], object]
    ) -> AsyncBoundTransaction:
        """`meet` binds it, once that can be awaited."""
        self._connection, self._meet = connection, meet
        return self

    def __enter__(self) -> BoundTransaction:
        self._free_id()
        raise wrong_with("async with", "asyncio's")

    async def __aenter__(self) -> BoundTransaction:
        bridge = Bridge(self._connection, asyncio.get_running_loop())
        try:
            await in_thread(partial(self._begin, bridge))
        except asyncio.CancelledError as cancelled:
            if self.phase is Phase.OPEN:  # it has begun, and nobody is going to end it
                await in_thread(partial(super().__exit__, type(cancelled), cancelled, None))
            raise
        return self

    def _begin(self, bridge: Bridge) -> None:
        try:
            self._meet(bridge)
        except BaseException:
            self._free_id()
            raise
        super().__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await in_thread(partial(super().__exit__, kind, error, traceback))
        except asyncio.CancelledError as cancelled:
            add_note(
                cancelled,
                f"it came while transaction {self.tx_id!r} was ended, which is never left "
                f"halfway: it is {self.phase.value}. engine.outcome({self.tx_id!r}) tells more.",
            )
            raise


class Bridge:
    """A connection of asyncio, or a cursor of one, as code sees it that blocks in a thread."""

    def __init__(self, of: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.__dict__.update(_of=of, _loop=loop)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return partial(self.call, found) if callable(found) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._of, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    @property
    def in_transaction(self) -> bool:
        """Of aiosqlite, which does one thing after the other: what was begun before is done."""
        self.cursor()
        return bool(self._of.in_transaction)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What `function` returns or promises, called on the loop."""
        call = partial(function, *arguments, **named)
        result = asyncio.run_coroutine_threadsafe(_awaited(call), self._loop).result()
        return Bridge(result, self._loop) if hasattr(result, "fetchall") else result


async def _awaited(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isinstance(result, Awaitable) else result


async def through(connection: Any, work: Callable[[Any], T]) -> T:
    """What `work` returns in a thread, given `connection` as code sees it that blocks."""
    return await in_thread(partial(work, Bridge(connection, asyncio.get_running_loop())))


async def in_thread(step: Callable[[], T]) -> T:
    """What `step` returns or raises; a cancellation is raised only when it has ended."""
    # A thread of its own: one of the loop's few may be waiting for a lock that this one is to free.
    done: Future[T] = Future()
    run = partial(copy_context().run, _run, step, done)
    Thread(target=run, name="fmq bound transaction", daemon=True).start()
    waiting = asyncio.wrap_future(done)
    cancelled = None
    while not waiting.done():
        try:
            await asyncio.wait((waiting,))  # which does not cancel what it waits for
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is None:
        return waiting.result()
    raise cancelled from waiting.exception()


def _run(step: Callable[[], T], done: Future[T]) -> None:
    try:
        result = step()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(result)

"""Run the steps of a bound transaction in a thread, and its calls of the connection on the loop.

This serves the connections of psycopg's AsyncConnection, aiosqlite and SQLAlchemy's asyncio. The
steps are those of fmq/bind/transaction.py, which block. In a thread they do not hold up the loop
while they wait for the disk. A step that has begun always runs to its end: the database may have
committed already, and a thread that writes the journal cannot be stopped. So a cancelled task waits
for the end of the step, and only then raises its CancelledError.
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

from fmq.bind.errors import wrong_with_statement
from fmq.bind.transaction import BoundTransaction
from fmq.errors import add_note
from fmq.tx.buffer import Phase
from fmq.tx.running import enter, leave

T = TypeVar("T")


class AsyncBoundTransaction(BoundTransaction):
    """An `async with` block that begins the database's transaction, and ends both."""

    _connection: Any
    _meet: Callable[[Bridge], object]

    def bind_on_loop(
        self, connection: Any, meet: Callable[[Bridge], object]
    ) -> AsyncBoundTransaction:
        """Keep `meet`, which binds this transaction once the block begins, and return this one."""
        self._connection, self._meet = connection, meet
        return self

    def __enter__(self) -> BoundTransaction:
        self._free_id()
        raise wrong_with_statement("async with", "asyncio's")

    async def __aenter__(self) -> BoundTransaction:
        bridge = Bridge(self._connection, asyncio.get_running_loop())
        try:
            await in_thread(partial(self._begin, bridge))
        except asyncio.CancelledError as cancelled:
            if self.phase is Phase.OPEN:  # the database has begun, and the block will not run
                await in_thread(partial(super().__exit__, type(cancelled), cancelled, None))
            raise
        enter(self)  # the thread has noted it in its own context
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
                f"it came while transaction {self.tx_id!r} was ended, which always runs to "
                f"its end: it is {self.phase.value}. engine.outcome({self.tx_id!r}) has more.",
            )
            raise
        finally:
            leave(self)


class Bridge:
    """A connection or cursor of asyncio with methods that block, for use in a thread."""

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
        """Return whether aiosqlite is in a transaction after the statements that it has queued."""
        self.cursor()  # runs after what is queued
        return bool(self._of.in_transaction)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call `function` on the loop, await its result, and return that."""
        call = partial(function, *arguments, **named)
        result = asyncio.run_coroutine_threadsafe(_awaited(call), self._loop).result()
        return Bridge(result, self._loop) if hasattr(result, "fetchall") else result


async def _awaited(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isinstance(result, Awaitable) else result


async def through(connection: Any, work: Callable[[Any], T]) -> T:
    """Call `work` in a thread with a blocking bridge to `connection`, and return its result."""
    return await in_thread(partial(work, Bridge(connection, asyncio.get_running_loop())))


async def in_thread(step: Callable[[], T]) -> T:
    """Run `step` in a thread, and return or raise what it does.

    A cancellation is raised only after the step has ended.
    """
    # A new thread: all threads of the loop's pool may wait for a lock that this step releases.
    done: Future[T] = Future()
    run = partial(copy_context().run, _run, step, done)
    Thread(target=run, name="fmq bound transaction", daemon=True).start()
    waiting = asyncio.wrap_future(done)
    cancelled = None
    while not waiting.done():
        try:
            await asyncio.wait((waiting,))  # which does not cancel the step
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

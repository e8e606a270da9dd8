"""Runs the steps of a bound transaction for an event loop. Its calls of the connection run on the
loop.

This serves the connections of psycopg's AsyncConnection, aiosqlite and SQLAlchemy's asyncio. The
steps are those of fmq/bind/bound_transaction.py, which block. With aiosqlite they run in the
thread of its connection: a step is one visit. Else they run on the loop and are suspended where
they wait (suspension.py), or in a thread of their own. A step that has begun always runs to its
end: the database may have committed already, and what was planned is written. So a cancelled task
waits for the end of the step, and only then raises its CancelledError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

from fmq.basics.results import Outcome
from fmq.bind.bind_errors import unusable_connection, wrong_with_statement
from fmq.bind.bound_transaction import BoundTransaction
from fmq.bind.suspension import CAN_SUSPEND, Suspending
from fmq.errors.notes import add_note
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import Phase

T = TypeVar("T")


class AsyncBoundTransaction(BoundTransaction):
    """An `async with` block that begins the database's transaction, and ends both transactions."""

    _connection: Any
    _meet: Callable[[Any], object]
    _loop: asyncio.AbstractEventLoop
    _suspending: Suspending | None = None  # the step that is running on the loop

    def bind_on_loop(self, connection: Any, meet: Callable[[Any], object]) -> AsyncBoundTransaction:
        """Keep `meet`, which will bind this transaction when the block begins. Return this
        transaction.
        """
        self._connection, self._meet = connection, meet
        return self

    def __enter__(self) -> BoundTransaction:
        self._free_id()
        raise wrong_with_statement("async with", "asyncio's")

    async def __aenter__(self) -> BoundTransaction:
        self._loop = asyncio.get_running_loop()
        try:
            await self._take(self._begin)
        except asyncio.CancelledError as cancelled:
            if self.phase is Phase.OPEN:  # the database has begun, and the block will not run
                await self._take(partial(super().__exit__, type(cancelled), cancelled, None))
            raise
        # The step has noted the running transaction in its own context. Note the transaction in
        # this context, too.
        enter(self)
        return self

    async def _take(self, step: Callable[[], T]) -> T:
        """Run a step to its end: in the connection's thread if it has one, on the loop if the step
        can be suspended there, else in a thread.
        """
        if has_thread(self._connection):
            return await in_thread(step, partial(run_in_its_thread, self._connection))
        queue = self._manager.commit_queue
        if not CAN_SUSPEND or queue is None or queue.committer is None:
            return await in_thread(step)
        self._suspending = suspending = Suspending(step)
        cancelled = None
        while True:
            drive = suspending.drive(queue)
            try:
                result: T = await in_task(drive)
                break
            except asyncio.CancelledError as error:
                if suspending.has_begun:
                    raise
                cancelled = error  # the loop cancelled all tasks before this one began
                drive.close()
            finally:
                if suspending.has_begun:
                    self._suspending = None
        if cancelled is not None:
            raise cancelled
        return result

    def _call(self, call: Callable[[], Any]) -> Any:
        """Call a method of the connection on the loop, await its result and return that. Steps use
        it.
        """
        if self._suspending is None:
            return on_loop(self._loop, call)
        found = call()
        return self._suspending.wait(found) if isinstance(found, Awaitable) else found

    def ask(self) -> Outcome | None:
        """Ask the database on a new connection, in a thread."""
        if self._suspending is None:
            return super().ask()
        return self._suspending.wait(in_thread(super().ask))

    def _begin(self) -> None:
        try:
            self._meet(self._blocking())
        except BaseException:
            self._free_id()
            raise
        super().__enter__()

    def _blocking(self) -> Any:
        """Return the connection that steps call: that of sqlite3 in its thread, or a bridge."""
        if not has_thread(self._connection):
            return Bridge(self._connection, self._call)
        try:
            return self._connection._conn
        except ValueError:
            raise unusable_connection("it is closed.") from None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._take(partial(super().__exit__, kind, error, traceback))
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
    """An asyncio connection or cursor with blocking methods, which a step can call."""

    def __init__(self, of: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        """`call` runs a function on the loop, awaits its result and returns that."""
        self.__dict__.update(_of=of, _call=call)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return partial(self.call, found) if callable(found) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._of, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    @property
    def in_transaction(self) -> bool:
        """Return whether aiosqlite is in a transaction after the statements in its queue."""
        self.cursor()  # waits for the queued statements, as a cursor is made after them
        return bool(self._of.in_transaction)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call `function` on the loop, await its result and return that."""
        result = self._call(partial(function, *arguments, **named))
        return Bridge(result, self._call) if hasattr(result, "fetchall") else result


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> Any:
    """Call `call` on the loop from a thread, await its result and return that."""
    return asyncio.run_coroutine_threadsafe(_awaited(call), loop).result()


async def _awaited(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isinstance(result, Awaitable) else result


async def through(connection: Any, work: Callable[[Any], T]) -> T:
    """Call `work` in a thread, with a blocking bridge to `connection`. Return its result."""
    call = partial(on_loop, asyncio.get_running_loop())
    return await in_thread(partial(work, Bridge(connection, call)))


class StepEnd(asyncio.Future[T]):
    """The result of a step that runs elsewhere. It cannot be cancelled: a cancelled task that waits
    for it gets its CancelledError after the step has ended.
    """

    def cancel(self, msg: Any = None) -> bool:
        """Refuse the cancellation, and return False: the step goes on."""
        return False


async def in_thread(
    step: Callable[[], T], start: Callable[[Callable[[], None]], None] | None = None
) -> T:
    """Run `step` in a thread, and return or raise its result. `start` chooses the thread; without
    it a new one runs.

    A cancellation is raised only after the step has ended.
    """
    end: StepEnd[T] = StepEnd(loop=asyncio.get_running_loop())
    run = partial(copy_context().run, _run, step, end)
    if start is None:
        _start_thread(run)
    else:
        start(run)
    return await to_its_end(end)


def _start_thread(run: Callable[[], None]) -> None:
    # Use a new thread: all threads of the loop's pool may be waiting for a lock that this step
    # releases.
    Thread(target=run, name="fmq bound transaction", daemon=True).start()


def has_thread(connection: Any) -> bool:
    """Return whether `connection` is one of aiosqlite, whose thread runs any function.

    Of a class that is derived from it only the methods are called: it may have replaced them.
    """
    found = type(connection)
    known = found.__module__.partition(".")[0] == "aiosqlite" and found.__qualname__ == "Connection"
    return known and hasattr(connection, "_execute") and hasattr(found, "_conn")


def run_in_its_thread(connection: Any, run: Callable[[], None]) -> None:
    """Have the thread of an aiosqlite connection call `run`. If it is closed, use a new thread."""
    call = connection._execute(run)
    try:
        call.send(None)  # run until the first wait: by then `run` is in the queue
    except ValueError:
        # The step will find the connection closed, and undo what it can.
        _start_thread(run)
    call.close()


async def in_task(step: Coroutine[Any, Any, T]) -> T:
    """Run `step` in its own task, and return or raise its result, as `in_thread` does."""
    task = asyncio.ensure_future(step)
    end: StepEnd[T] = StepEnd(loop=asyncio.get_running_loop())
    task.add_done_callback(partial(_end_with, end))
    return await to_its_end(end)


async def to_its_end(end: StepEnd[T]) -> T:
    """Return or raise the step's result. A cancellation is raised only after the step's end."""
    try:
        return await end
    except asyncio.CancelledError as cancelled:
        if end.done() and end.exception() is not cancelled:
            raise cancelled from end.exception()
        raise


def _end_with(end: StepEnd[T], task: asyncio.Future[T]) -> None:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is None:
        end.set_result(task.result())
    else:
        end.set_exception(error)


def _run(step: Callable[[], T], end: StepEnd[T]) -> None:
    try:
        tell: Callable[[], None] = partial(end.set_result, step())
    except BaseException as error:
        tell = partial(end.set_exception, error)
    with suppress(RuntimeError):  # the loop is closed, so no task waits any more
        end.get_loop().call_soon_threadsafe(tell)

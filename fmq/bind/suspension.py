"""Runs a blocking step on the event loop: where the step would wait, its greenlet is suspended.

The steps of a bound transaction are written once, for connections that block. With asyncio a step
runs in a greenlet, as SQLAlchemy's does. The task that drives the greenlet awaits what a call of
the database returns. It also awaits the sync of the engine: the commit queue hands its plan to the
committer and calls back. So a transaction costs no thread, and the loop goes on meanwhile.

Without the package `greenlet`, or where the engine is in another process, on_loop.py takes threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from threading import get_ident
from typing import Any, TypeVar

from fmq.store.journal.commit_queue import CommitQueue

try:
    from greenlet import greenlet  # type: ignore[import-untyped]
except ImportError:  # installed by SQLAlchemy's extra for asyncio
    CAN_SUSPEND = False
else:
    CAN_SUSPEND = True

T = TypeVar("T")


class Suspending:
    """One step that runs on an event loop."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._runner = greenlet(step)
        self._runner.gr_context = copy_context()
        self._is_over = False
        self.has_begun = False

    async def drive(self, queue: CommitQueue) -> Any:
        """Run the step to its end, and return or raise its result. Where the step waits for
        `queue`, await that, too.
        """
        self.has_begun = True
        me, runner = get_ident(), self._runner
        go_on: Callable[..., Any] = runner.switch
        arguments: tuple[Any, ...] = ()
        while True:
            queue.suspending[me] = self
            try:
                found = go_on(*arguments)
            finally:
                del queue.suspending[me]
            if runner.dead:
                return found
            try:
                go_on, arguments = runner.switch, (await found,)
            except asyncio.CancelledError:
                # The program ends, or the database's own call was cancelled: let the step fail.
                go_on, arguments = runner.throw, (CancelledError(),)
            except BaseException as error:
                # The loop has ended, so nothing can be awaited any more.
                self._is_over = isinstance(error, GeneratorExit)
                go_on, arguments = runner.throw, (error,)

    def wait(self, awaited: Awaitable[T]) -> T:
        """Await `awaited` on the loop and return its result. Only the suspended step calls this."""
        if self._is_over:
            raise CancelledError("the loop has ended")
        result: T = self._runner.parent.switch(awaited)
        return result

    def until_called(
        self, begin: Callable[[Callable[[BaseException | None], None]], T]
    ) -> tuple[T, BaseException | None]:
        """Call `begin` with a callback, and wait until the callback is called. Return the result of
        `begin`, and the callback's argument. The step calls this.
        """
        answer = _Answer(self._loop)

        def then(error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing awaits any more
                self._loop.call_soon_threadsafe(answer.give, error)

        return begin(then), self.wait(answer.wait())


class _Answer:
    """The commit queue's answer to a suspended step."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given: list[BaseException | None] = []
        self._waiter: asyncio.Future[None] | None = None

    def give(self, error: BaseException | None) -> None:
        self._given.append(error)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> BaseException | None:
        """Return the answer, even if the task is cancelled: what was planned will be written."""
        while not self._given:
            self._waiter = self._loop.create_future()
            with suppress(asyncio.CancelledError):
                await self._waiter
        return self._given[0]

"""Threads for calls that would hold up a loop: reads that may touch the disk, and rare calls.

They are not taken from the loop's pool, because polls and calls of the program could fill that.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from fmq.aio.call import Call, end_of, ended

T = TypeVar("T")
READERS = 2
NAME = "fmq-aio"
Job = Callable[[], None]


class Threads:
    """Two threads for one loop, which start when they are first needed."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = 0

    async def run(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Let a thread call `function`, and return its result. A cancelled call waits for
        its end.
        """
        call = self.begin(partial(function, *args, **named))
        try:
            result: T = await call.future
        except CancelledError as cancelled:
            await end_of(call, cancelled, ended)
            raise
        return result

    async def read(
        self, function: Callable[[], T], unwanted: Callable[[T], object] = lambda _: None
    ) -> T:
        """Let a thread call `function`, and return its result. If the call is cancelled, the result
        goes to `unwanted`.
        """
        call = self.begin(function)
        try:
            result: T = await call.future
        except CancelledError as cancelled:
            try:
                await end_of(call, cancelled)
            finally:
                if call.has_begun and call.error is None:
                    unwanted(call.result)
            raise
        return result

    async def long(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Let a new thread call `function`, which may wait for long, and return its result. If the
        call is cancelled, the function goes on, and its result is dropped.
        """
        call = Call(self._loop)
        call.has_begun = True
        self.alone(self._job(call, partial(function, *args, **named)))
        result: T = await call.future
        return result

    def alone(self, function: Callable[[], object]) -> None:
        """Call `function`, which raises nothing, in a new thread."""
        Thread(target=function, name=NAME, daemon=True).start()

    def soon(self, function: Callable[[], object]) -> None:
        """Let a thread call `function`, and drop its result or error."""
        self.begin(function)

    def begin(self, function: Callable[[], Any]) -> Call:
        """Let a thread call `function`. Return the call that gets the answer."""
        call = Call(self._loop)
        call.has_begun = True
        self._jobs.put(self._job(call, function))
        if self._started < READERS:
            self._started += 1
            self.alone(self._work)
        return call

    def _job(self, call: Call, function: Callable[[], Any]) -> Job:
        context = copy_context()

        def job() -> None:
            result = error = None
            try:
                result = context.run(function)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
                self._loop.call_soon_threadsafe(call.settle, result, error)

        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job

    def stop(self) -> None:
        """End the threads, once they have done what they were given."""
        for _ in range(self._started):
            self._jobs.put(None)
        self._started = 0

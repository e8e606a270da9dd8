"""Cancelling a coroutine at a step that is counted, so that all of them can be tried.

A step is a suspension: wherever the coroutine, or a task that was started since, waits for the
loop. Steps are counted by a task factory, so nothing needs to know what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

import fmq


class Cancelling:
    """Cancels the program's task, or all tasks as the end of a program does, at step `at`."""

    def __init__(self, at: int, *, everything: bool = False) -> None:
        self._left = at
        self._everything = everything
        self._program: asyncio.Task[None] | None = None
        self._started: list[asyncio.Task[Any]] = []

    @property
    def came(self) -> bool:
        """Return whether the program had so many steps."""
        return self._left <= 0

    async def run(self, program: Coroutine[Any, Any, None]) -> None:
        """Run the program to its end, and leave no task of it behind."""
        loop, before = asyncio.get_running_loop(), asyncio.all_tasks()
        loop.set_task_factory(self._counted)
        self._program = task = asyncio.ensure_future(program)
        await asyncio.wait((task,))
        loop.set_task_factory(None)
        assert asyncio.all_tasks() == before
        if not task.cancelled():
            task.result()

    def _counted(self, loop: Any, story: Any, **named: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(self._steps_of(story), loop=loop, **named)
        self._started.append(task)
        return task

    async def _steps_of(self, story: Coroutine[Any, Any, Any]) -> Any:
        return await self._steps(story)

    @coroutine
    def _steps(self, story: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        go_on: Callable[[], Any] = lambda: story.send(None)  # noqa: E731
        while True:
            try:
                awaited = go_on()
            except StopIteration as end:
                return end.value
            self._step()
            try:
                yield awaited
            except BaseException as error:
                thrown = error
                go_on = lambda: story.throw(thrown)  # noqa: B023, E731
            else:
                go_on = lambda: story.send(None)  # noqa: E731

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            assert self._program is not None
            for task in self._started if self._everything else [self._program]:
                task.cancel()


def cut_everywhere(
    engine: fmq.Engine,
    program: Callable[[Cancelling, str], Coroutine[Any, Any, None]],
    both: Callable[[], tuple[list[str], list[str]]],
    steps_max: int,
    *,
    everything: bool,
) -> None:
    """Run `program`, which places an order, once for each of its steps, and cancel it at that step.

    Each run must leave both row and message or neither, and both cases must occur. `both` returns
    the names of all rows, and of all messages.
    """
    ends = set()
    for at in range(1, steps_max):
        order = f"cut at {at}"
        cancelling = Cancelling(at, everything=everything)
        asyncio.run(program(cancelling, order))
        if everything:
            engine.settle()
        assert engine.undecided() == []
        rows, messages = both()
        assert rows == messages, order
        ends.add(order in messages)
        if not cancelling.came:
            break
    else:
        raise AssertionError("so many steps?")
    assert ends == {True, False}

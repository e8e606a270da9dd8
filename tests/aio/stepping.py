"""A loop that runs one turn at a time, so that a test cancels a task at each of its awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from selectors import DefaultSelector, SelectorKey
from typing import Any

FINISH_SECONDS = 60.0
PROGRESS_SECONDS = 5.0


class OneTurn(DefaultSelector):
    """A selector that can end its loop after the turn that it is asked in.

    The loop waits in it as long as nothing is ready. So a turn in which the loop would wait for a
    thread or a socket goes on until that has an answer, however busy the machine is.
    """

    loop: asyncio.AbstractEventLoop | None = None
    patience = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if self.loop is not None:
            self.loop.stop()
            timeout = self.patience if timeout is None else min(timeout, self.patience)
        return super().select(timeout)


class Stepper:
    """Runs tasks on a loop of its own, turn by turn."""

    def __init__(self) -> None:
        self._selector = OneTurn()
        self.loop = asyncio.SelectorEventLoop(self._selector)

    def turn(self, patience: float = 0.0) -> None:
        """Run what is ready now. If nothing is, wait for it, but no longer than `patience`."""
        self._selector.loop, self._selector.patience = self.loop, patience
        try:
            self.loop.run_forever()
        finally:
            self._selector.loop = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(coroutine)

    def cancel_after(self, turns: int, story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a story, cancel it after so many turns in which something happened, and return its
        task once it has ended.
        """
        task = self.loop.create_task(story())
        for _ in range(turns):
            if task.done():
                return task
            self.turn(PROGRESS_SECONDS)
        task.cancel()
        self.finish(task)
        return task

    def finish(self, task: asyncio.Task[Any]) -> None:
        """Run until the task has ended."""
        done, _ = self.run(asyncio.wait([task], timeout=FINISH_SECONDS))
        assert done, "a cancelled task does not end"

    def close(self) -> None:
        """Close the loop."""
        self.loop.close()

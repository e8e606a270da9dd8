"""A loop that runs one turn at a time, so that a test cancels a task at each of its awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

TURNS_MAX = 2000


class Stepper:
    """Runs tasks on a loop of its own, turn by turn."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def turn(self) -> None:
        """Run what is ready now."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(coroutine)

    def cancel_after(self, turns: int, story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a story, cancel it after so many turns, and return its task once it has ended."""
        task = self.loop.create_task(story())
        for _ in range(turns):
            if task.done():
                return task
            self.turn()
        task.cancel()
        self.finish(task)
        return task

    def finish(self, task: asyncio.Task[Any]) -> None:
        """Run until the task has ended."""
        for _ in range(TURNS_MAX):
            if task.done():
                return
            self.turn()
            self.loop.run_until_complete(asyncio.sleep(0.001))
        raise AssertionError("a cancelled task does not end")

    def close(self) -> None:
        """Close the loop."""
        self.loop.close()

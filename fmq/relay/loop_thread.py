"""The loop of a client that knows asyncio alone, in a thread of its own: it answers the server's
pings while the relay does something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A loop that runs until `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T], seconds: float) -> T:
        """Return what `call` returns. Raises TimeoutError after `seconds`, and cancels it."""

        async def limited() -> T:
            return await asyncio.wait_for(call, seconds)

        return asyncio.run_coroutine_threadsafe(limited(), self._loop).result()

    def end(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

"""Waiting for messages beside an event loop of kombu's, which must not wait itself.

One thread polls for the channels that have asked, one after another, and rings: a byte in a pipe,
which the loop watches. What it has found is handed out by the loop's thread.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

# The thread polls one channel this long; closing a connection waits this long for it.
POLL_SECONDS = 1.0
BELL = b"."


class LoopWaits:
    """The channels of one connection that wait for messages."""

    def __init__(self, loop: Any, look: Callable[[], object]) -> None:
        """The thread rings a bell when it has found messages. `loop` then calls `look`."""
        self._loop = loop
        self._look = look
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._waiting: set[Any] = set()
        self._found: deque[tuple[Any, list[Any] | Exception]] = deque()
        self._lock = Lock()  # held while the bell is rung, so that two threads do not both ring it
        self._hears, self._rings = os.pipe()
        for end in (self._hears, self._rings):
            os.set_blocking(end, False)
        loop.add_reader(self._hears, self._rung)
        self._thread = Thread(target=self._run, name="fmq-kombu", daemon=True)
        self._thread.start()

    def ask(self, channel: Any) -> None:
        """Have the thread poll for a channel, unless it does so already."""
        if channel not in self._waiting:
            self._waiting.add(channel)
            self._asked.put(channel)

    def ring(self) -> None:
        """Have the loop look. Any thread may call this."""
        with self._lock, suppress(OSError):  # the bell rings already, or has ended
            os.write(self._rings, BELL)

    def take(self) -> list[tuple[Any, list[Any]]]:
        """Return what was found since the last call, and for which channel. Raises the error of a
        poll.
        """
        taken = []
        while self._found:
            channel, found = self._found.popleft()
            self._waiting.discard(channel)
            if isinstance(found, Exception):
                raise found
            taken.append((channel, found))
        return taken

    def close(self) -> None:
        """End the thread. What it still finds is given back with the connection."""
        self._asked.put(None)
        with suppress(Exception):
            self._loop.remove_reader(self._hears)
        self._thread.join(2 * POLL_SECONDS)  # the thread may be waiting for a server that is gone
        with self._lock:
            ends = self._hears, self._rings
            self._hears = self._rings = -1
        for end in ends:
            os.close(end)

    def _rung(self) -> None:
        with suppress(OSError):
            os.read(self._hears, 4096)
        self._look()

    def _run(self) -> None:
        while (channel := self._asked.get()) is not None:
            try:
                found: list[Any] | Exception = channel.fetch(POLL_SECONDS)
            except Exception as error:  # the loop raises the error, and makes another connection
                found = error
            self._found.append((channel, found))
            self.ring()

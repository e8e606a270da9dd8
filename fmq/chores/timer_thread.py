"""The thread that publishes delayed messages and schedules when they are due.

It sleeps until the next one is due. The clock on the wall may be set meanwhile, and the machine may
sleep; so it looks at the clock every few seconds, as long as a message waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from fmq.basics.clock import Clock
from fmq.errors import Closed, EngineFailed, StorageFull
from fmq.store.journal.commit_queue import CommitQueue
from fmq.tx.commands.delays import Delays
from fmq.tx.schedules.schedules import Schedules

LOOK_SECONDS = 5.0  # if the clock is set forward, messages are late by at most this
FULL_SECONDS = 1.0  # seconds until the next try after the disk was full


class TimerThread:
    """Publishes due messages in a thread, which starts with the first one that waits."""

    def __init__(
        self, sources: Sequence[Delays | Schedules], commit_queue: CommitQueue, clock: Clock
    ) -> None:
        self._sources = sources
        self._commit_queue = commit_queue
        self._clock = clock
        self._lock = threading.Lock()
        self._lock.acquire()
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_wanted(self) -> bool:
        """Return whether something waits and the thread was not started."""
        if self._thread is not None or self._stopping.is_set():
            return False
        return any(each.are_waiting for each in self._sources)

    def start(self) -> None:
        """Start the thread, unless it was started or stopped."""
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                thread = threading.Thread(target=self._run, name="fmq timers", daemon=True)
                thread.start()
                self._thread = thread

    def wake(self) -> None:
        """Wake the thread, so that it looks when the next message is due."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another thread has just released the lock
                self._lock.release()

    def stop(self) -> None:
        """End the thread. If it is writing an append, that is finished first."""
        with self._starting:
            self._stopping.set()
        self.wake()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for each in self._sources:
                    each.fire_due()
                wait = self._seconds()
            except StorageFull:
                wait = FULL_SECONDS
            except (EngineFailed, Closed):
                return
            except BaseException as error:
                # An unforeseen error: a failed engine is better than a wrong one.
                with self._commit_queue.lock:
                    self._commit_queue.fail(error)
                if not isinstance(error, Exception):
                    raise
                return
            self._clock.wait(self._lock, wait)

    def _seconds(self) -> float | None:
        """Return how long to sleep. None: until another message with a delay is sent."""
        waiting = [due for each in self._sources if (due := each.next_due_us()) is not None]
        if not waiting:
            return None
        return min(max(0.0, (min(waiting) - self._clock.time_us()) / 1_000_000), LOOK_SECONDS)

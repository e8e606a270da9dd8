"""The thread that runs the chores. It sleeps while there is nothing to do.

It is woken when an append waits for a sync that no caller waits for, when a segment is full, when
another member is the next that may be out, and when the ledger reaches the position `wake_at`.
While the engine is busy, `wake_at` is the position at which the next checkpoint is due. So an
append seldom wakes the thread.
"""

from __future__ import annotations

import contextlib
import threading

from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.chores.runner import Chores

ANY, NEVER = -1.0, float("inf")


class ChoreThread:
    """A thread that runs a round of chores as soon as one is due."""

    def __init__(self, chores: Chores, clock: Clock, options: Options) -> None:
        self._chores = chores
        self._clock = clock
        self._idle_seconds = options.checkpoint_idle_seconds
        self._sync_seconds = min(options.sync_interval_seconds, self._idle_seconds)
        self._lock = threading.Lock()
        self._lock.acquire()
        self._stopping = threading.Event()
        # When the ledger reaches this position, publishing wakes the thread.
        self.wake_at: float = NEVER
        self._thread = threading.Thread(target=self._run, name="fmq chores", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread, so that it looks whether a round is due."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another thread has just released the lock
                self._lock.release()

    def stop(self) -> None:
        """End the thread. If it is in a round, the round is finished first."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wait_for_work()
            if self._stopping.is_set() or not self._chores.attempt():
                return

    def _wait_for_work(self) -> None:
        """Sleep until a round is due, and return the time then. After trouble in a round, pause
        first.
        """
        chores, wait = self._chores, self._clock.wait
        trouble = chores.trouble is not None
        due_at = NEVER if trouble else chores.pressing_from()
        self.wake_at = due_at
        try:
            while True:
                # Drop an earlier wake-up: the next lines look for its reason anyway.
                self._lock.acquire(blocking=False)
                if self._stopping.is_set() or (chores.pressing() and not trouble):
                    return
                if chores.pending():
                    wait(self._lock, self._sync_seconds)
                    return
                # Set `wake_at` before asking whether the engine is idle, so that an append in
                # between wakes the thread.
                self.wake_at = due_at if trouble else ANY
                idle = not trouble and chores.idle()
                if not idle:
                    self.wake_at = due_at
                until_death = max(0.0, chores.next_death() - self._clock.monotonic())
                seconds = min(NEVER if idle else self._idle_seconds, until_death)
                if not wait(self._lock, None if seconds == NEVER else seconds):
                    return
        finally:
            self.wake_at = NEVER

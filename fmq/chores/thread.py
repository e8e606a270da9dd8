"""The thread that keeps house: asleep while there is nothing to do, and gone when it is told."""

from __future__ import annotations

import contextlib
import threading

from fmq.chores.runner import Chores
from fmq.clock import Clock
from fmq.options import Options


class ChoreThread:
    """Runs rounds in the background: when kicked, and while something is left to wait for."""

    def __init__(self, chores: Chores, clock: Clock, options: Options) -> None:
        self._chores = chores
        self._clock = clock
        self._idle_seconds = options.checkpoint_idle_seconds
        self._sync_seconds = min(options.sync_interval_seconds, self._idle_seconds)
        self._lock = threading.Lock()
        self._lock.acquire()
        self._stopping = threading.Event()
        self._patient = False  # waiting until there is something that needs a round sooner
        self.look_at: float = NEVER  # who publishes beyond this position kicks
        self._thread = threading.Thread(target=self._run, name="fmq chores", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kick(self) -> None:
        """There is something to do."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # somebody else just did
                self._lock.release()

    def kick_if_waiting(self) -> None:
        """Something waits for the next sync, which is to come in time."""
        if self._patient:
            self.kick()

    def stop(self) -> None:
        """End the thread after the round it is in."""
        self._stopping.set()
        self.kick()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wait_for_work()
            if self._stopping.is_set() or not self._chores.attempt():
                return

    def _wait_for_work(self) -> None:
        """Return when a round is due, or after a pause if the last one met trouble."""
        chores, wait = self._chores, self._clock.wait
        if chores.trouble:
            self._patient = True  # said before anything is looked at, as below
            if not chores.pending() and not wait(self._lock, self._idle_seconds):
                self._patient = False
                return
            self._patient = False
            if chores.pending():
                wait(self._lock, self._sync_seconds)
            return
        # Said before anything is looked at: whoever changes it in between wakes the thread.
        self._patient = True
        self.look_at = chores.pressing_from()
        try:
            while not (self._stopping.is_set() or chores.pressing()):
                if chores.pending():
                    self._patient = False
                    wait(self._lock, self._sync_seconds)
                    return
                self.look_at = ANY
                idle = chores.idle()
                if not idle:
                    self.look_at = chores.pressing_from()
                if not wait(self._lock, None if idle else self._idle_seconds):
                    return
        finally:
            self._patient = False
            self.look_at = NEVER


ANY, NEVER = -1.0, float("inf")

"""The thread that keeps house: asleep while there is nothing to do, and gone when it is told."""

from __future__ import annotations

import contextlib
import threading

from fmq.clock import Clock
from fmq.housekeeping import Housekeeping
from fmq.options import Options


class HousekeepingThread:
    """Runs rounds in the background: when kicked, and while something is left to wait for."""

    def __init__(self, chores: Housekeeping, clock: Clock, options: Options) -> None:
        self._chores = chores
        self._clock = clock
        self._idle_seconds = options.checkpoint_idle_seconds
        self._sync_seconds = min(options.sync_interval_seconds, self._idle_seconds)
        self._lock = threading.Lock()
        self._lock.acquire()
        self._stopping = threading.Event()
        self._kicked = False  # and has not looked since
        self._asleep = False  # until there is anything at all
        self._patient = False  # until there is something that needs a round sooner
        self._thread = threading.Thread(target=self._run, name="fmq housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kick(self) -> None:
        """There is something to do."""
        self._kicked = True
        with contextlib.suppress(RuntimeError):  # it has been kicked already
            self._lock.release()

    def kick_if_due(self) -> None:
        """Have the thread look again, if it waits for what has just changed. Under the lock."""
        if self._kicked:
            return
        chores = self._chores
        if self._asleep or (self._patient and chores.pending()) or chores.pressing():
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
        chores, wait = self._chores, self._wait
        if chores.trouble:
            wait(self._sync_seconds if chores.pending() else self._idle_seconds)
            return
        # Said before anything is looked at: whoever changes it in between wakes the thread.
        self._patient = True
        try:
            while not (self._stopping.is_set() or chores.pressing()):
                if chores.pending():
                    self._patient = False
                    wait(self._sync_seconds)
                    return
                self._asleep = True
                idle = chores.idle()
                self._asleep = idle
                if not wait(None if idle else self._idle_seconds):
                    return
        finally:
            self._asleep = self._patient = False

    def _wait(self, seconds: float | None) -> bool:
        kicked = self._clock.wait(self._lock, seconds)
        self._kicked = False  # in this order: what changes from here on kicks once more
        return kicked

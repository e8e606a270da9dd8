"""The threads of an engine: for commits that share a sync, for chores, and for what is due."""

from __future__ import annotations

from collections.abc import Callable

from fmq.arguments.options import Options
from fmq.assembly.parts import Parts
from fmq.basics.clock import Clock
from fmq.chores.thread import ChoreThread
from fmq.chores.timer_thread import TimerThread
from fmq.store.journal.committer import Committer


class Background:
    """The threads and objects that work for an engine between and during its calls. They live
    from its opening to its end.
    """

    def __init__(self, parts: Parts, clock: Clock, options: Options) -> None:
        """Tell `parts` which threads to wake. Nothing runs before `start`."""
        self.committer = Committer(parts.commit_queue, clock, is_far=parts.journal.is_far)
        self._chores = ChoreThread(parts.chores, clock, options)
        self._timers = TimerThread((parts.delays, parts.schedules), parts.commit_queue, clock)
        parts.chores.timer_thread, parts.on_sooner = self._timers, self._on_sooner
        parts.chore_thread, parts.commit_queue.on_pending = self._chores, self._chores.wake

    def start(self) -> None:
        """Start the threads that are needed from the beginning. If one cannot start, stop the
        others and raise.
        """
        started: list[Committer | ChoreThread] = []
        try:
            for thread in (self.committer, self._chores):
                thread.start()
                started.append(thread)
        except BaseException:
            for thread in started:
                thread.stop()
            raise

    def _on_sooner(self) -> None:
        """Wake the thread for timers, because a timer is due before all others. The caller holds
        the engine's lock.
        """
        self._timers.wake()
        if self._timers.is_wanted:
            self._chores.wake()  # the first chore starts the thread

    def stops(self) -> tuple[Callable[[], None], ...]:
        """Return functions that stop all threads, in order. The committer is left out: the last
        commits need it.
        """
        return self._timers.stop, self._chores.stop

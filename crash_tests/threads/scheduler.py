"""Runs threads one at a time: at each seam a chooser decides which thread goes on.

The threads are real ones, because the engine tells them apart by their numbers; each sleeps on a
gate of its own until it is its turn. A thread that would wait for a lock is not let run before
the lock is free, so nobody ever really waits; if nobody can go on, that is a deadlock, and told.
Sleeping costs nothing: where somebody has asked for a timeout and nothing else can happen, time
passes at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from crash_tests.oracle import Violation
from crash_tests.threads.schedule import Choice
from crash_tests.threads.seams import place_of
from crash_tests.threads.tracing import Task, Tracing
from fmq.basics.clock import Waitable
from fmq.testing import FakeClock
from fmq.testing.fake_clock import TICK_SECONDS

SEAMS_MAX = 200_000  # limit of seams in one schedule; with more it is in an endless loop
PATIENCE_SECONDS = 60.0  # how long to wait until a thread ends or begins


class Abandoned(BaseException):
    """The schedule is over before its threads are."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One thread stopped, and another one went on."""

    stopped: str  # "" if no thread stopped, because the last one had ended or none had begun
    goes_on: str
    place: str = ""  # the place of the thread that stopped
    waits: bool = False  # whether the thread has to wait there


class Chooser(Protocol):
    """The interface of a chooser."""

    def choose(self, task: Task, others: list[Task], default: Task) -> Task:
        """Return the thread that goes on: `default`, which is `task` if it can go on, or one of
        `others`.
        """


class Scheduler:
    """The threads of one schedule. Another thread, none of them, makes and runs it."""

    def __init__(self, chooser: Chooser, *, lines: bool) -> None:
        """With `lines`, each line where threads meet is a seam, too."""
        self.clock = ScheduledClock(self)
        self.switches: list[Switch] = []
        self.choices: list[Choice] = []  # the choices that differ from the default
        self.on_switch: Callable[[], None] = lambda: None
        self.seams = 0
        self._chooser = chooser
        self._tasks: list[Task] = []
        self._nobody = Task("")
        self._gate = threading.Lock()  # the lock on which the thread that runs the schedule sleeps
        self._gate.acquire()
        self._ended: Task | None = None
        self._failure: Violation | None = None
        self._aborting = False
        self._tracing = Tracing(self.seam, lines=lines)
        self._arrivals = threading.Semaphore(0)

    # --- beginning ------------------------------------------------------------------------------

    def start(self, name: str, work: Callable[[], object]) -> None:
        """Add a thread that will do `work`."""
        task = Task(name)

        def run() -> None:
            task.gate.acquire()
            sys.settrace(self._tracing.of(task))
            try:
                if not self._aborting:
                    work()
            except Abandoned:
                pass
            except BaseException as error:
                task.error = error
            finally:
                sys.settrace(None)
                self._end(task)

        task.thread = threading.Thread(target=run, name=name, daemon=True)
        self._tasks.append(task)
        task.thread.start()

    def adopt(self, begin: Callable[[], None], count: int) -> None:
        """Call `begin`, and let the `count` threads that it starts be daemons of this schedule."""
        threading.settrace(self._adopted)
        try:
            begin()
            for _ in range(count):
                assert self._arrivals.acquire(timeout=PATIENCE_SECONDS), "no thread has begun"
        finally:
            threading.settrace(None)

    def _adopted(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Take a thread that the engine has started into the schedule, at its first call."""
        thread = threading.current_thread()
        task = Task(thread.name.removeprefix("fmq "), daemon=True)
        task.thread = thread
        self._tasks.append(task)
        self._arrivals.release()
        task.gate.acquire()
        sys.settrace(self._tracing.of(task))

        def until_its_end(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "return":
                self._end(task)
            return until_its_end

        return until_its_end

    def _end(self, task: Task) -> None:
        task.over = True
        if not self._aborting:
            self._ended = task
            self._gate.release()

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until all threads but daemons have ended. Raises Violation if they cannot end."""
        while self._failure is None and any(not (t.over or t.daemon) for t in self._tasks):
            self._nobody.come_to("")
            able = self._able()
            if not able:
                self._fail_stuck()
                break
            following = self._decide(self._nobody, able, able[0])
            self._wake(self._nobody, following)
            self._gate.acquire()
            self._bury()
        if self._failure is not None:
            raise self._failure

    def _bury(self) -> None:
        """Wait until a thread that has ended is gone, before another one goes on."""
        ended, self._ended = self._ended, None
        if ended is None:
            return
        assert ended.thread is not None
        ended.thread.join()
        if ended.error is not None:
            raise ended.error

    def _able(self, but: Task | None = None) -> list[Task]:
        """Return the threads that can go on. If that takes time, let time pass."""
        while True:
            now = self.clock.monotonic()
            able = [task for task in self._tasks if task is not but and task.can_go(now)]
            if able or but is not None:
                return able
            waiting = [task for task in self._tasks if not task.over and task.until is not None]
            if all(task.daemon for task in waiting):
                return []  # no call of fmq waits for the end of an engine's own pause
            untils = [task.until for task in waiting if task.until is not None]
            # At least one tick: a call that waits for a moment between two ticks must get beyond
            # it.
            self.clock.advance(max(TICK_SECONDS, min(untils) - now))

    def seam(self, task: Task, place: str) -> None:
        """Note that the thread of `task` is at a seam. It may have to wait there."""
        if self._aborting:
            return
        task.come_to(place)
        self.seams += 1
        if self.seams > SEAMS_MAX:
            self._fail("I15", f"{SEAMS_MAX} seams, and no end: {self._standing()}")
        others = self._able(but=task)
        goes_on = task.can_go(self.clock.monotonic())
        if not (others or goes_on):
            others = self._able()  # the threads that can go on once time has passed
            if not others:
                self._fail_stuck()
            if task in others:
                return
        if others:
            # By default the next task in order goes on, so that each gets its turn.
            at = self._at(task)
            default = task if goes_on else next((t for t in others if self._at(t) > at), others[0])
            following = self._decide(task, others, default)
            if following is not task:
                self._wake(task, following)
                self._sleep(task)

    def _at(self, task: Task) -> int:
        return self._tasks.index(task)

    def _decide(self, task: Task, others: list[Task], default: Task) -> Task:
        following = self._chooser.choose(task, others, default)
        if following is not default:
            preempts = default is task
            self.choices.append(Choice(*task.seam, following.name, preempts))
        return following

    def _wake(self, task: Task, following: Task) -> None:
        waits = not task.can_go(self.clock.monotonic())
        self.switches.append(Switch(task.name, following.name, task.place, waits))
        self.on_switch()
        following.gate.release()

    def _sleep(self, task: Task) -> None:
        task.gate.acquire()
        if self._aborting:
            raise Abandoned

    # --- waiting --------------------------------------------------------------------------------

    def wait(self, lock: Waitable, until: float | None) -> bool:
        """Do for a thread of this schedule what `Clock.wait` does."""
        task = self._current()
        task.lock, task.until = lock, until
        self.seam(task, place_of(sys._getframe(2)))
        task.lock = task.until = None
        return lock.acquire(False)

    def _current(self) -> Task:
        me = threading.current_thread()
        return next(task for task in self._tasks if task.thread is me)

    def is_ours(self) -> bool:
        """Return whether the calling thread belongs to this schedule."""
        me = threading.current_thread()
        return any(task.thread is me for task in self._tasks)

    # --- ending badly ---------------------------------------------------------------------------

    def _fail_stuck(self) -> None:
        self._fail("I15", f"they wait for each other: {self._standing()}")

    def _fail(self, invariant: str, what: str) -> None:
        """Pass the error to the thread that runs the schedule, and sleep for good."""
        self._failure = Violation(invariant, what)
        if self.is_ours():
            self._gate.release()
            self._sleep(self._current())

    def _standing(self) -> str:
        """Return where each thread is, and which thread has the lock that it waits for."""
        told = []
        for task in self._tasks:
            if task.over:
                continue
            holder = self._tracing.holder_of(task.lock)
            by = f", which {holder.name} has taken" if holder is not None else ""
            told.append(f"{task.name} at {task.place}{by}")
        return "; ".join(told)

    def abandon(self) -> None:
        """Make all threads end where they are. What they still do does not count."""
        self._aborting = True
        for task in self._tasks:
            if task.over or task.thread is None:
                continue
            self._tracing.free_locks()
            task.gate.release()
            task.thread.join(PATIENCE_SECONDS)
        self._tracing.free_locks()


class ScheduledClock(FakeClock):
    """A clock on which time passes when no thread can go on without it."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        if not self._scheduler.is_ours():
            return super().wait(lock, timeout)
        until = None if timeout is None else self.monotonic() + timeout
        return self._scheduler.wait(lock, until)

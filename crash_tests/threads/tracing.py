"""Traces a thread: it reports each seam, and what the thread waits for there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from crash_tests.threads.seams import LOCKS, Watch, place_of, value_of, watch_of
from fmq.basics.clock import Waitable


class Task:
    """One thread, and what it waits for."""

    def __init__(self, name: str, *, daemon: bool = False) -> None:
        self.name = name
        self.daemon = daemon  # True if the schedule may end before it
        self.gate = threading.Lock()
        self.gate.acquire()
        self.place = ""  # the place of its last seam
        self._visits: dict[str, int] = {}  # how often it was at each place
        self.lock: Waitable | None = None
        self.until: float | None = None  # it waits no longer
        self.joins: threading.Thread | None = None
        self.over = False
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None

    @property
    def seam(self) -> tuple[str, str, int]:
        return self.name, self.place, self._visits[self.place]

    def come_to(self, place: str) -> None:
        self.place = place
        self._visits[place] = self._visits.get(place, 0) + 1

    def can_go(self, now: float) -> bool:
        if self.over:
            return False
        if self.lock is not None and is_taken(self.lock):
            return self.until is not None and now >= self.until
        return self.joins is None or not self.joins.is_alive()


def is_taken(lock: Any) -> bool:
    """Return whether any thread has `lock`, the one that asks included."""
    if type(lock) is LOCKS[0]:
        return bool(lock.locked())
    if lock._is_owned():
        return True
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


class Tracing:
    """The trace functions of several threads, and who has taken which lock."""

    def __init__(self, seam: Callable[[Task, str], None], *, lines: bool) -> None:
        """`seam` is called by a thread that is at one; it returns when that may go on."""
        self._seam = seam
        self._lines = lines
        self._holders: dict[int, tuple[Any, Task, int, int]] = {}  # the task that holds each lock

    def of(self, task: Task) -> Callable[[FrameType, str, Any], Any]:
        """Return the function that CPython calls before each function, and line, of the thread of
        `task`.
        """

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            watch = watch_of(frame.f_code)
            if watch is None:
                return None
            if watch.operation:
                assert frame.f_back is not None
                self._seam(task, f"{place_of(frame.f_back)}  [{watch.operation}]")
                return None
            return line if watch.waits or self._lines else None

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                watch = watch_of(frame.f_code)
                assert watch is not None
                self._line(task, frame, watch)
            return line

        return call

    def _line(self, task: Task, frame: FrameType, watch: Watch) -> None:
        number = frame.f_lineno
        if number not in watch.waits:
            if watch.meeting and self._lines:
                self._seam(task, place_of(frame))
            return
        for wait in watch.waits[number]:
            what = value_of(wait.what, frame)
            if type(what) in LOCKS:
                self._take(task, frame, what, number, block=wait.block)
            elif isinstance(what, threading.Thread):
                task.joins = what
                self._seam(task, place_of(frame))
                task.joins = None

    def _take(self, task: Task, frame: FrameType, lock: Any, number: int, *, block: bool) -> None:
        """Let the thread of `task` go on to the lock only when that is free."""
        mine = (lock, task, id(frame), number)
        if block and self._holders.get(id(lock)) == mine and is_taken(lock):
            if self._lines:
                self._seam(task, place_of(frame))  # the thread leaves the block of a `with`
            return
        task.lock = lock
        self._seam(task, place_of(frame))
        task.lock = None
        self._holders[id(lock)] = mine

    def holder_of(self, lock: Waitable | None) -> Task | None:
        """Return the task that took the lock last."""
        held = self._holders.get(id(lock))
        return None if held is None else held[1]

    def free_locks(self) -> None:
        """Release all locks whose threads were stopped before they could do so. An RLock is
        released by its owner alone, when the end of the schedule reaches it.
        """
        for lock, *_ in self._holders.values():
            if type(lock) is LOCKS[0] and lock.locked():
                lock.release()

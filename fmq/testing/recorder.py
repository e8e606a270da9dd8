"""Watches one run of a program, and keeps what a crash would leave at each point.

A point is where a crash can make a difference: before each operation of the engine's disk, and
wherever a call returns to code that is not fmq's. So the moment between a database's commit and
the next call of the engine is one, wherever both stand; even on one line.

Nothing crashes while it runs, so the program need not be the same in every run, and no
`finally` of its own runs after its death.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from threading import active_count, get_ident
from types import FrameType
from typing import Any, Self

import fmq
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.world import Files, World, read_files

OURS = os.path.dirname(fmq.__file__) + os.sep
RETURNED = ("c_return", "c_exception")
LOOKS_MAX = 50
# Types whose methods write no files.
PLAIN = frozenset((str, bytes, bytearray, int, float, list, dict, set, tuple))

# The operations of the disk, how many things were told, and the files.
Seen = tuple[int, int, Files]


@dataclass(frozen=True, slots=True)
class Place:
    """The line that the program was running."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of a program: its place in the code, and what a crash leaves."""

    number: int
    # The operation of the disk that the crash prevents. None: it comes between two calls.
    operation: str | None
    stack: tuple[Place, ...]  # the calls of the program, the outermost first
    history: CrashDisk  # the disk that went on, which can name its operations
    disk: CrashDisk
    # The disk as left by a process that dies just before its write is visible.
    unwritten: CrashDisk | None
    files: Files
    told: tuple[object, ...]
    time_us: int


class Recorder:
    """Records a point for everything that happens to `disk` and `world` in a `with` block.

    There is a point before it and, if something has changed, one behind it.
    """

    def __init__(self, disk: CrashDisk, world: World) -> None:
        self.points: list[Point] = []
        self._disk = disk
        self._world = world
        self._seen: Seen = (-1, 0, {})
        self._thread = get_ident()
        self._outermost: FrameType | None = None
        self._profiler: Any = None

    def __enter__(self) -> Self:
        self._outermost = sys._getframe(1)
        self._profiler = sys.getprofile()
        self._between_calls(None)
        self._disk.watch(self._before_operation)
        # Not settrace, which debuggers and coverage use. Calls are enough here.
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        sys.setprofile(self._profiler)
        self._disk.watch(None)
        self._outermost = None
        if kind is None:
            self._between_calls(None)

    def _on_event(self, frame: FrameType, event: str, called: object) -> None:
        caller: FrameType | None = frame
        if event == "return" and is_ours(frame):
            caller = frame.f_back
        elif event not in RETURNED or type(getattr(called, "__self__", None)) in PLAIN:
            return
        if caller is not None and not is_ours(caller):
            self._between_calls(caller)

    def _between_calls(self, frame: FrameType | None) -> None:
        """Add a point if anything has changed since the last one."""
        before = self._seen
        disk = self._look()
        if disk is not None and self._seen != before:
            self._add(None, frame, disk, None)

    def _before_operation(self, operation: str) -> None:
        if get_ident() != self._thread:
            return  # files of other threads may be half written
        disk = self._look()
        if disk is not None:
            # Only an operation that writes and syncs can be interrupted between the two.
            interrupted = operation.endswith(" sync")
            unwritten = self._disk.after_kill(written=False) if interrupted else None
            self._add(operation, sys._getframe(), disk, unwritten)

    def _look(self) -> CrashDisk | None:
        """Return the disk, and keep the rest in `_seen`, as of one moment; None if other threads
        change them all the time.
        """
        for _ in range(LOOKS_MAX):
            alone = active_count() == 1
            seen = self._see()
            disk = self._disk.after_kill()
            # If both looks are equal, the state was the same in between.
            if alone or self._see() == seen:
                self._seen = seen
                return disk
        return None

    def _see(self) -> Seen:
        files = read_files(self._world.path, self._seen[2])
        return self._disk.operations, len(self._world.told), files

    def _add(
        self,
        operation: str | None,
        frame: FrameType | None,
        disk: CrashDisk,
        unwritten: CrashDisk | None,
    ) -> None:
        _, told, files = self._seen
        point = Point(
            len(self.points),
            operation,
            self._stack(frame),
            self._disk,
            disk,
            unwritten,
            files,
            self._world.told[:told],
            self._world.clock.time_us(),
        )
        self.points.append(point)

    def _stack(self, frame: FrameType | None) -> tuple[Place, ...]:
        places: list[Place] = []
        while frame is not None and frame is not self._outermost:
            if not is_ours(frame):
                code = frame.f_code
                places.append(Place(code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return tuple(reversed(places))


def is_ours(frame: FrameType) -> bool:
    """Return whether the code belongs to fmq."""
    return frame.f_code.co_filename.startswith(OURS)

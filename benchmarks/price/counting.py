"""Counts what fmq does between two moments: bytecodes, calls, and what it asks of its disk.

Only code of fmq counts, in the calling thread and in those that serve the call. Chores and timers
take turns of their own, so they do not count; nor do the machines of `fmq.testing`.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import fmq
from fmq.machine.disk import Buffer, Directory, Disk, File

OURS = str(Path(fmq.__file__).parent) + "/"
TESTING = OURS + "testing/"
BESIDE = ("fmq chores", "fmq timers")  # threads that work whenever they get a turn


class Price(NamedTuple):
    """The figures of one call."""

    bytecodes: int
    calls: int
    syncs: int
    writes: int
    bytes: int


class Counter:
    """Counts while it is on. A thread that starts inside of `watching` is watched, too."""

    def __init__(self, *, by_function: bool = False) -> None:
        """`by_function` counts the bytecodes of each function, too, which takes longer."""
        self._is_on = False
        self._bytecodes = self._calls = 0
        self._syncs = self._writes = self._bytes = 0
        self._is_ours: dict[str, bool] = {}
        self.bytecodes_of: Tally[CodeType] = Tally()  # since the last start
        self._count_opcode = self._of_function if by_function else self._of_any

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Trace this thread, and each thread that starts meanwhile."""
        before = sys.gettrace()
        threading.settrace(self._trace_thread)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)

    def start(self) -> None:
        """Count from now on, from zero."""
        self._bytecodes = self._calls = self._syncs = self._writes = self._bytes = 0
        self.bytecodes_of.clear()
        self._is_on = True

    def stop(self) -> Price:
        """Count no more. Return what was counted."""
        self._is_on = False
        return Price(self._bytecodes, self._calls, self._syncs, self._writes, self._bytes)

    def wrote(self, size: int, *, sync: bool) -> None:
        """Count a write to a file, and its sync."""
        if self._is_on:
            self._writes += 1
            self._bytes += size
            self._syncs += sync

    def synced(self) -> None:
        """Count the sync of a file or of a directory."""
        self._syncs += self._is_on

    def _trace_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Decide at the first call of a new thread whether it is traced."""
        beside = threading.current_thread().name in BESIDE
        sys.settrace(None if beside else self._trace)
        return None

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self._is_on:
            return None
        name = frame.f_code.co_filename
        is_ours = self._is_ours.get(name)
        if is_ours is None:
            is_ours = name.startswith(OURS) and not name.startswith(TESTING)
            self._is_ours[name] = is_ours
        if not is_ours:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._calls += 1
        return self._count_opcode

    # The rest of a call that went on after `stop` does not count.

    def _of_any(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self._bytecodes += self._is_on
        return self._count_opcode

    def _of_function(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.bytecodes_of[frame.f_code] += self._is_on
        return self._of_any(frame, event, argument)


class CountedFile:
    """A file whose writes and syncs are counted."""

    def __init__(self, file: File, counter: Counter) -> None:
        self._file = file
        self._counter = counter

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        self._counter.wrote(sum(map(len, buffers)), sync=sync)
        self._file.write(offset, buffers, sync=sync)

    def sync(self) -> None:
        self._counter.synced()
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountedDirectory:
    """A directory whose files are counted."""

    def __init__(self, directory: Directory, counter: Counter) -> None:
        self._directory = directory
        self._counter = counter

    def open(self, name: str, *, write: bool = False) -> Any:
        return CountedFile(self._directory.open(name, write=write), self._counter)

    def create(self, name: str) -> Any:
        return CountedFile(self._directory.create(name), self._counter)

    def subdirectory(self, name: str, *, make: bool) -> Any:
        return CountedDirectory(self._directory.subdirectory(name, make=make), self._counter)

    def sync(self) -> None:
        self._counter.synced()
        self._directory.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)


class CountedDisk:
    """A disk whose files are counted."""

    def __init__(self, disk: Disk, counter: Counter) -> None:
        self._disk = disk
        self._counter = counter

    def directory(self, path: str, *, make: bool) -> Any:
        return CountedDirectory(self._disk.directory(path, make=make), self._counter)

    def random(self, size: int) -> bytes:
        return self._disk.random(size)

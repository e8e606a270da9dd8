"""The lives of a program that is crashed: the first is recorded, each later one follows a crash.

Each has an engine on a disk in memory, and a World in a directory of its own, so that what an
earlier life has left open cannot reach its files. What a life's recovery changes is recorded,
too, and crashed once more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import fmq
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.crash_report import CrashFailure, CrashReport
from fmq.testing.crash_states import ENDED, CrashState, find, states
from fmq.testing.fake_clock import START_US
from fmq.testing.late_engine import LateClock, open_late
from fmq.testing.recorder import Point, Recorder
from fmq.testing.world import Act, Files, World, read_disk, write_files

ENGINE = "engine"  # the name of the engine's directory on its disk
# Small segments, as opening after a crash reads a whole one.
OPTIONS = fmq.Options(segment_bytes=256 * 1024)


class Lives:
    """Starts a program again and again, and counts what was tried."""

    def __init__(
        self,
        home: Path,
        check: Act,
        recover: Act | None,
        options: fmq.Options | None,
        keep: Path | None,
    ) -> None:
        self._home = home
        self._check = check
        self._recover = recover
        self._options = options or OPTIONS
        self._keep = keep
        self._began = time.monotonic()
        self._known: set[object] = set()
        self._points = 0
        self._states = 0

    @property
    def report(self) -> CrashReport:
        """Return how many crash points and states were tried so far, and for how long."""
        return CrashReport(self._points, self._states, time.monotonic() - self._began)

    def first(self, workload: Act, setup: Act | None) -> list[Point]:
        """Return the points of a life without a crash."""
        disk = CrashDisk()
        with self._life(disk, {}, (), START_US) as (engine, world):
            if setup is not None:
                setup(engine, world)
            with Recorder(disk, world) as recorder:
                workload(engine, world)
                engine.close()
        return recorder.points

    def try_all(self, points: list[Point], count: int, seed: int) -> None:
        """Crash at every point, in up to `count` states each, and once more at every point of the
        recovery from each crash. `seed` chooses the states.
        """
        for state in self._crashes(points, count, seed):
            for again in self._try(state)[1:]:  # the first state is `state` itself
                self._points += 1
                for second in states(again, count, seed):
                    self._try(state, second)

    def _crashes(self, points: list[Point], count: int, seed: int) -> Iterator[CrashState]:
        """Yield the states to try. The first is the end of the program, where a check can fail
        without a crash.
        """
        yield CrashState(points[-1], ENDED, points[-1].disk)
        for point in points:
            self._points += 1
            yield from states(point, count, seed)

    def try_one(self, points: list[Point], name: str) -> None:
        """Try the state that a CrashFailure has named."""
        path: list[CrashState] = []
        for part in name.split(" > "):
            self._points += 1
            self._states += 1
            path.append(find(points, part))
            points = self._next(*path)

    def _try(self, *path: CrashState) -> list[Point]:
        """Call `_next` for the last state of `path`, and return its points. Return an empty list if
        the state was tried before.
        """
        disk, point = path[-1].disk, path[-1].point
        seen = disk.fingerprint(), tuple(point.files.items()), repr(point.told)
        if seen in self._known:
            return []
        self._known.add(seen)
        self._states += 1
        return self._next(*path)

    def _next(self, *path: CrashState) -> list[Point]:
        """Start after the last crash of `path`, recover and check. Return the points of the
        recovery.
        """
        point, disk = path[-1].point, path[-1].disk.after_kill()
        points: list[Point] = []
        trouble = "the engine does not open"
        try:
            with self._life(disk, point.files, point.told, point.time_us) as (engine, world):
                if self._recover is not None:
                    trouble = "recover fails"
                    with Recorder(disk, world) as recorder:
                        self._recover(engine, world)
                    points = recorder.points
                trouble = "the check fails"
                self._check(engine, world)
        except BaseException as error:
            failure = self._failure(path, trouble, error)
            if isinstance(error, Exception):
                raise failure from error
            error.add_note(str(failure))  # an interrupt, or the exception of pytest.fail
            raise
        return points

    @contextmanager
    def _life(
        self, disk: CrashDisk, files: Files, told: tuple[object, ...], time_us: int
    ) -> Iterator[tuple[fmq.Engine, World]]:
        clock = LateClock(time_us)
        path = Path(mkdtemp(dir=self._home))
        write_files(path, files)
        with open_late(ENGINE, self._options, disk, clock) as engine:
            yield engine, World(path, clock, told)
        shutil.rmtree(path)

    def _failure(
        self, path: tuple[CrashState, ...], trouble: str, error: BaseException
    ) -> CrashFailure:
        kept = None
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            kept = Path(mkdtemp(prefix="crash-", dir=self._keep))
            write_files(kept / "files", path[-1].point.files)
            write_files(kept / ENGINE, read_disk(path[-1].disk, ENGINE))
        return CrashFailure(path, trouble, error, self.report, kept)

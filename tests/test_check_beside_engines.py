"""`fmq.check` beside engines: whatever they do while it reads, it reports no damage of a sound
directory, and keeps no engine from opening.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.errors import Locked, NotAStore
from fmq.machine.disk import Disk
from fmq.posix import RealDisk
from fmq.testing import CrashDisk, FakeClock
from tests.small import flip, segments

OPTIONS = fmq.Options(segment_bytes=4096, retain_bytes=3 * 4096)
PLACES: Sequence[str] = ["real", "memory"]


class StepDisk:
    """Passes everything on to `disk`, and calls `step` before each thing that is read."""

    def __init__(self, disk: Disk, step: Callable[[], object]) -> None:
        self.disk = disk
        self.step = step

    def directory(self, path: str, *, make: bool) -> Any:
        return _Stepped(self.disk.directory(path, make=make), self.step)

    def random(self, size: int) -> bytes:
        return self.disk.random(size)


class _Stepped:
    """A directory, or a file of one: `names`, `open`, `read` and `size` are steps."""

    def __init__(self, real: Any, step: Callable[[], object]) -> None:
        self._real = real
        self._step = step

    def __getattr__(self, name: str) -> Any:
        if name in ("names", "read", "size"):
            self._step()
        return getattr(self._real, name)

    def open(self, name: str, *, write: bool = False) -> _Stepped:
        self._step()
        return _Stepped(self._real.open(name, write=write), self._step)


def once(act: Callable[[], object], at: int) -> Callable[[], None]:
    """Return a step that calls `act` once: at call number `at`, counted from 0."""
    times = count()

    def step() -> None:
        if next(times) == at:
            act()

    return step


class Place:
    """A directory with a journal of a few segments, on a disk of either kind."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.disk: Disk = RealDisk() if kind == "real" else CrashDisk()
        self.path = str(folder / "data") if kind == "real" else "data"
        self.sent = 0
        for _ in range(3):
            self.use()

    def open(self) -> fmq.Engine:
        return fmq.open(self.path, OPTIONS, disk=self.disk, clock=FakeClock(), background=False)

    def use(self) -> None:
        """Open, append until a segment is full and another one dropped, and close."""
        with self.open() as engine:
            for _ in range(5):
                engine.send("t", os.urandom(700))
                self.sent += 1

    def steps(self) -> int:
        """Return how many steps a check takes that nothing disturbs."""
        taken = count()
        assert fmq.check(self.path, disk=StepDisk(self.disk, lambda: next(taken))).ok
        return next(taken)

    def check_with(self, act: Callable[[], object], at: int) -> fmq.Report | None:
        """Check, and call `act` at step `at`. Return the report, or None for Locked."""
        try:
            return fmq.check(self.path, disk=StepDisk(self.disk, once(act, at)))
        except Locked:
            return None


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def test_a_check_raises_locked_if_an_engine_opened_meanwhile(
    place: Place,
) -> None:
    """The engine opens, appends, drops a segment and closes between two reads, at each in turn.

    It is neither refused nor delayed. Before the first look at the lock it does not affect the
    check.
    """
    said = [place.check_with(place.use, at) for at in range(place.steps())]
    heard = [at for at, report in enumerate(said) if report is not None]
    assert [report for report in said if report is not None and not report.ok] == []
    assert heard == list(range(len(heard)))
    assert len(heard) <= 2
    assert place.sent == 15 + 5 * len(said)


def test_a_check_raises_locked_even_if_the_engine_changed_nothing(place: Place) -> None:
    """It had the directory open, so what was read proves nothing."""
    said = [place.check_with(lambda: place.open().close(), at) for at in range(place.steps())]
    assert said[2:] == [None] * (len(said) - 2)


def test_a_check_raises_locked_if_an_engine_opens_and_stays(place: Place) -> None:
    engines: list[fmq.Engine] = []

    def come() -> None:
        engines.append(place.open())
        engines[-1].send("t", b"x")

    for at in range(place.steps()):
        assert place.check_with(come, at) is None
        engines.pop().close()


def test_a_check_raises_locked_if_an_engine_begins_a_journal() -> None:
    """It does not raise NotAStore: the directory is not empty any more."""

    def begin(disk: Disk) -> None:
        fmq.open("data", disk=disk, clock=FakeClock(), background=False).close()

    for at in range(2, 4):  # once it shares the lock
        disk = CrashDisk()
        disk.directory("data", make=True)
        with pytest.raises(Locked):
            fmq.check("data", disk=StepDisk(disk, once(partial(begin, disk), at)))
    disk = CrashDisk()
    disk.directory("data", make=True)
    with pytest.raises(NotAStore):
        fmq.check("data", disk=disk)


def test_the_error_locked_names_the_engine_and_the_remedy(tmp_path: Path) -> None:
    place = Place("real", tmp_path)
    with pytest.raises(Locked, match="had it open for writing while it was read") as caught:
        fmq.check(place.path, disk=StepDisk(place.disk, once(place.use, 5)))
    assert caught.value.holder == f"process {os.getpid()}"
    assert "Call again while no engine has it open" in str(caught.value)


def test_damage_is_reported_beside_a_second_check(place: Place) -> None:
    """A second check is no engine, and each reports the damage."""
    if isinstance(place.disk, CrashDisk):
        flip(place.disk, segments(place.disk)[0], 2000)
    else:
        first = min(Path(place.path).glob("*.seg"))
        data = bytearray(first.read_bytes())
        data[2000] ^= 1
        first.write_bytes(data)
    inner: list[fmq.Report] = []
    report = place.check_with(lambda: inner.append(fmq.check(place.path, disk=place.disk)), at=5)
    assert report is not None
    assert not report.ok
    assert report == inner[0]


def test_a_directory_without_a_lock_file_is_checked(place: Place) -> None:
    """A backup may leave LOCK out. An engine that opens meanwhile makes one."""
    place.disk.directory(place.path, make=False).remove("LOCK")
    report = place.check_with(lambda: None, at=0)
    assert report is not None
    assert report.ok
    assert place.check_with(place.use, at=5) is None

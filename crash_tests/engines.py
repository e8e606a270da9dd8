"""Opens and abandons engines in which every step is deterministic."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import fmq
from crash_tests.oracle import Rules, Violation
from crash_tests.workload import GROUPS, Workload
from fmq.arguments.options import Options
from fmq.engines.engine import Engine
from fmq.engines.thread_door import ThreadDoor
from fmq.machine.disk import Directory, Disk
from fmq.recovery.recover import LockedDirectory, lock_and_recover
from fmq.testing import CrashDisk, FakeClock, PowerLoss
from fmq.testing.changes import Write
from fmq.testing.inside import end_as_killed
from fmq.testing.shadow import Shadow

PATH = "data"


def options_of(workload: Workload) -> Options:
    return Options(**workload.all_options())


def rules_of(workload: Workload) -> Rules:
    options = workload.all_options()
    return Rules(
        options.get("retain_bytes") or options.get("retain_acked_bytes"),
        "retain_bytes" not in options,
        options["segment_bytes"],
        options.get("sync") != "never",
        {group: topics for group, topics in GROUPS.items() if group in workload.groups()},
        options.get("outcome_window_seconds"),
    )


def open_engine(disk: Disk, options: Options, clock: FakeClock | None = None) -> Engine:
    """Return an engine in which every step is deterministic, and whose bytes a shadow replays."""
    engine = fmq.open(PATH, options, disk=disk, clock=clock or FakeClock(), background=False)
    Shadow(engine)
    return engine


class Start(NamedTuple):
    """A directory that was recovered, and in which no engine was started yet."""

    disk: Disk
    directory: Directory
    locked: LockedDirectory


def recover_on(disk: Disk, options: Options) -> Start:
    """Do the first half of an opening: find out what is there, and mend it."""
    directory = disk.directory(PATH, make=True)
    locked = lock_and_recover(directory, disk, options.capacity)
    return Start(disk, directory, locked)


def engine_on(start: Start, options: Options) -> Engine:
    """Do the second half of an opening: make an engine of what recovery found."""
    disk, directory, locked = start
    what = PATH, directory, locked, disk, options, FakeClock()
    return Engine(ThreadDoor(*what, background=False))


def abandon(engine: Engine | None) -> None:
    """Close an engine whose process counts as dead. Its errors do not count.

    An engine that has broken its promises may raise anything here, and must not hide the violation
    that was found. If it need not do anything any more, its disk is stopped before.
    """
    if engine is not None:
        with contextlib.suppress(PowerLoss, Exception):
            engine.close()


def let_go(engine: Engine, disk: CrashDisk) -> None:
    """Stop the disk of an engine that is not used any more, so that it ends like a killed process.

    Closing it would cost a tenth of what opening it did, without a disk to close it on.
    """
    disk.stop()
    end_as_killed(engine)


def last_write(disk: CrashDisk) -> Write:
    """Return the write in which the power failed."""
    change = disk.pending()[-1]
    assert isinstance(change, Write)
    return change


def violation_of(error: BaseException) -> Violation:
    """Return the Violation for an error that no call may raise here."""
    if isinstance(error, Violation):
        return error
    return Violation("I0", f"{type(error).__name__}: {error}")

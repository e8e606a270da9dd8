"""Power cuts below the file system: its device loses a part of the writes since the last flush.

The file system lies on a loop device over a file that a process of ours serves, and that is a
disk with a volatile cache. At a random operation it fails. Of what it may then hold (nothing, all,
some, or parts of the writes since the last flush) each is mounted, recovered and compared: several
futures of one store. The last one goes on to the next cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import TracebackType

from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.real import fuse
from crash_tests.real.blocks import Write, left_by, losses
from crash_tests.real.filesystem import FileSystem, scratch_below, unmount, why_not
from crash_tests.real.lies import WRITES_NOT_SYNCED
from crash_tests.real.life import processes
from crash_tests.real.store import Store
from crash_tests.real.tally import Tally

SHARE = 20  # how many disks a run without a budget tries
CONTROL_CUTS_MAX = 10
FUTURES = 5  # how many disks of each cut are tried, besides that with all writes and that with none
OPERATIONS_MAX = 60  # after at most so many operations the device fails
FAIL_SECONDS = 2.0
START_SECONDS = 60.0


class Reordered:
    """The tier of one kind of file system. A round is one disk that a cut may leave."""

    def __init__(self, kind: str, cuts: int = 5) -> None:
        """Each store lives through `cuts` power cuts, and so through seven times as many disks."""
        self.name = f"reordered writes below {kind}"
        self._kind = kind
        self._cuts = cuts

    def run(self, budget: Budget) -> Tally:
        tally = Tally(self.name)
        tally.not_run = why_not(self._kind)
        if not os.path.exists("/dev/fuse"):
            tally.not_run = tally.not_run or "there is no /dev/fuse"
        if tally.not_run is not None:
            return tally
        with (
            scratch_below(budget.directory, f"reorder-{self._kind}") as scratch,
            FileSystem(self._kind, scratch) as files,
        ):
            self._control(files, scratch, budget, tally)
            while budget.allows(tally.rounds, SHARE):
                self._store(files, scratch, budget, tally)
        tally.stop()
        return tally

    def _store(self, files: FileSystem, scratch: Path, budget: Budget, tally: Tally) -> None:
        """Run one store on a fresh file system, until its device has failed often enough."""
        seed = budget.seed * 1_000_000 + tally.stores
        store = Store(seed, files.point / "store", scratch / "evidence")
        tally.stores += 1
        try:
            for future in all_futures(store, files, scratch, Random(seed), self._cuts):
                store = future
                tally.add_round(budget)
        except Violation as violation:
            folder = budget.failures / f"reorder-{self._kind}-{seed}"
            tally.failures.append(store.save(violation, folder))
        finally:
            files.unmount()
        tally.promises += store.promises.done

    def _control(self, files: FileSystem, scratch: Path, budget: Budget, tally: Tally) -> None:
        """Run a store whose disk does not sync what it writes. It must be found to have
        lost data.
        """
        lie = WRITES_NOT_SYNCED
        store = Store(budget.seed, files.point / "store", scratch / "evidence", lie)
        with tally.found_out(lie):
            for _ in all_futures(store, files, scratch, Random(budget.seed), CONTROL_CUTS_MAX):
                pass
        files.unmount()


def all_futures(
    store: Store, files: FileSystem, scratch: Path, random: Random, cuts: int
) -> Iterator[Store]:
    """Run a store on a fresh file system whose device fails, and fails again in its last future."""
    files.create()
    for _ in range(cuts):
        pending = live_on_a_device(store, files, scratch, random)
        for future in futures(store, files, scratch / "durable", pending, random):
            yield future
            latest = future
        store = latest


class Device:
    """The disk under a file system, with all that was in the image `files.image`."""

    def __init__(self, files: FileSystem, scratch: Path) -> None:
        self.durable, self._current = scratch / "durable", scratch / "current"
        self._files, self._image = files, files.image
        self._point = scratch / "device"
        self._pipe, theirs = processes.Pipe()
        self._point.mkdir(exist_ok=True)
        for copy in (self.durable, self._current):
            left_by(self._image, (), copy)
        arguments = self._point, self.durable, self._current, theirs
        self._process = processes.Process(target=fuse.serve, args=arguments)

    def __enter__(self) -> Device:
        self._process.start()
        if not self._pipe.poll(START_SECONDS):
            raise RuntimeError("the device does not start")
        self._pipe.recv()
        self._files.image = self._point / "disk"
        self._files.mount()
        return self

    def fail(self, after: int) -> float:
        """Let the device fail after so many more operations, or now if fewer come. Return the
        time.monotonic() at which it began to fail.
        """
        self._pipe.send(after)
        if not self._pipe.poll(FAIL_SECONDS):
            self._pipe.send(0)
        began = self._pipe.recv()
        assert isinstance(began, float)
        return began

    def pending(self) -> list[Write]:
        """Return the writes since the last flush."""
        self._pipe.send(None)
        while not isinstance(said := self._pipe.recv(), list):
            pass  # that it has failed, once more
        return said

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.unmount()
        self._files.image = self._image
        unmount(self._point)
        self._process.join(START_SECONDS)
        self._process.kill()


def live_on_a_device(store: Store, files: FileSystem, scratch: Path, random: Random) -> list[Write]:
    """Run a life that ends because the device fails. Return the writes that were not flushed."""
    with Device(files, scratch) as device:
        after = random.randrange(OPERATIONS_MAX)
        store.live("the device fails", lambda: device.fail(after))
        return device.pending()


def futures(
    store: Store, files: FileSystem, durable: Path, pending: list[Write], random: Random
) -> Iterator[Store]:
    """Yield the store on each disk that the failure may leave. Each is closed and unmounted
    afterwards.
    """
    for left, kept in losses(pending, random, FUTURES):
        future = store.twin(f"left: {left} {len(pending)} writes")
        left_by(durable, kept, files.image)
        files.mount()
        yield future
        future.finish()
        files.unmount()


BELOW_EXT4, BELOW_XFS = Reordered("ext4"), Reordered("xfs")

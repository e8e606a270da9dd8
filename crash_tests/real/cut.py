"""Power cuts of real file systems, under load.

A cut is an ioctl that drops whatever the file system has not written to its device, with or
without its own journal. Then it is mounted again, and a new process recovers the store, shows
it and works on, to the next cut. Some lives end by a kill first, so that what a recovery shows
out of the page cache is cut away too, if it was not made durable.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.real.filesystem import FileSystem, scratch_below, why_not
from crash_tests.real.lies import NAMES_NOT_SYNCED, WRITES_NOT_SYNCED
from crash_tests.real.life import Moment
from crash_tests.real.store import Store
from crash_tests.real.tally import Tally

SHARE = 20  # how many cuts a run without a budget makes
CUTS_OF_ONE = 10  # after so many cuts, a fresh file system is made
CONTROL_STORES_MAX = 25
CONTROL_CUTS_OF_ONE = 4


class Cuts:
    """The tier of one kind of file system, with the lies that it must find out first."""

    def __init__(self, kind: str, *lies: str) -> None:
        self.name = f"power cuts on {kind}"
        self._kind = kind
        self._lies = lies

    def run(self, budget: Budget) -> Tally:
        tally = Tally(self.name)
        tally.not_run = why_not(self._kind)
        if tally.not_run is not None:
            return tally
        with (
            scratch_below(budget.directory, f"cut-{self._kind}") as scratch,
            FileSystem(self._kind, scratch) as files,
        ):
            for lie in self._lies:
                self._control(lie, files, scratch, budget, tally)
            while budget.allows(tally.rounds, SHARE):
                self._store(files, scratch, budget, tally)
        tally.stop()
        return tally

    def _store(self, files: FileSystem, scratch: Path, budget: Budget, tally: Tally) -> None:
        """Run one store on a fresh file system, until it has been cut often enough."""
        seed = budget.seed * 1_000_000 + tally.stores
        store, random = Store(seed, files.point / "store", scratch / "evidence"), Random(seed)
        tally.stores += 1
        files.make()
        try:
            for _ in tally.rounds_of(budget, SHARE, CUTS_OF_ONE):
                live_to_a_cut(store, files, random)
            store.finish()
        except Violation as violation:
            folder = budget.failures / f"{self._kind}-{seed}"
            tally.failures.append(store.save(violation, folder))
        tally.promises += store.promises.done

    def _control(
        self, lie: str, files: FileSystem, scratch: Path, budget: Budget, tally: Tally
    ) -> None:
        """Run stores whose disk does not do what it says. One of them must be found to have
        lost data.
        """
        with tally.found_out(lie):
            for seed in range(budget.seed, budget.seed + CONTROL_STORES_MAX):
                store = Store(seed, files.point / "store", scratch / "evidence", lie=lie)
                files.make()
                for _ in range(CONTROL_CUTS_OF_ONE):
                    cut_after_a_roll(store, files)


def live_to_a_cut(store: Store, files: FileSystem, random: Random) -> None:
    """Run lives up to the next power cut, and mount the file system again, which recovers it."""
    if random.random() < 0.2:
        store.live("kill")
    flush_log, linger = random.random() < 0.25, random.random() < 0.25
    what = "cut, its journal written" if flush_log else "cut"
    store.live(what, lambda: cut(files, flush_log=flush_log), linger=linger)
    files.unmount()
    files.mount()


def cut(files: FileSystem, *, flush_log: bool) -> float:
    """Cut the power. Return the time.monotonic() at which that began."""
    began = time.monotonic()
    files.cut(flush_log=flush_log)
    return began


def cut_after_a_roll(store: Store, files: FileSystem) -> None:
    """Cut the power right after a roll. Both lies show here: a lost write, or a lost file name."""
    store.live("cut", lambda: cut(files, flush_log=False), moment=Moment(0, rolled=True))
    files.unmount()
    files.mount()


EXT4 = Cuts("ext4", WRITES_NOT_SYNCED, NAMES_NOT_SYNCED)
# It writes its whole journal with the next sync of any file, so it seldom loses a name.
XFS = Cuts("xfs", WRITES_NOT_SYNCED)

"""Kills processes under load. Each goes on where the one before it was.

What a kill leaves is all that was written, synced or not: it tries recovery, the lock and the
threads, and never the disk. The control is a process that says what is done before it is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.real.filesystem import scratch_below
from crash_tests.real.lies import SAID_TOO_EARLY
from crash_tests.real.store import Store
from crash_tests.real.tally import Tally
from crash_tests.real.watcher import Watcher

SHARE = 50  # how many kills a run without a budget makes
KILLS_OF_ONE = 25
CONTROL_KILLS_MAX = 40


class Kills:
    """The tier."""

    name = "kills of a process"

    def run(self, budget: Budget) -> Tally:
        tally = Tally(self.name)
        with scratch_below(budget.directory, "kills") as scratch:
            self._control(scratch, budget, tally)
            while budget.allows(tally.rounds, SHARE):
                self._store(scratch, budget, tally)
        tally.stop()
        return tally

    def _store(self, scratch: Path, budget: Budget, tally: Tally) -> None:
        seed = budget.seed * 1_000_000 + tally.stores
        path = fresh(scratch)
        watcher = Watcher(path)
        store = Store(seed, path, scratch / "evidence", watcher=watcher)
        tally.stores += 1
        try:
            for _ in tally.rounds_of(budget, SHARE, KILLS_OF_ONE):
                store.live("kill")
            store.finish()
        except Violation as violation:
            tally.failures.append(store.save(violation, budget.failures / f"kills-{seed}"))
        finally:
            watcher.close()
        tally.promises += store.promises.done

    def _control(self, scratch: Path, budget: Budget, tally: Tally) -> None:
        store = Store(budget.seed, fresh(scratch), scratch / "evidence", lie=SAID_TOO_EARLY)
        with tally.found_out(SAID_TOO_EARLY):
            for _ in range(CONTROL_KILLS_MAX):
                store.live("kill")


def fresh(scratch: Path) -> Path:
    path = scratch / "store"
    shutil.rmtree(path, ignore_errors=True)
    return path


KILLS = Kills()

"""An engine whose chores run as late as possible: only when a test moves the clock.

With a thread of its own an engine does not do the same in every run; without one it syncs at
the end of each call what the call left for later, which hides that a program relied on it.
"""

from __future__ import annotations

import fmq
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.fake_clock import FakeClock


class LateClock(FakeClock):
    """A clock that stands still. When a test moves it, the chores of `engine` run."""

    engine: fmq.Engine | None = None

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and run the chores that are due then."""
        super().advance(seconds)
        if self.engine is not None:
            self.engine._door.parts.chores.attempt()


def open_late(path: str, options: fmq.Options, disk: CrashDisk, clock: LateClock) -> fmq.Engine:
    """Return `fmq.open(...)`, with chores that only `clock` runs."""
    engine = fmq.open(path, options, disk=disk, clock=clock, background=False)
    # As if the engine had a thread for chores, which has not run yet.
    engine._door.background = True
    clock.engine = engine
    return engine

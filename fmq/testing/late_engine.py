"""An engine whose housekeeping is as late as it can be: it gets a turn only when time passes.

With a thread of its own an engine does not do the same in every run; without one it syncs at
the end of each call what the call left for later, which hides that a program relied on it.
"""

from __future__ import annotations

import fmq
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.fake_clock import FakeClock


class LateClock(FakeClock):
    """Stands still; when it is moved, the housekeeping of `engine` gets its turn."""

    engine: fmq.Engine | None = None

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and what they make due be done."""
        super().advance(seconds)
        if self.engine is not None:
            self.engine._parts.chores.attempt()


def open_late(path: str, options: fmq.Options, disk: CrashDisk, clock: LateClock) -> fmq.Engine:
    """`fmq.open`, with housekeeping that only `clock` brings about."""
    engine = fmq.open(path, options, disk=disk, clock=clock, background=False)
    engine._background = True  # as if it had a thread, which has not run yet
    clock.engine = engine
    return engine

"""Opening a disk that a crash left, and holding what it shows against what was promised."""

from __future__ import annotations

from dataclasses import dataclass

from crash_tests.directories import check_cut_is_kept
from crash_tests.engines import abandon, let_go, open_engine
from crash_tests.look import look
from crash_tests.memory import Memory, State
from crash_tests.oracle import Oracle, Seen
from crash_tests.verdict import check
from fmq.options import Options
from fmq.testing import CrashDisk


@dataclass(frozen=True, slots=True)
class Opened:
    """What one recovery has made of a disk."""

    seen: Seen
    oracle: Oracle  # what has been seen is promised from then on
    killed: CrashDisk  # as a kill leaves it now
    closed: CrashDisk  # as a clean close has left it


class Opening:
    """Opens disks of one workload, each only once for the same promises."""

    def __init__(self, options: Options, memory: Memory) -> None:
        self._options = options
        self._memory = memory

    def check(self, disk: CrashDisk, before: Oracle) -> None:
        """Open `disk`, which nobody needs any more, unless it is known what it shows."""
        state = disk.fingerprint(), before.promises()
        if self._memory.knows(state):
            return
        seen = self._memory.seen(state, before)
        if seen is None:
            self._open(disk, before, state, closes=False)
        else:
            check(before.copy(), seen)
            self._memory.keep(state, seen)

    def open(self, disk: CrashDisk, before: Oracle, *, closes: bool = True) -> Opened:
        """What opening `disk` makes of it; if it is not closed, `killed` and `closed` are one."""
        state = disk.fingerprint(), before.promises()
        return self._open(disk, before, state, closes=closes)

    def _open(self, disk: CrashDisk, before: Oracle, state: State, *, closes: bool) -> Opened:
        oracle, found = before.copy(), disk.after_kill()
        self._memory.recoveries += 1
        engine = open_engine(disk, self._options)
        try:
            seen = look(engine, oracle.tx_names(), oracle.acking())
            check(oracle, seen)
            killed = disk.after_kill() if closes else disk
            check_cut_is_kept(found, killed)
        finally:
            if closes:
                abandon(engine)
            else:
                let_go(engine, disk)
        self._memory.keep(state, seen)
        return Opened(seen, oracle, killed, disk)

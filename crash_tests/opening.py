"""Opens a disk that a crash left, and compares what it shows with what was promised."""

from __future__ import annotations

from dataclasses import dataclass

from crash_tests.directories import check_cut_is_kept
from crash_tests.engines import PATH, Start, abandon, engine_on, let_go, recover_on
from crash_tests.look import look
from crash_tests.memory import Memory, Outcome, State, opened_on
from crash_tests.oracle import Oracle, Seen
from crash_tests.verdict import check
from fmq.arguments.options import Options
from fmq.testing import CrashDisk


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of one recovery of a disk."""

    seen: Seen
    oracle: Oracle  # the promises, with what has been seen: it is promised from then on
    killed: CrashDisk  # the disk as a kill leaves it now
    closed: CrashDisk  # the disk as a clean close has left it


class Opening:
    """Opens disks of one workload, each only once for the same promises."""

    def __init__(self, options: Options, memory: Memory) -> None:
        self._options = options
        self._memory = memory

    def check(self, disk: CrashDisk, before: Oracle) -> None:
        """Open `disk` and check what it shows, unless that is known. Do not use `disk`
        afterwards.
        """
        state = disk.fingerprint(), before.promises()
        if self._memory.knows(state):
            return
        seen = self._memory.seen(state[0], before)
        if seen is None:
            self._open(disk, before, state, closes=False)
        else:
            self._judge(before, seen, state)

    def open(self, disk: CrashDisk, before: Oracle, *, closes: bool = True) -> Opened:
        """Open `disk` and return the result. If it is not closed, `killed` and `closed` are
        equal.
        """
        state = disk.fingerprint(), before.promises()
        return self._open(disk, before, state, closes=closes)

    def _open(self, disk: CrashDisk, before: Oracle, state: State, *, closes: bool) -> Opened:
        found = disk.files(PATH)
        self._memory.recoveries += 1
        start = recover_on(disk, self._options)
        if closes:
            seen, killed = self._show(disk, start, before, closes=True)
        else:
            seen, killed = self._shown(disk, start, before), disk
        oracle = self._judge(before, seen, state)
        check_cut_is_kept(found, killed)
        return Opened(seen, oracle, killed, disk)

    def _shown(self, disk: CrashDisk, start: Start, before: Oracle) -> Seen:
        """Return what is shown. Start no engine if one has started from exactly this state
        before.
        """
        outcome = Outcome(disk, start.locked.found)
        seen = self._memory.shown(outcome, before)
        if seen is None:
            operations = disk.operations
            disk.opened.clear()
            seen, _ = self._show(disk, start, before, closes=False)
            if disk.operations == operations:
                self._memory.note(outcome, opened_on(disk), seen)
        return seen

    def _show(
        self, disk: CrashDisk, start: Start, before: Oracle, *, closes: bool
    ) -> tuple[Seen, CrashDisk]:
        """Return what an engine shows, and the disk as a kill leaves it then."""
        engine = engine_on(start, self._options)
        try:
            seen = look(engine, before.tx_names(), before.acking())
            return seen, disk.after_kill() if closes else disk
        finally:
            if closes:
                abandon(engine)
            else:
                let_go(engine, disk)

    def _judge(self, before: Oracle, seen: Seen, state: State) -> Oracle:
        """Return the promises after this was seen, or raise Violation. Equal inputs are judged only
        once.
        """
        oracle = self._memory.settled(seen, state)
        if oracle is None:
            oracle = before.copy()
            check(oracle, seen)
        self._memory.keep(state, seen, oracle)
        return oracle

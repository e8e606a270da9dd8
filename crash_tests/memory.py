"""What has been tried of one workload, so that nothing is tried twice.

Recovery is deterministic: what it shows follows from the bytes that it finds. So a disk is
opened once, and what it showed is compared again where something else had been promised.
"""

from __future__ import annotations

from crash_tests.oracle import Oracle, Seen
from fmq.recovery.layout import QUARANTINE
from fmq.testing import CrashDisk

State = tuple[str, int]  # a disk, and what was promised when it came to be


class Memory:
    """Of all disks that were opened: what they showed, and for which promises it was enough."""

    def __init__(self) -> None:
        self.recoveries = 0  # how often a directory was opened
        self._seen: dict[str, Seen] = {}
        self._kept: set[State] = set()
        self._followed: set[tuple[str, str, int]] = set()

    @property
    def states(self) -> int:
        """How many distinct ones kept what was promised."""
        return len(self._kept)

    def knows(self, state: State) -> bool:
        return state in self._kept

    def seen(self, state: State, oracle: Oracle) -> Seen | None:
        """What the state's disk has shown before, if that was all that `oracle` asks for."""
        seen = self._seen.get(state[0])
        if seen is None or not seen.outcomes.keys() >= set(oracle.tx_names()):
            return None
        return seen if seen.delivered.keys() >= oracle.acking().keys() else None

    def keep(self, state: State, seen: Seen) -> None:
        self._seen[state[0]] = seen
        self._kept.add(state)

    def is_new(self, what: str, disk: CrashDisk, oracle: Oracle) -> bool:
        """Whether `what` was not yet tried from here; from now on it was.

        What recovery has put aside in quarantine/ it never reads again.
        """
        key = what, disk.situation(but=QUARANTINE), oracle.promises()
        known = key in self._followed
        self._followed.add(key)
        return not known

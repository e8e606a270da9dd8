"""What has been tried, so that nothing is tried twice: of one workload, or of all with its options.

Recovery is deterministic: what it shows follows from the bytes that it finds. So a disk is
opened once, and what it showed is compared again where something else had been promised.

What an engine shows follows from what recovery hands to it and from the files it has left. So
where two recoveries come to the same in both, which torn writes mostly do, one engine is asked.
"""

from __future__ import annotations

import pickle
from hashlib import blake2b

from crash_tests.oracle import Oracle, Seen
from fmq.recovery.layout import QUARANTINE
from fmq.recovery.recover import Recovered
from fmq.testing import CrashDisk

State = tuple[str, int]  # a disk, and what was promised when it came to be
STATES_MAX = 30_000  # some 100 MB


def outcome_of(disk: CrashDisk, found: Recovered) -> str:
    """The same for recoveries that an engine cannot tell apart, and for no others.

    What has been put aside nobody reads, and the report, which comes last, only says how it was.
    """
    hashed = blake2b(pickle.dumps(found[:-1], -1), digest_size=16)
    return hashed.hexdigest() + disk.fingerprint(but=QUARANTINE)


class Memory:
    """Of all disks that were opened: what they showed, and for which promises it was enough."""

    def __init__(self) -> None:
        self.recoveries = 0  # how often a directory was opened
        self.states = 0  # how many distinct ones kept what was promised
        self.fresh: set[State] = set()  # those of them that nobody has taken account of yet
        self.sound: dict[bytes, bool] = {}  # of each checkpoint that was met
        self._forget()

    def _forget(self) -> None:
        self._seen: dict[str, Seen] = {}  # of disks, and of outcomes
        # What is promised next, by what was seen, which is kept that its id stays its own.
        self._settled: dict[tuple[int, int], tuple[Seen, Oracle]] = {}
        self._kept: set[State] = set()
        self._followed: set[tuple[str, str, int]] = set()

    def make_room(self) -> None:
        """Forget all if it is much; then some of it may be tried once more."""
        if len(self._kept) > STATES_MAX:
            self._forget()

    def knows(self, state: State) -> bool:
        return state in self._kept

    def seen(self, what: str, oracle: Oracle) -> Seen | None:
        """What a disk or an outcome has shown before, if that was all that `oracle` asks for."""
        seen = self._seen.get(what)
        if seen is None or not seen.outcomes.keys() >= set(oracle.tx_names()):
            return None
        return seen if seen.delivered.keys() >= oracle.acking().keys() else None

    def note(self, what: str, seen: Seen) -> None:
        """This is what it has shown."""
        self._seen[what] = seen

    def settled(self, seen: Seen, state: State) -> Oracle | None:
        """What is promised once `seen` was found to be enough, if it was."""
        _, oracle = self._settled.get((id(seen), state[1]), (None, None))
        return oracle

    def keep(self, state: State, seen: Seen, oracle: Oracle) -> None:
        self._seen[state[0]] = seen
        self._settled[id(seen), state[1]] = seen, oracle
        if state not in self._kept:
            self._kept.add(state)
            self.fresh.add(state)
            self.states += 1

    def is_new(self, what: str, disk: CrashDisk, oracle: Oracle) -> bool:
        """Whether `what` was not yet tried from here; from now on it was.

        What recovery has put aside in quarantine/ it never reads again.
        """
        key = what, disk.situation(but=QUARANTINE), oracle.promises()
        known = key in self._followed
        self._followed.add(key)
        return not known

"""What was tried already, so that nothing is tried twice: for one workload, or for all with the
same options.

Recovery is deterministic: what it shows follows from the bytes that it finds. So a disk is
opened once, and what it showed is compared again where something else had been promised.

What an engine shows follows from what recovery hands to it, from the names in the directory, and
from the files that it opens then. So where recoveries come to the same in these, which torn writes
mostly do, one engine is asked.
"""

from __future__ import annotations

import pickle
from hashlib import blake2b

from crash_tests.engines import PATH
from crash_tests.oracle import Oracle, Seen
from fmq.recovery.layout import QUARANTINE
from fmq.recovery.recover import Recovered
from fmq.testing import CrashDisk

Names = tuple[str, ...]
State = tuple[str, int]  # a disk, and what was promised when it came to be
STATES_MAX = 30_000  # some 100 MB


class Outcome:
    """The result of a recovery, as an engine may use it."""

    def __init__(self, disk: CrashDisk, found: Recovered) -> None:
        """The report is the last part of `found`. It is left out, because it only says how the rest
        was found.
        """
        self._files = disk.files(PATH)  # without quarantine/, which no engine reads
        names = sorted(self._files)
        # Equal pickles hold equal values. Different ones may, too: then an engine is started in
        # vain.
        self.found = blake2b(pickle.dumps((found[:-1], names), -1), digest_size=16).digest()

    def with_files(self, names: Names) -> bytes | None:
        """Return a key that is equal for outcomes which differ in other files only; None if a file
        is missing.
        """
        if not self._files.keys() >= set(names):
            return None
        each = (name.encode() + self._files[name].digest() for name in names)
        return b"".join([self.found, *each])


def opened_on(disk: CrashDisk) -> Names:
    """Return the files in the directory that were opened."""
    return tuple(sorted(path.removeprefix(f"{PATH}/") for path in disk.opened))


def _is_enough(seen: Seen, oracle: Oracle) -> bool:
    asked = seen.outcomes.keys() >= set(oracle.tx_names())
    return asked and seen.delivered.keys() >= oracle.acking().keys()


class Memory:
    """For each disk that was opened: what it showed, and which promises that kept."""

    def __init__(self) -> None:
        self.recoveries = 0  # how often a directory was opened
        self.states = 0  # how many distinct states kept what was promised
        self.fresh: set[State] = set()  # states that are not in any tally yet
        self.sound: dict[bytes, bool] = {}  # checkpoint -> whether it is sound
        self._forget()

    def _forget(self) -> None:
        self._seen: dict[str, Seen] = {}  # what each disk showed
        # What an engine showed, by the outcome and the files that were opened.
        self._shown: dict[bytes, Seen] = {}
        # The names of the files that were opened, by what recovery found.
        self._opened: dict[bytes, set[Names]] = {}
        # What is promised next, by the id of what was seen. That is kept, so that no other object
        # gets its id.
        self._settled: dict[tuple[int, int], tuple[Seen, Oracle]] = {}
        self._kept: set[State] = set()
        self._followed: set[tuple[str, str, int]] = set()

    def make_room(self) -> None:
        """Forget everything if it is too much. Then some of it may be tried again."""
        if len(self._kept) > STATES_MAX:
            self._forget()

    def knows(self, state: State) -> bool:
        return state in self._kept

    def seen(self, disk: str, oracle: Oracle) -> Seen | None:
        """Return what a disk has shown before, if that was all that `oracle` asks for."""
        seen = self._seen.get(disk)
        return seen if seen is not None and _is_enough(seen, oracle) else None

    def shown(self, outcome: Outcome, oracle: Oracle) -> Seen | None:
        """Return what an outcome has shown before, if that was all that `oracle` asks for."""
        for names in self._opened.get(outcome.found, ()):
            key = outcome.with_files(names)
            if key in self._shown and _is_enough(self._shown[key], oracle):
                return self._shown[key]
        return None

    def note(self, outcome: Outcome, opened: Names, seen: Seen) -> None:
        """Note what a disk has shown, and which files were opened to show it."""
        key = outcome.with_files(opened)
        if key is not None:
            self._opened.setdefault(outcome.found, set()).add(opened)
            self._shown[key] = seen

    def settled(self, seen: Seen, state: State) -> Oracle | None:
        """Return the promises after `seen` was found to keep them; None if it was not
        checked yet.
        """
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
        """Return whether `what` was not tried yet from this state, and note it.

        What recovery has put aside in quarantine/ it never reads again.
        """
        key = what, disk.situation(but=QUARANTINE), oracle.promises()
        known = key in self._followed
        self._followed.add(key)
        return not known

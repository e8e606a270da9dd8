"""Bugs between threads to plant in fmq; one thread alone meets none of them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

BETWEEN_THREADS = (
    Mutant(
        "who planned during a write is answered with it",
        "                        if taken.waiters:\n"
        "                            self._serve(taken.waiters)\n",
        "                        self._serve(taken.waiters)\n"
        "                        self._serve(journal.pending.waiters)\n",
        "--workload shared-sync --rounds 40",
    ),
    Mutant(
        "the lead is not handed on",
        "                    if journal.pending.waiters:\n                        self._hand_on()",
        "                    if journal.pending.waiters:\n                        self._leader = 0",
        "--workload shared-sync --rounds 40",
    ),
    Mutant(
        "an heir stays asleep",
        "        heir.wake()\n        if heir is not",
        "        if self.committer:\n            heir.wake()\n        if heir is not",
        "--workload hand-on --rounds 40",
    ),
    Mutant(
        "the committer takes the place of one who waits",
        "        if heir is not self.committer:\n            waiters.remove(heir)",
        "        waiters.pop(0)",
        "--workload shared-sync --rounds 40",
    ),
    Mutant(
        "the committer keeps the lead, and writes nothing more",
        "        self._leader = heir.thread\n        heir.wake()\n",
        "        if heir.thread != self._leader:\n            heir.wake()\n"
        "        self._leader = heir.thread\n",
        "--workload shared-sync --rounds 300",
    ),
    Mutant(
        "published in another order than the journal's",
        "        _, shown, what = shows.popleft()\n",
        "        _, shown, what = shows.pop()\n",
        "--workload one-order --rounds 40",
    ),
    Mutant(
        "a roll joins what another thread is writing",
        "        pending.rolls = (*pending.rolls, roll)\n",
        "        pending.rolls.append(roll)\n",
        "--workload roll-together --rounds 300",
        (
            ("        self.rolls: tuple[Roll, ...] = ()", "        self.rolls = ROLLS"),
            ("class JournalWrite:\n", "ROLLS = []\n\n\nclass JournalWrite:\n"),
            (
                "return taken\n\n    @property",
                "self.pending.rolls = taken.rolls and []\n        return taken\n\n    @property",
            ),
        ),
    ),
    Mutant(
        "a send is planned before the lock is taken",
        "        waiter = taken = None\n",
        "        waiter = taken = None\n        done = plan(what)\n        plan = lambda _: done\n",
        "--workload shared-sync --rounds 100",
    ),
    Mutant(
        "a sync vouches for what was planned meanwhile",
        "        self.written_to = end = taken.end\n",
        "        self.written_to, end = taken.end, self.position\n",
        "--workload shared-sync --rounds 400",
    ),
    Mutant(
        "a decision does not look whether another one was faster",
        "return self._ledger.undecided.get(entry.tx) is not entry",
        "return False",
        "--workload rivals --rounds 40",
    ),
    Mutant(
        "a checkpoint takes what is planned for written",
        "                self._commit_queue.flush(force=True)\n            checkpoint = noted",
        "                pass\n            checkpoint = noted",
        "--workload checkpoint-beside --rounds 300",
    ),
    Mutant(
        "a checkpoint does not look whether the engine was closed",
        "            self._check()\n            self._checkpoint(clean=False)",
        "            self._checkpoint(clean=False)",
        "--workload checkpoint-and-close --rounds 100",
    ),
    Mutant(
        "a checkpoint notes what others wrote behind its sync",
        "            with self._commit_queue.lock, self._commit_queue.changing:\n"
        "                if self._commit_queue.broken():",
        "            if self._syncs and not clean:\n"
        "                self._commit_queue.flush(force=True)\n"
        "            with self._commit_queue.lock, self._commit_queue.changing:\n"
        "                if self._commit_queue.broken():",
        "--workload checkpoint-of-unsynced --rounds 100",
        (
            (
                "            if not clean and (\n                self._syncs",
                "            if False and (\n                self._syncs",
            ),
        ),
    ),
)

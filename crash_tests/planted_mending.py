"""Bugs to plant in recovery, relocation, reserve and follow, each named after a rule it breaks."""

from __future__ import annotations

from crash_tests.mutant import Mutant

MENDING = (
    Mutant(
        "recovery removes several segments at once",
        "        # Each by itself: nothing orders two removals but a sync between them.\n"
        "        directory.sync()\n"
        "    if len(kept) < len(segments):\n",
        "    if len(kept) < len(segments):\n        directory.sync()\n",
        "--workload retention-after-a-pin",
    ),
    Mutant(
        "a relocation forgets what is reserved",
        "    new.reserved = old.reserved\n",
        "",
        "--workload relocation",
    ),
    Mutant(
        "a prepare reserves no room for its relocation",
        "return 2 * size + FRAME_BYTES",
        "return size + FRAME_BYTES",
        "--workload relocation-of-large",
    ),
    Mutant(
        "the older of two decisions about one id is told",
        "            indexes = [self._ledger.index, *reversed(self._ledger.sealed)]\n",
        "            indexes = [*self._ledger.sealed, self._ledger.index]\n",
        "--workload id-after-the-window",
        (
            (
                (
                    "        for position in positions:\n"
                    "            if (decided := self._read(position, tx_id)) is not None:\n"
                    "                return self._within_window(decided)\n"
                    "        for position in self._catalog.find_outcomes(tx_id):\n"
                ),
                "        for position in [*self._catalog.find_outcomes(tx_id), *positions]:\n",
            ),
        ),
    ),
    Mutant(
        "a follower believes a checkpoint that is ahead of it",
        "if checkpoint is not None and checkpoint.applied_upto <= segments[-1].limit:",
        "if checkpoint is not None:",
        "--workload followed-over-a-roll --preemptions 1",
    ),
    Mutant(
        "a sealed segment need not be the one that the next one names",
        "            if scan.chain not in (None, segment.chain):\n",
        "            if False:\n",
        "--workload roll",
    ),
    Mutant(
        "a follower that starts over keeps its old files",
        "            self.files.close()  # what is opened from here on is no older than what was"
        " replayed\n",
        "",
        "--workload follower-left-behind",
    ),
)

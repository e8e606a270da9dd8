"""Bugs to plant in recovery, relocation, reserve and follow, each named after a rule it breaks."""

from __future__ import annotations

from crash_tests.mutant import Mutant

MENDING = (
    Mutant(
        "an old copy of the last segment is taken for all that there was",
        "    replay.prove(told)\n",
        "    pass\n",
        "--workload send",
    ),
    Mutant(
        "a missing last segment is not missed after a kill",
        "    if told > limit:\n        raise Damaged(",
        "    if False:\n        raise Damaged(",
        tests="tests/recovery/test_old_copies.py -k never_hides",
    ),
    Mutant(
        "a salvage does not believe what readers were told",
        "    durable_to = max(told, known.applied_upto if known else 0)\n",
        "    durable_to = known.applied_upto if known else 0\n",
        tests="tests/recovery/test_old_copies.py -k never_hides",
    ),
    Mutant(
        "recovery removes several segments at once",
        "        directory.sync()\n    if len(kept) < len(segments):\n",
        "    if len(kept) < len(segments):\n        directory.sync()\n",
        "--workload retention-after-a-pin",
    ),
    Mutant(
        "a relocation forgets what is reserved",
        "    new.reserved, new.kept_bytes = old.reserved, old.kept_bytes\n",
        "    new.kept_bytes = old.kept_bytes\n",
        "--workload relocation",
    ),
    Mutant(
        "a prepare reserves no room for its relocation",
        "return 2 * size + FRAME_BYTES",
        "return size + FRAME_BYTES",
        "--workload relocation-of-large",
    ),
    Mutant(
        "a checkpoint forgets the marks",
        "for name, (value, data) in ledger.marks.items()}",
        "for name, (value, data) in ()}",
        "--workload marks",
    ),
    Mutant(
        "a relocation forgets the marks",
        "marks = [Marks(again.marks, 0, again.tx)] if again.marks else []",
        "marks: list[Marks] = []",
        "--workload marks-outlive-their-segments",
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
        "if position <= self.segments[-1].limit:",
        "if True:",
        "--workload followed-without-a-page --preemptions 1",
    ),
    Mutant(
        "a follower asks what is durable after it has seen the names",
        "        told = self._page.look()\n        layout = self._look()\n        here",
        "        layout = self._look()\n        told = self._page.look()\n        here",
        "--workload followed-over-a-roll --preemptions 1",
        (("        if position <= self.segments[-1].limit:\n", "        if True:\n"),),
    ),
    Mutant(
        "a sealed segment need not be the one that the next one names",
        "            if scan.chain not in (None, segment.chain):\n",
        "            if False:\n",
        "--workload roll",
    ),
    Mutant(
        "a follower that starts over keeps its old files",
        "            self.files.close()  # open files again, so that none is older than what was"
        " replayed\n",
        "",
        "--workload follower-left-behind",
    ),
    Mutant(
        "a follower that is opened looks for the newest segment only once",
        "        for _ in range(ATTEMPTS - 1):\n            with suppress(FileNotFoundError):\n",
        "        for _ in ():\n            with suppress(FileNotFoundError):\n",
        "--workload followed-over-retention --preemptions 1",
    ),
    Mutant(
        "a follower shows what nothing vouches for",
        "            if end_of(append) <= vouched:\n",
        "            if True:\n",
        "--workload send --full 1",
    ),
    Mutant(
        "a follower keeps the file that a recovery has replaced",
        "        for segment in self._replay.segments:\n"
        "            self.files.forget(segment.base)\n",
        "        pass\n",
        "--workload two-phase --full 1",
    ),
    Mutant(
        "a follower keeps files of what was dropped",
        "                base = self.segments.pop(0).base\n"
        "                self.files.forget(base)\n",
        "                base = self.segments.pop(0).base\n",
        "--workload retention",
    ),
    Mutant(
        "recovery removes the newest segment below the floor first",
        "    for segment in segments[: len(segments) - len(kept)]:\n",
        "    for segment in reversed(segments[: len(segments) - len(kept)]):\n",
        "--workload retention-after-a-pin",
    ),
    Mutant(
        "recovery drops segments before what says so is durable",
        "    _remove_unproven(directory, layout)  # on a full disk the copy needs this room\n",
        "    segments = _drop_below_floor(directory, replay.segments, replay.ledger)\n"
        "    _remove_unproven(directory, layout)  # on a full disk the copy needs this room\n",
        "--workload retention-after-a-pin",
        (
            (
                (
                    "    segments = _drop_below_floor(directory, replay.segments, replay.ledger)\n"
                    "    _remove_leftovers"
                ),
                "    _remove_leftovers",
            ),
        ),
    ),
    Mutant(
        "recovery shows what a copy holds whose name is not durable",
        "    directory.rename(temporary, segment.name)\n    directory.sync()\n    return cut\n",
        "    directory.rename(temporary, segment.name)\n    return cut\n",
        "--workload kill",
    ),
    Mutant(
        "what is cut is kept under a name that is not durable",
        "            file.close()\n        folder.sync()\n    finally:\n",
        "            file.close()\n    finally:\n",
        "--workload two-phase",
    ),
    Mutant(
        "what is cut is kept in a folder whose name is not durable",
        "        folder.close()\n    directory.sync()\n    return end - start\n",
        "        folder.close()\n    return end - start\n",
        "--workload two-phase",
    ),
    Mutant(
        "recovery that copies nothing leaves names that are not durable",
        "        # A segment may have got its name just before a kill. Make that name durable.\n"
        "        directory.sync()\n",
        "        pass\n",
        "--workload roll",
    ),
    Mutant(
        "recovery reserves nothing for what it finds undecided",
        "        self._bytes += size\n        self._spares.need(*self._segments(self._bytes))\n",
        "        self._bytes += size\n",
        "--workload two-phase",
    ),
    Mutant(
        "a decision gives back nothing of what was reserved",
        "        self._reserve.give_back(entry.prepare.reserved)\n",
        "        pass\n",
        "--workload two-phase",
    ),
    Mutant(
        "a prepare that is refused keeps what it has reserved",
        "            self._reserve.give_back(prepare.reserved)\n            raise\n",
        "            raise\n",
        "--tier faults --workload relocation-of-large",
    ),
    Mutant(
        "transactions that are relocated push each other without end",
        "    far = behind > writer.options.relocate_bytes + room\n",
        "    far = behind > writer.options.relocate_bytes\n",
        "--workload relocation-of-large",
    ),
    Mutant(
        "a relocation forgets that it replaces another PREPARE",
        "        replaces=old.position,\n",
        "        replaces=old.replaces,\n",
        "--workload relocation",
    ),
)

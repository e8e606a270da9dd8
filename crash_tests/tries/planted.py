"""Bugs of attempts; the tier `tries` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier tries --rounds 12"

OF_TRIES = (
    Mutant(
        "an attempt is lost over a kill",
        "                journal.write_ahead(taken)\n",
        "                pass\n",
        STORIES,
    ),
    Mutant(
        "a delay is lost over a restart",
        "        due_us = clock.time_us() + round(delay * 1_000_000)\n",
        "        due_us = clock.time_us()\n",
        STORIES,
    ),
    Mutant(
        "what was written ahead is not written with the sync",
        "        taken.end = end = self.position\n",
        "        taken.end = end = self.position\n"
        "        if self._ahead_to > taken.start:\n"
        "            taken.start, taken.buffers = self._ahead_to, taken.buffers[self._ahead :]\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint forgets attempts",
        '    for group, name, number, tries in state.get("tried", ()):\n',
        "    for group, name, number, tries in ():\n",
        STORIES,
    ),
    Mutant(
        "an acked message is tried again after an opening",
        "of(*key)\n        for low, high in acked.gaps(first, end):\n",
        "of(*key)\n        for low, high in [(first, end)]:\n",
        STORIES,
        (("        tried.drop(first, end)\n", "        pass\n"),),
    ),
    Mutant(
        "attempts outlive a seek",
        "        ledger.tried.pop(key, None)\n",
        "",
        STORIES,
    ),
    Mutant(
        "an attempt that does not count is counted",
        "            count = min(count, uncounted - 1)\n",
        "            count = min(count, uncounted)\n",
        STORIES,
    ),
    Mutant(
        "an advance counts no attempt",
        "            member.writer.count(member.tries.attempt(self._next, left), append)\n",
        "            member.writer.send(append)\n",
        STORIES,
    ),
    Mutant(
        "an advance does not ack what was handled",
        "[Acks((member.range_of(*handled),), 0)] if self.is_acked else []\n",
        "[]\n",
        STORIES,
    ),
    Mutant(
        "an attempt is not in the page",
        "        page.note(ranges, ledger.end, time_us())\n",
        "",
        STORIES,
    ),
    Mutant(
        "a full page drops what counts",
        "Tried([*self._uncovered(), *ranges])",
        "Tried(ranges)",
        tests="tests/consume/test_attempt_page.py",
    ),
    Mutant(
        "a page begins anew before the kernel has what it held",
        "        if self._until and journal.handed_to >= self._until:\n",
        "        if self._until:\n",
        tests="tests/consume/test_attempt_page.py",
    ),
    Mutant(
        "an opening leaves the page of the engine before",
        "                self.note((tried,), min(position, end), time_us)\n",
        "                pass\n",
        tests="tests/consume/test_attempt_page.py",
    ),
    Mutant(
        "attempts of the page outlive a seek",
        "                if self.attempts.noted:\n",
        "                if False:\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint does not write the attempts of the page",
        "                        self._writer.write_attempts()\n",
        "                        self._writer.attempts.begin_anew(self._ledger.end)\n",
        STORIES,
    ),
    Mutant(
        "a torn entry is believed",
        "        if crc32(body, seed) == crc:\n",
        "        if True:\n",
        tests="tests/consume/test_attempt_page.py",
    ),
    Mutant(
        "a ticket of an earlier attempt settles a later one",
        "        if count not in (ticket.attempt, ticket.attempt - what.uncounted):\n",
        "        if not count:\n",
        STORIES,
    ),
    Mutant(
        "what is lent comes at once after a restart",
        "[TriedRange(*where, offset, offset + 1, attempt, due_us)]",
        "[TriedRange(*where, offset, offset + 1, attempt, 0)]",
        STORIES,
    ),
)

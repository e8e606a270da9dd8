"""Bugs that public calls at random meet; the tier `calls` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

OF_CALLS = (
    Mutant(
        "a member enters a group that was deleted",
        "not in holds.ledger.subscriptions for topic in member.topics):\n"
        "            raise UnknownGroup(group, was_deleted=True)\n",
        "is None for topic in member.topics):\n"
        "            raise UnknownGroup(group, was_deleted=True)\n",
        "--tier calls --rounds 400",
    ),
    Mutant(
        "the newest segment is looked up twice",
        "        last = segments[-1]  # read once: another thread may roll meanwhile\n"
        "        if position >= last.base:\n            return last\n",
        "        if position >= segments[-1].base:\n            return segments[-1]\n",
        tests="tests/store/test_journal.py -k another_thread_rolls",
    ),
    Mutant(
        "a segment has an index before the next one is there",
        "            if self._journal.durable_to <= index.end:\n",
        "            if self._journal.durable_to < index.end:\n",
        tests="tests/recovery/test_kill_in_a_roll_beside_chores.py",
    ),
    Mutant(
        "what is claimed of a deleted topic is still there",
        "            queue.first = queue.next\n    for place in [",
        "            _ = queue.next\n    for place in [",
        tests="tests/consume/test_gone_meanwhile.py",
    ),
)

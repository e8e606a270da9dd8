"""Producers with a database of their own, killed at random moments: a few here, more by command."""

from __future__ import annotations

import random
from pathlib import Path

from crash_tests.real.bound import BOUND
from crash_tests.real.tally import Budget

NUMBER = 12


def test_a_killed_producer_leaves_the_row_and_its_messages_or_neither(tmp_path: Path) -> None:
    """And two commits that hope for the best are found out by the same kills."""
    seed = random.randrange(1 << 20)
    tally = BOUND.run(Budget(seed, rounds=NUMBER, directory=tmp_path, failures=tmp_path / "f"))
    assert not tally.failures, f"{seed=}: {tally.failures[0]}"
    assert (tally.rounds, tally.controls) == (NUMBER, 1)
    assert tally.promises > 0

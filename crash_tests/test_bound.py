"""Producers with a database of their own, hit at named steps and anywhere: a few here, more by
command.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash_tests.bound.tier import POSTGRES, SQLITE, Bound
from crash_tests.budget import Budget

NUMBER = 10


@pytest.mark.parametrize(("tier", "controls"), [(SQLITE, 2), (POSTGRES, 3)])
def test_the_row_and_its_messages_are_there_or_neither_whatever_is_killed(
    tier: Bound, controls: int, tmp_path: Path
) -> None:
    """And the ways in which people do it wrongly are found out by the same comparison."""
    seed = random.randrange(1 << 20)
    tally = tier.run(Budget(seed, rounds=NUMBER, directory=tmp_path, failures=tmp_path / "f"))
    if tally.not_run is not None:
        pytest.skip(str(tally))
    assert not tally.failures, f"{seed=}: {tally.failures[0]}"
    assert (tally.rounds, tally.controls) == (NUMBER, controls)
    assert tally.promises > 0

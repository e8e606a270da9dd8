"""Real file systems that are full, or read-only, or become so under a running engine: each
scenario once here, with other sizes by command.

Without root, or where a file system is missing, they are skipped, and say so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crash_tests.budget import Budget
from crash_tests.real.filesystem import why_not
from crash_tests.real.full import FULL, SCENARIOS, Scenario, play
from crash_tests.suite import SEED

EACH = [(kind, scenario) for kind, scenarios in SCENARIOS.items() for scenario in scenarios]
NAMES = [f"{kind}-{scenario.__name__}" for kind, scenario in EACH]


@pytest.mark.parametrize(("kind", "scenario"), EACH, ids=NAMES)
def test_each_scenario_holds_on_a_full_disk(kind: str, scenario: Scenario, tmp_path: Path) -> None:
    if reason := why_not(kind):
        pytest.skip(f"NOT RUN: {kind}: {reason}")
    assert play(kind, scenario, tmp_path, SEED) > 0


def test_a_disk_that_is_full_and_does_not_say_so_is_found_out(tmp_path: Path) -> None:
    """The control of the tier, which then runs its first scenario."""
    tally = FULL.run(Budget(7, rounds=1, directory=tmp_path, failures=tmp_path / "f"))
    if tally.not_run is not None:
        pytest.skip(str(tally))
    assert not tally.failures
    assert (tally.rounds, tally.controls) == (1, 1)

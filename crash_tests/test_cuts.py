"""Power cuts of real file systems: a few of each here, hundreds with `python -m crash_tests.real`.

Without root, or where a file system is missing, they are skipped, and say so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crash_tests.budget import Budget
from crash_tests.real.cut import Cuts
from crash_tests.real.lies import WRITES_NOT_SYNCED
from crash_tests.suite import SEED

CUTS = 4


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_acknowledged_calls_survive_a_power_cut(kind: str, tmp_path: Path) -> None:
    """The same comparison finds out a disk that lies, as a control."""
    tier = Cuts(kind, WRITES_NOT_SYNCED)
    budget = Budget(SEED, rounds=CUTS, directory=tmp_path, failures=tmp_path / "f")
    tally = tier.run(budget)
    if tally.not_run is not None:
        pytest.skip(str(tally))
    assert not tally.failures
    assert (tally.rounds, tally.controls) == (CUTS, 1)
    assert tally.promises > 0

"""How much of a search each run of the test suite does. The command does all of it.

    python -m crash_tests                                           every crash point
    FMQ_BUDGET=3 python3 tools/dev.py test crash_tests/test_commit.py   three times as many as usual
    FMQ_SEED=3 python3 tools/dev.py test crash_tests/test_commit.py     other ones

A test tries one of so many crash points, and the seed says which. It is the same seed in each run,
so a test that fails fails again.
"""

from __future__ import annotations

import os

BUDGET = float(os.environ.get("FMQ_BUDGET", "1"))
SEED = int(os.environ.get("FMQ_SEED", "11"))


def one_of(every: int) -> int:
    """Return how many cases there are for each that is tried, if it is one of `every` usually."""
    return max(1, round(every / BUDGET))

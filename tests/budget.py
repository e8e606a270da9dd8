"""How much is tried where a test draws its cases: a share in each run, more on request.

    FMQ_BUDGET=10 FMQ_SEED=3 python3 tools/dev.py test tests/test_damage.py

tries ten times as many cases, and draws other ones. A failure prints the seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random
from typing import TypeVar

Case = TypeVar("Case")

BUDGET = float(os.environ.get("FMQ_BUDGET", "1"))
SEED = int(os.environ.get("FMQ_SEED", "11"))
SEED_IS_GIVEN = "FMQ_SEED" in os.environ


def within_budget(count: int) -> int:
    """Return how many cases to try where `count` are tried in each run."""
    return max(1, round(count * BUDGET))


def draw(cases: Iterable[Case], count: int, test: str = "") -> list[Case]:
    """Return the share of `cases` that the budget allows, in their order; all if there are so few.

    `test` makes the draws of two tests differ.
    """
    everything = list(cases)
    chosen = Random(f"{SEED} {test}").sample(
        range(len(everything)), min(within_budget(count), len(everything))
    )
    return [everything[index] for index in sorted(chosen)]

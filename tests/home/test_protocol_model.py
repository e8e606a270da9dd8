"""The model of a home, in all interleavings: nothing is lost, and each rule is needed.

`python -m tests.home.protocol_model` searches more states, also of three machines.
"""

from __future__ import annotations

import pytest

from tests.home.protocol_model import FEWER, NEEDS_THREE, RULES, search

FOLLOWS = "an older term is dead"


def test_two_machines_lose_nothing() -> None:
    """With lost answers, appends of two pieces, and beats."""
    found = search(2, RULES, beats=1)
    assert found.broken is None, found
    assert found.states > 10_000


@pytest.mark.parametrize("rule", sorted(RULES - {NEEDS_THREE, FOLLOWS}))
def test_each_rule_is_needed(rule: str) -> None:
    """Without it, a promise is broken."""
    assert search(2, RULES - {rule}, late=True).broken is not None


def test_the_look_after_reading_is_needed_by_three_machines() -> None:
    assert search(3, (RULES - {NEEDS_THREE}) | FEWER).broken is not None


def test_the_term_follows_from_the_other_rules() -> None:
    """One entry at a time is on its way, so no older term comes after an OWN. The term is compared
    all the same: it costs nothing, and with two on their way it will be needed.
    """
    assert search(2, RULES - {FOLLOWS}, late=True).broken is None

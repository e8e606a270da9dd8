"""The model of a home, in all interleavings: nothing is lost, and each rule is needed.

`python -m tests.home.protocol_model` searches more states, also of three machines.
"""

from __future__ import annotations

import pytest

from tests.home.protocol_model import NEEDS_THREE, RULES, search, search_while_freeing


@pytest.mark.parametrize("fewer", ["answers", "one piece"])
def test_two_machines_lose_nothing(fewer: str) -> None:
    """With lost answers or with appends of two pieces, and beats."""
    found = search(2, RULES | {fewer}, beats=1)
    assert found.broken is None, found
    assert found.states > 10_000


@pytest.mark.parametrize("rule", sorted(RULES - {NEEDS_THREE}))
def test_each_rule_is_needed(rule: str) -> None:
    """Without it, a promise is broken."""
    found = search(2, (RULES - {rule}) | {"answers"}, late=True).broken
    assert found or search(2, (RULES - {rule}) | {"one piece"}, late=True).broken


def test_the_look_after_reading_is_needed_by_three_machines() -> None:
    """One has filled a slot that was freed, and the other reads beyond it."""
    found = search_while_freeing(RULES)
    assert found.broken is None, found
    assert found.states > 500
    assert search_while_freeing(RULES - {NEEDS_THREE}).broken is not None

"""The model of a home, in all interleavings: nothing is lost, and each rule is needed.

`python -m tests.home.protocol_model` searches more states, also of three machines.
"""

from __future__ import annotations

import pytest

from tests.home.protocol_model import (
    NEED_THREE,
    RULES,
    search,
    search_while_freeing,
    search_without_answer,
)


@pytest.mark.parametrize(("fewer", "beats"), [("answers", 1), ("one piece", 0)])
def test_two_machines_lose_nothing(fewer: str, beats: int) -> None:
    """With appends of two pieces and a beat, or with lost answers."""
    found = search(2, RULES | {fewer}, beats=beats)
    assert found.broken is None, found
    assert found.states > 10_000


@pytest.mark.parametrize("rule", sorted(RULES - NEED_THREE))
def test_each_rule_is_needed(rule: str) -> None:
    """Without it, a promise is broken."""
    found = search(2, (RULES - {rule}) | {"answers"}, late=True).broken
    assert found or search(2, (RULES - {rule}) | {"one piece"}, late=True).broken


def test_the_look_after_reading_is_needed_by_three_machines() -> None:
    """One has filled a slot that was freed, and the other reads beyond it."""
    found = search_while_freeing(RULES)
    assert found.broken is None, found
    assert found.states > 500
    assert search_while_freeing(RULES - {"look at the floor after reading"}).broken is not None


def test_the_look_before_a_refusal_is_needed_by_three_machines() -> None:
    """The second has counted and freed what the first has had no answer to, and the third has
    filled the slot again.
    """
    found = search_without_answer(RULES)
    assert found.broken is None, found
    assert found.states > 100
    found = search_without_answer(RULES - {"look at the floor before a refusal"})
    assert found.broken == "an append is there whose caller was told that it was not sent"

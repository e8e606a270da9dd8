"""A journal is shipped while the power fails. The place always has one state as a whole."""

from __future__ import annotations

from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.planted_in_copies import IN_COPIES
from crash_tests.shipped.story import Story
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_shipping_end_as_they_must() -> None:
    tally, states = Tally("shipped"), set[str]()
    for number in range(2):
        Groups("shipped", Story, torn=2, every=one_of(44)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 12


def test_a_piece_that_has_its_name_too_early_is_found() -> None:
    name = "the tier of shipping sees a piece that was named before it was durable"
    (mutant,) = [each for each in IN_COPIES if each.name == name]
    assert caught(mutant)

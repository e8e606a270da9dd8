"""People are erased while the power fails. Then all that was theirs is gone, or nothing is."""

from __future__ import annotations

import pytest

from crash_tests.erased.planted import OF_ERASING
from crash_tests.erased.story import Story
from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_erasing_end_as_they_must() -> None:
    tally, states = Tally("erased"), set[str]()
    for number in range(4):
        Groups("erased", Story, torn=4, every=one_of(20)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 25


@pytest.mark.parametrize(
    "name",
    [
        "records are overwritten before that is durable elsewhere",
    ],
)
def test_a_planted_bug_of_erasing_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_ERASING if each.name == name]
    assert caught(mutant)

"""Schedules are made, changed and published while the power fails."""

from __future__ import annotations

import pytest

from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.schedules.planted import OF_SCHEDULES
from crash_tests.schedules.story import Story
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_schedules_end_as_they_must() -> None:
    """One is in the night that has an hour twice, and one in the night that lacks an hour."""
    tally, states = Tally("schedules"), set[str]()
    for number in range(2):
        Groups("schedules", Story, torn=1, every=one_of(24)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 20


@pytest.mark.parametrize(
    "name",
    [
        "a schedule moves on, and its message follows in another append",
        "the next due time follows from the clock",
    ],
)
def test_a_planted_bug_of_schedules_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_SCHEDULES if each.name == name]
    assert caught(mutant)

"""Groups and topics are changed while the power fails."""

from __future__ import annotations

import pytest

from crash_tests.groups.planted import OF_GROUPS
from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_end_as_they_must() -> None:
    tally, states = Tally("groups"), set[str]()
    for number in range(10):
        Groups(every=one_of(16)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 120


@pytest.mark.parametrize("name", ["messages of a deleted topic are found again"])
def test_a_planted_bug_of_groups_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_GROUPS if each.name == name]
    assert caught(mutant)

"""Messages are sent under ids, again and again, while the power fails and segments are dropped."""

from __future__ import annotations

import pytest

from crash_tests.groups.tier import Groups
from crash_tests.ids.planted import OF_IDS
from crash_tests.ids.story import Story
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_ids_end_as_they_must() -> None:
    """The first four are of each kind: few ids are kept, and no sync is waited for."""
    tally, states = Tally("ids"), set[str]()
    for number in range(4):
        Groups("ids", Story, every=one_of(20)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 60


@pytest.mark.parametrize(
    "name", ["ids go with their segments", "a rolled back transaction has taken its ids"]
)
def test_a_planted_bug_of_ids_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_IDS if each.name == name]
    assert caught(mutant)

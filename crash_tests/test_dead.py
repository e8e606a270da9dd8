"""Messages are rejected, replayed and purged while the power fails and retention drops segments."""

from __future__ import annotations

import pytest

from crash_tests.dead.planted import OF_DEAD_LETTERS
from crash_tests.dead.story import Story
from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_dead_letters_end_as_they_must() -> None:
    tally, states = Tally("dead"), set[str]()
    for number in range(4):
        Groups("dead", Story, every=one_of(12)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 75


@pytest.mark.parametrize(
    "name", ["a dead letter without its ack", "dead letters go with their segments"]
)
def test_a_planted_bug_of_dead_letters_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_DEAD_LETTERS if each.name == name]
    assert caught(mutant)

"""A group tries messages and gives them back while processes are killed and the power fails."""

from __future__ import annotations

import pytest

from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally
from crash_tests.tries.planted import OF_TRIES
from crash_tests.tries.story import Story


def test_stories_of_attempts_end_as_they_must() -> None:
    tally, states = Tally("tries"), set[str]()
    for number in range(4):
        Groups("tries", Story, every=one_of(6)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 80


@pytest.mark.parametrize(
    "name", ["an attempt is lost over a kill", "a checkpoint forgets attempts"]
)
def test_a_planted_bug_of_attempts_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_TRIES if each.name == name]
    assert caught(mutant)

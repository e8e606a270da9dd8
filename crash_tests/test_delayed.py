"""Messages wait, are published, recalled and carried forward while the power fails."""

from __future__ import annotations

import pytest

from crash_tests.delayed.planted import OF_TIMERS
from crash_tests.delayed.story import Story
from crash_tests.groups.tier import Groups
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_messages_that_wait_end_as_they_must() -> None:
    tally, states = Tally("delayed"), set[str]()
    for number in range(2):
        Groups("delayed", Story, torn=2, every=one_of(16)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 60


@pytest.mark.parametrize(
    "name",
    [
        "a recall is not replayed",
        "what waits goes with its segment",
        "what is published forgets its transaction",
        "what retention writes again forgets its transaction",
    ],
)
def test_a_planted_bug_of_timers_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_TIMERS if each.name == name]
    assert caught(mutant)

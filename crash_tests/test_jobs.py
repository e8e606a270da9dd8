"""Jobs of rows while the power fails: each is there whole or not at all, and once."""

from __future__ import annotations

import pytest

from crash_tests.groups.tier import Groups
from crash_tests.jobs.planted import OF_JOBS
from crash_tests.jobs.story import Story
from crash_tests.mutants import caught
from crash_tests.suite import one_of
from crash_tests.tally import Tally


def test_stories_of_jobs_end_as_they_must() -> None:
    tally, states = Tally("jobs"), set[str]()
    for number in range(4):
        Groups("jobs", Story, torn=4, every=one_of(20)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 14


@pytest.mark.parametrize("name", ["the mark of a job moves after its rows are committed"])
def test_a_planted_bug_of_jobs_is_caught(name: str) -> None:
    (mutant,) = [each for each in OF_JOBS if each.name == name]
    assert caught(mutant)

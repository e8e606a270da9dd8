"""Machines that share a home are lost, and take over from each other. Nothing of it is lost."""

from __future__ import annotations

from crash_tests.budget import Budget
from crash_tests.groups.tier import Groups
from crash_tests.home.planted import OF_A_HOME
from crash_tests.home.story import Story
from crash_tests.home.workloads import HomeWorkloads
from crash_tests.mutants import caught
from crash_tests.suite import SEED, one_of
from crash_tests.tally import Tally


def test_stories_of_a_home_end_as_they_must() -> None:
    tally, states = Tally("home"), set[str]()
    for number in range(3):
        Groups("home", Story, torn=2, every=one_of(131)).tell(number, states, tally)
        assert not tally.failures, tally.failures[0].violation
    assert len(states) > 12


def test_workloads_over_a_home_keep_what_they_promise() -> None:
    tally = HomeWorkloads(every=one_of(61)).run(Budget(seed=SEED, rounds=6, first=20))
    assert not tally.failures, tally.failures[0].violation
    assert tally.states > 60


def test_an_own_that_is_removed_is_found() -> None:
    (mutant,) = [each for each in OF_A_HOME if each.name == "an OWN is removed"]
    assert caught(mutant)

"""Clients and a server: streams are cut, clients die, and the server dies or loses its power."""

from __future__ import annotations

from itertools import islice

import pytest

from crash_tests.mutants import caught
from crash_tests.transport.planted import BETWEEN_PROCESSES
from crash_tests.transport.story import Story, blows_of, draw, told

EVERY = 23  # of the blows, so many are left out for each that falls


@pytest.mark.parametrize("number", range(4))
def test_a_story_ends_as_it_does_without_the_blow(number: int) -> None:
    steps = draw(number)
    with_losses = 0
    for blow in islice(blows_of(steps), number, None, EVERY):
        try:
            server = told(steps, blow)
        except LookupError:
            continue  # the power cut has fewer losses
        assert server.left, "the blow did not fall"
        with_losses += blow.how == "power"
    assert with_losses > 0


def test_stories_have_steps_of_all_kinds() -> None:
    kinds = {step.kind for number in range(20) for step in draw(number)}
    assert kinds == {
        *("send", "many", "tx", "commit", "rollback"),
        *("ack", "ack in tx", "advance", "release", "take", "take for good", "reject", "replay"),
    }
    for number in range(20):
        assert Story(draw(number)).tell().died_at < 0
    awaited = {step.kind for number in range(60) for step in draw(number) if step.awaits}
    assert awaited == kinds


@pytest.mark.parametrize(
    "name",
    [
        "a reply before the sync",
        "a sequence is lost over a restart",
        "a loop forgets what it would have to wait to send",
    ],
)
def test_a_planted_bug_between_processes_is_caught(name: str) -> None:
    (mutant,) = [each for each in BETWEEN_PROCESSES if each.name == name]
    assert caught(mutant)

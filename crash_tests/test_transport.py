"""Clients and a server: streams are cut, clients die, and the server dies or loses its power."""

from __future__ import annotations

import pytest

from crash_tests.mutants import caught
from crash_tests.transport.looks import Looks
from crash_tests.transport.planted import BETWEEN_PROCESSES
from crash_tests.transport.story import AWAITED, Story, draw
from crash_tests.transport.tellings import Tellings

EVERY = 40  # of the blows that end alike, so many are left out for each that falls


@pytest.mark.parametrize("number", range(4))
def test_a_run_ends_alike_with_and_without_a_crash_or_lost_connection(number: int) -> None:
    tellings = Tellings(draw(number))
    with_losses = 0
    for alike in tellings.blows()[number::EVERY]:
        tellings.tell(alike[-1])
        with_losses += alike[-1].how == "power"
    assert with_losses > 0


@pytest.mark.parametrize("number", [0, 2])
def test_interruptions_that_leave_the_same_files_end_alike(number: int) -> None:
    """The tier tries one of each such set. This test tries two, and compares how they end."""
    tellings = Tellings(draw(number))
    several = [each for each in tellings.blows() if len(each) > 1]
    assert len(several) > 20
    for alike in several[number::EVERY]:
        one, other = (tellings.end_of(blow) for blow in (alike[0], alike[-1]))
        assert one.content == other.content, alike
        assert one.died_at == other.died_at, alike


def test_stories_have_steps_of_all_kinds() -> None:
    kinds = {step.kind for number in range(40) for step in draw(number).steps}
    assert kinds == {
        *("send", "many", "tx", "commit", "rollback"),
        *("ack", "ack in tx", "advance", "release", "take", "take for good", "reject", "replay"),
        *("hold", "settle", *AWAITED),
    }
    for number in range(20):
        assert Story(draw(number), Looks()).tell().died_at < 0
    awaited = {step.kind for number in range(200) for step in draw(number).steps if step.awaits}
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

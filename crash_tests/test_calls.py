"""Test a few rounds of random public calls in each manner, and that most of them can be
repeated.
"""

from __future__ import annotations

import pytest

from crash_tests.budget import Budget
from crash_tests.calls.story import MANNERS, Story
from crash_tests.calls.tier import Calls
from crash_tests.failure import Failure
from fmq.engines.engine import Engine


def test_random_runs_of_calls_keep_every_promise() -> None:
    tally = Calls().run(Budget(300, rounds=9))
    assert not tally.failures, tally.failures[0]
    assert tally.workloads == 9
    assert tally.states > 9


@pytest.mark.parametrize("manner", MANNERS[:2])
def test_a_seed_gives_the_same_run_again(manner: str) -> None:
    told = []
    for _ in range(2):
        story = Story(5, manner)
        story.tell()
        told.append((story.hands.said, [each.disk.fingerprint() for each in story.crashes]))
    assert told[0] == told[1]


def test_an_error_that_a_call_may_not_raise_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(engine: Engine) -> None:
        raise KeyError("g")

    monkeypatch.setattr(Engine, "sync", broken)
    found: list[Failure] = []
    tally = Calls().run(Budget(300, rounds=60, found=found.append))
    assert found == tally.failures
    assert "Engine.sync() raises KeyError" in str(found[0])
    assert "--tier calls --seed" in str(found[0])


@pytest.mark.parametrize(("seed", "manner"), [(64007, "in turns"), (7012, "clients")])
def test_seeds_that_failed_once_pass_now(seed: int, manner: str) -> None:
    """In one, a reader opened during a roll. In the other, a poll of asyncio never slept."""
    Story(seed, manner).tell()

"""A transaction is seen whole or not at all, wherever the power fails."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import abandon
from crash_tests.explore import Depth, Explorer
from crash_tests.seeds import generate
from crash_tests.suite import SEED, one_of

SEEDS = (2, 6)


@pytest.mark.parametrize(
    "name", ["send", "one-phase", "two-phase", "large", "ack", "window", "topics"]
)
def test_a_call_is_there_whole_or_not_at_all(name: str) -> None:
    """At an operation, every state that a power cut or a kill may leave keeps the promises."""
    tally = Explorer(WORKLOADS[name], SEED, Depth(full=0.1, every=one_of(8))).explore()
    assert not tally.failures, tally.failures[0]
    assert tally.states > tally.points


@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_workloads_keep_every_promise(seed: int) -> None:
    """Test the same for workloads that are made from seeds."""
    tally = Explorer(generate(seed), SEED, Depth(full=0.05, every=one_of(10))).explore()
    assert not tally.failures, f"{seed=}: {tally.failures[0]}"


@pytest.mark.parametrize("name", ["two-phase", "kill", "retention-after-a-pin"])
def test_a_workload_does_the_same_operations_every_time(name: str) -> None:
    """Otherwise a failure could not be repeated."""
    histories = []
    for _ in range(2):
        run = Explorer(WORKLOADS[name]).start()
        assert run.go()
        histories.append(run.disk.history)
        abandon(run.engine)
    assert histories[0] == histories[1]

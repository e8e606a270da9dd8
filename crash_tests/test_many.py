"""Many workloads: which are tried, counted and found does not depend on the number of processes."""

from itertools import islice

import pytest

from crash_tests.budget import Budget
from crash_tests.exhaustive import Exhaustive, workloads
from crash_tests.explore import Depth, Explorer
from crash_tests.failure import Failure
from crash_tests.many import Explorers, How
from crash_tests.memory import State
from crash_tests.sweep import sweep
from crash_tests.tally import Tally

FIRST = 300
SOME = 3


def swept(jobs: int, depth: Depth, rounds: int) -> tuple[Tally, list[str]]:
    found: list[Failure] = []
    budget = Budget(seed=1, jobs=jobs, found=found.append)
    chosen = islice(workloads(3, FIRST), rounds)
    tally = sweep("some", chosen, budget, depth, last_step_only=True)
    return tally, [str(each) for each in found]


def counts(tally: Tally) -> tuple[int, ...]:
    return tally.workloads, tally.points, tally.states, tally.deeper


def test_the_results_do_not_depend_on_the_number_of_processes() -> None:
    alone, found = swept(1, Depth(full=0.05), SOME)
    together, also_found = swept(2, Depth(full=0.05), SOME)
    assert counts(together) == counts(alone)
    assert alone.workloads == SOME
    assert alone.deeper > 12
    assert found == also_found == []


def test_processes_find_the_same_failures() -> None:
    """The disk does not sync. Each failure has the exception that it came from."""
    lying = Depth(full=0.0, honest=False)
    alone, found = swept(1, lying, 4)
    together, also_found = swept(2, lying, 4)
    assert found == also_found
    assert found
    assert counts(together) == counts(alone)
    assert together.failures[0].violation.__cause__ is not None


def test_the_states_of_a_workload_do_not_depend_on_earlier_workloads() -> None:
    """Random choices for a state depend on its disk, and not on what was tried before."""
    how = How(1, Depth(full=0.05), last_step_only=True)
    apart: set[State] = set()
    shared: set[State] = set()
    explorers = Explorers(how)
    recoveries = 0
    for workload in islice(workloads(3, FIRST), SOME):
        lone = Explorer(workload, 1, how.depth, since=len(workload.steps) - 1)
        recoveries += lone.explore().recoveries
        apart |= lone.take_fresh()
        explorer = explorers.explorer(workload)
        recoveries -= explorer.explore().recoveries
        shared |= explorer.take_fresh()
    assert shared == apart
    assert recoveries > 0, "or nothing was saved"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_goes_on_until_there_are_so_many_states(jobs: int) -> None:
    tally = Exhaustive().run(Budget(seed=1, first=FIRST, states=80, full=0.0, jobs=jobs))
    assert 80 <= tally.all_states < 250
    assert tally.note == f"go on with --from {FIRST + tally.workloads}"


def test_a_state_of_two_workloads_counts_once() -> None:
    once, _ = swept(1, Depth(full=0.0), 1)
    (workload,) = islice(workloads(3, FIRST), 1)
    twice = sweep("", [workload] * 2, Budget(seed=1), Depth(full=0.0), last_step_only=True)
    assert twice.all_states == once.all_states
    assert twice.points == 2 * once.points

"""Read-only engines that live beside a sound writer."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import abandon
from crash_tests.explore import Depth, Explorer
from crash_tests.follower import Follower
from crash_tests.run import Run
from crash_tests.suite import SEED, one_of
from crash_tests.threads.programs import PROGRAMS
from crash_tests.threads.tour import Tour


@pytest.mark.parametrize(
    "name",
    [
        "followed-over-a-roll",
        "followed-over-retention",
        "followed-while-appending",
        "followed-without-a-page",
    ],
)
def test_a_follower_sees_no_damage_wherever_a_writer_interrupts_it(name: str) -> None:
    """The writer goes on between two looks of the reader. `--preemptions 1` runs all schedules."""
    tour = Tour(PROGRAMS[name], SEED, Depth(full=0.0, chain=False))
    schedules = 0
    for _ in tour.all_of(1, one_of(12)):
        schedules += 1
        assert tour.failure is None, tour.failure
    assert schedules > 8


@pytest.mark.parametrize("name", WORKLOADS)
def test_followers_see_no_damage_beside_a_workload(name: str) -> None:
    """One follower looks before each operation of the disk, others more seldom. None keeps deleted
    files.
    """
    run = Explorer(WORKLOADS[name]).start()
    run.follow()
    assert run.go()
    run.close()
    shown = [follower.lanes() for follower in run.followers]
    assert shown[0] == shown[1] == shown[2]
    assert shown[0]
    run.unfollow()


def test_a_follower_that_is_left_behind_starts_over() -> None:
    """The segment that it read from last is dropped before it looks again."""
    run = Explorer(WORKLOADS["follower-left-behind"]).start()
    first: list[int] = []
    follower = Follower(run.disk, run.options, 1)

    def look(run: Run) -> None:
        if run.at in (4, 17):
            first.append(follower.lanes()["a", 0][0])

    assert run.go(look)
    abandon(run.engine)
    follower.close()
    assert first[-1] > first[0] + 4

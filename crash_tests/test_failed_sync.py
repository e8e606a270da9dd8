"""Each operation of a disk fails once with EIO, and the application goes on."""

from itertools import islice

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.faults import FaultTour
from crash_tests.orders import CHANGING, READING
from crash_tests.suite import SEED, one_of


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("two-phase", 16),
        ("roll", 16),
        ("checkpoint", 16),
        ("interval", 16),
        ("never", 40),  # without syncs each power cut leaves many states
        ("sync-twice", 16),
    ],
)
def test_a_failed_operation_costs_nothing_that_was_acknowledged(name: str, step: int) -> None:
    """Acknowledged calls survive a power cut after the engine was opened again, even if the file
    that failed keeps nothing more. Calls with an unknown outcome are whole or absent. One of many
    operations fails here, and each one in the tier.
    """
    tour = FaultTour(WORKLOADS[name])
    for order in islice(tour.all_orders(CHANGING), SEED % one_of(step), None, one_of(step)):
        tour.check(order)
    assert tour.unknown, "some call's outcome was unknown"


def test_a_removal_that_fails_leaves_no_hole() -> None:
    """The oldest segment that is still there is removed before any other, whatever failed."""
    tour = FaultTour(WORKLOADS["retention-after-a-pin"])
    for order in tour.all_orders(("remove",)):
        tour.check(order)


def test_a_failed_read_is_never_taken_for_the_end() -> None:
    """An error while reading is raised, and the next try finds everything."""
    tour = FaultTour(WORKLOADS["kill"])
    for order in islice(tour.all_orders(READING), SEED % one_of(12), None, one_of(12)):
        tour.check(order)

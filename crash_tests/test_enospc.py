"""The disk is full from some moment on, or at any one moment."""

from itertools import islice

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.faults import FaultTour
from crash_tests.suite import one_of


@pytest.mark.parametrize("name", ["two-phase", "roll", "relocation", "retention"])
def test_a_full_disk_is_an_error_and_no_damage(name: str) -> None:
    """A refused call is refused as a whole. What was acknowledged is there when the disk has room
    again.
    """
    tour = FaultTour(WORKLOADS[name])
    for order in islice(tour.persistent_full_disk(), 0, None, one_of(6)):
        tour.check(order)
    assert tour.orders

"""The disk is full from some moment on, or at any one moment."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.faults import FaultTour


@pytest.mark.parametrize("name", ["two-phase", "roll", "relocation", "retention"])
def test_a_full_disk_is_an_error_and_no_damage(name: str) -> None:
    """A refused call is refused as a whole. What was acknowledged is there when the disk has room
    again.
    """
    tour = FaultTour(WORKLOADS[name])
    for order in tour.persistent_full_disk():
        tour.check(order)
    assert tour.orders

"""The verdict reports no violation where every promise was kept."""

from itertools import islice

from crash_tests.explore import Depth, Explorer
from crash_tests.faults import FaultTour
from crash_tests.suite import SEED, one_of
from crash_tests.workload import Workload


def test_messages_that_an_undecided_transaction_holds_again_do_not_count_as_acked() -> None:
    """With sync="never" a roll back may be lost, together with the ack of messages that it had
    released.
    """
    workload = Workload(
        "an ack behind a roll back",
        [
            ["many", "a", 0, 2, 20],
            ["prepare", "t1", [["b", 0, 1, 20]], "g"],
            ["rollback", "t1"],
            ["consume", "g", 2, 2],
        ],
        {"sync": "never"},
    )
    tally = Explorer(workload, depth=Depth(full=0.2, every=one_of(3))).explore()
    assert not tally.failures, tally.failures[0]


def test_a_call_that_was_never_durable_may_be_gone_after_a_close() -> None:
    """The write failed after the call, which had promised nothing. Then the engine was closed."""
    workload = Workload("lazy", [["lazy", "b", 1, 20], ["reopen"], ["many", "b", 1, 2, 40]])
    tour = FaultTour(workload)
    for order in islice(tour.all_orders(("write",)), SEED % one_of(3), None, one_of(3)):
        tour.check(order)

"""Crashes inside retention, and what it may and must drop."""

from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import open_engine
from crash_tests.explore import Depth, Explorer
from crash_tests.suite import SEED, one_of
from crash_tests.workload import Workload
from fmq.arguments.options import Options
from fmq.testing import CrashDisk

FEW = Depth(full=0.02, states_max=10, chain=False, every=one_of(8))


def test_a_crash_inside_retention_never_leaves_a_hole() -> None:
    """Several segments are dropped at once. A power cut may keep their removals in any order."""
    tally = Explorer(WORKLOADS["retention-after-a-pin"], SEED, FEW).explore()
    assert not tally.failures, tally.failures[0]


def test_dropped_messages_stay_dropped_and_the_others_stay() -> None:
    """Offsets go on where they were, whichever part of the drop is lost."""
    tally = Explorer(WORKLOADS["retention"], SEED, FEW).explore()
    assert not tally.failures, tally.failures[0]


def test_segments_that_an_export_reads_are_kept_until_it_ends() -> None:
    """Crash during the export, and during the retention that waits for it."""
    tally = Explorer(WORKLOADS["export"], SEED, FEW).explore()
    assert not tally.failures, tally.failures[0]


def test_a_group_that_began_above_the_floor_does_not_pin_what_it_has_read() -> None:
    """Retention keeps what a group has not read. Messages dropped before it began are not
    among them.
    """
    options = Options(segment_bytes=2048, checkpoint_bytes=1024, retain_bytes=4096)
    engine = open_engine(CrashDisk(), options)
    for _ in range(10):
        engine.send("a", bytes(900))
    consumer = engine.consumer("a", group="g")
    for _ in range(20):
        engine.send("a", bytes(900))
        for delivery in consumer.poll():
            delivery.ack()
    assert engine.stats().segments <= 3, engine.stats().kept
    engine.close()


def test_messages_that_a_group_saw_before_its_first_ack_may_be_dropped() -> None:
    """It took a message in a transaction that was rolled back, so it had acked nothing."""
    workload = Workload(
        "rolled back, and begun later",
        [
            ["send", "a", 0, 1200],
            ["prepare", "t1", [["b", 0, 1, 20]], "h"],
            ["rollback", "t1"],
            *(["send", "a", 0, 1800] for _ in range(5)),
            ["consume", "h", 2, 1],
        ],
        {"retain_bytes": 4096},
    )
    tally = Explorer(workload, depth=Depth(full=0.0)).explore()
    assert not tally.failures, tally.failures[0]

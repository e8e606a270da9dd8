"""Who writes for a loop: the loop itself, unless its writes are slow."""

from __future__ import annotations

from fmq.loops.turn_writer import LOOKS_AGAIN, QUICK_SECONDS, Pace

SLOW = QUICK_SECONDS * 2


def test_the_loop_writes_while_its_writes_are_quick() -> None:
    pace = Pace()
    for _ in range(100):
        assert pace.is_quick()
        pace.note(QUICK_SECONDS)


def test_a_slow_write_between_quick_ones_changes_nothing() -> None:
    """On a busy machine a write is held up now and then, and not by the disk."""
    pace = Pace()
    for took in (SLOW, 0.0) * 10:
        assert pace.is_quick()
        pace.note(took)


def test_after_two_slow_writes_most_writes_leave_the_loop() -> None:
    """The committer writes LOOKS_AGAIN turns. Then the loop writes one itself, to see whether the
    disk is quick again.
    """
    pace = Pace()
    pace.note(SLOW)
    for _ in range(3):
        assert pace.is_quick()
        pace.note(SLOW)
        assert [pace.is_quick() for _ in range(LOOKS_AGAIN)] == [False] * LOOKS_AGAIN
    assert pace.is_quick()
    pace.note(0.0)
    assert pace.is_quick()

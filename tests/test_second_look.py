"""A reader whom retention overtakes between two steps looks again: what is gone is not damage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

import fmq
from fmq import ReadOnlyEngine
from fmq.engines import read_only_door
from fmq.errors import OffsetGone, UnknownTransaction
from fmq.machine.disk import Disk
from fmq.testing import CrashDisk, FakeClock
from tests.small import fill, opened, segments
from tests.store.lines import Lines, at_each_line


def drop_the_oldest(disk: Disk, clock: FakeClock) -> None:
    """Do what another process does meanwhile."""
    first = segments(disk)[0]
    clock.advance(100)
    with opened(disk, clock, retain_seconds=1) as engine:
        engine.send("other", b"x")
    assert first not in segments(disk)


@pytest.mark.parametrize(
    ("look", "gone"),
    [
        (lambda reader: reader.outcome("old"), UnknownTransaction),
        (lambda reader: reader.read("t"), OffsetGone),
    ],
)
def test_a_segment_dropped_during_a_read_is_gone_and_not_damaged(
    look: Callable[[ReadOnlyEngine], object], gone: type[Exception]
) -> None:
    """Drop it before any line of the call, its refresh included."""
    found = set()
    for lines in at_each_line(lambda at: Lines(read_only_door, at)):
        disk, clock = CrashDisk(), FakeClock()
        lines.act = partial(drop_the_oldest, disk, clock)
        with opened(disk, clock) as engine:
            with engine.transaction(tx_id="old") as tx:
                tx.send("t", b"first")
            for _ in range(3):
                fill(engine, "t")
        with fmq.open("data", read_only=True, disk=disk, clock=clock) as reader:
            try:
                lines.run(partial(look, reader))
                found.add("there")
            except gone:
                found.add("gone")
            assert reader.damage is None, lines.met
    assert found == {"there", "gone"}

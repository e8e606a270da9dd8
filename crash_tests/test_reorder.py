"""Writes that a device loses in any part: a few here, hundreds with `python -m crash_tests.real`.

Without root, or where a file system or FUSE is missing, it is skipped, and says so.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash_tests.budget import Budget
from crash_tests.real.blocks import SECTOR, Blocks, left_by, losses
from crash_tests.real.reorder import Reordered
from crash_tests.suite import SEED


def test_acknowledged_calls_survive_any_loss_of_a_device(tmp_path: Path) -> None:
    """The file system is on a device with a volatile cache. A store that does not sync is found."""
    budget = Budget(SEED, rounds=1, directory=tmp_path, failures=tmp_path / "f")
    tally = Reordered("ext4", cuts=1).run(budget)
    if tally.not_run is not None:
        pytest.skip(str(tally))
    assert not tally.failures
    assert tally.rounds >= 2
    assert tally.controls == 1


def test_a_device_keeps_what_was_flushed_and_may_keep_any_part_of_the_rest(tmp_path: Path) -> None:
    """From the chosen operation on, it takes and gives nothing."""
    durable, current, image = (tmp_path / name for name in ("durable", "current", "image"))
    for path in (durable, current):
        path.write_bytes(bytes(8 * SECTOR))
    blocks = Blocks(durable, current)
    blocks.write(0, b"f" * SECTOR)
    blocks.flush()
    blocks.write(SECTOR, b"1" * 2 * SECTOR)
    blocks.write(3 * SECTOR, b"2" * SECTOR)
    assert blocks.read(SECTOR, 1) == b"1"
    blocks.fail_at = blocks.operations + 1
    with pytest.raises(OSError, match="the power has failed"):
        blocks.flush()
    with pytest.raises(OSError, match="the power has failed"):
        blocks.read(0, 1)
    seen = set()
    for _, kept in losses(blocks.pending, random.Random(7), 100):
        left_by(durable, kept, image)
        data = image.read_bytes()
        assert data[:SECTOR] == b"f" * SECTOR
        assert data[4 * SECTOR :] == bytes(4 * SECTOR)
        seen.add(tuple(data[at * SECTOR] for at in (1, 2, 3)))
    one, two = b"12"
    # Nothing, all, either write without the other, and half of the first.
    assert {(0, 0, 0), (one, one, two), (one, one, 0), (0, 0, two), (one, 0, 0)} <= seen

"""Opening read-only beside an engine that rolls, checkpoints and drops at any moment."""

from __future__ import annotations

from pathlib import Path

import fmq
from tests.recovery.interrupted import InterruptedDisk

OPTIONS = fmq.Options(segment_bytes=8 * 1024, checkpoint_bytes=4 * 1024)


def test_a_segment_made_while_a_reader_opens_is_not_missing(tmp_path: Path) -> None:
    """The reader lists the names, then the writer rolls and takes a checkpoint, which names a
    segment that was not listed.
    """
    with fmq.open(tmp_path / "d", OPTIONS, background=False) as engine:
        for look in (1, 2, 3):

            def roll() -> None:
                engine.send_many("t", [b"x" * 1024] * 6)
                engine.send_many("t", [b"x" * 1024] * 6)
                engine.checkpoint()

            roll()
            disk = InterruptedDisk(look, roll)
            with fmq.open(tmp_path / "d", read_only=True, disk=disk) as reader:
                assert reader.damage is None
                assert reader.visible_to == engine.stats().durable_to, f"look {look}"

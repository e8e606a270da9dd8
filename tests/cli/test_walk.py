"""Walking beside a writer: it rolls, checkpoints and drops segments at any moment."""

from pathlib import Path

import pytest

import fmq
from fmq.posix import RealDisk
from fmq.recovery.walk import Walk
from tests.cli.conftest import SMALL
from tests.recovery.interrupted import InterruptedDisk


def test_segments_dropped_during_a_walk_are_skipped(segments: Path) -> None:
    """The segment that is open is read to its end."""
    directory = RealDisk().directory(str(segments), make=False)
    whole = [append[0].position for append in Walk(directory)]
    bases = sorted(int(file.stem) for file in segments.glob("*.seg"))
    walk = Walk(directory)
    appends = iter(walk)
    walked = [next(appends)[0].position]
    for base in bases[:2]:
        (segments / f"{base:020d}.seg").unlink()
    walked += [append[0].position for append in appends]
    directory.close()
    assert walked == [at for at in whole if not bases[1] <= at < bases[2]]
    assert walk.damage is None


@pytest.mark.parametrize("look", [1, 2])
def test_a_segment_sealed_during_a_walk_is_not_damaged(tmp_path: Path, look: int) -> None:
    """A newer checkpoint may prove bytes durable in a segment that the walk does not know."""
    path = tmp_path / "d"
    with fmq.open(path, SMALL, background=False) as engine:
        engine.send("t", b"x")

        def roll() -> None:
            for _ in range(3):
                engine.send("t", b"x" * 8000)
            engine.checkpoint()

        directory = InterruptedDisk(look, roll).directory(str(path), make=False)
        walk = Walk(directory)
        assert len(list(walk)) >= 1
        directory.close()
    assert (walk.damage, walk.unfinished) == (None, None)

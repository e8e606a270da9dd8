"""`fmq.check` puts what is wrong into its report; it raises only where nothing is to be checked."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq import Message
from fmq.errors import Damaged, NotAStore
from fmq.store.bytes.content import encode_messages
from fmq.store.bytes.kinds import Kind
from tests.recovery.planting import tail_of
from tests.small import CrashDisk, fill, flip, opened, remove, segments
from tests.store.samples import run_at


def test_a_sound_record_with_unreadable_columns_is_a_problem() -> None:
    """No engine writes one, but a call that reads its messages would raise."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"0")
    tail = tail_of(disk)
    bad = encode_messages([Message(b"body", key="k", headers={"a": "b"})], None)
    bad.columns = bad.columns[:-1] + b"\xff"
    tail.plant(tail.end, tail.record(run_at(bad, Kind.MESSAGE, "t", 0, 1, 1 << 60)))
    (problem,) = fmq.check("data", disk=disk).problems
    assert (problem.file, problem.position) == (tail.name, tail.base + tail.end)
    assert "UTF-8" in problem.what
    with opened(disk) as engine, pytest.raises(Damaged, match="UTF-8"):
        engine.read("t")


def test_a_directory_that_lost_all_segments_has_a_problem() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        fill(engine)
    remove(disk, *segments(disk))
    (problem,) = fmq.check("data", disk=disk).problems
    assert "missing" in problem.what


def test_an_unreadable_index_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with fmq.open(place, fmq.Options(segment_bytes=4096)) as engine:
        fill(engine)
        fill(engine)
    first, second, *_ = sorted(place.glob("*.idx"))
    first.unlink()
    first.mkdir()
    second.write_bytes(b"nonsense")
    problems = fmq.check(place).problems
    assert {problem.file for problem in problems} == {first.name, second.name}


def test_a_path_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        fmq.check(tmp_path / "nothing")
    # Where a backup should lie, or a mount is missing, "sound" would be believed.
    with pytest.raises(NotAStore, match="nothing to verify"):
        fmq.check(tmp_path)


def test_a_damaged_place_is_reported_once() -> None:
    """Both the look at a sealed segment and the replay meet it."""
    disk = CrashDisk()
    with opened(disk) as engine:
        positions = [engine.send("t", b"x" * 300).position for _ in range(40)]
    for name in segments(disk)[:2]:
        base = int(name[:20])
        flip(disk, name, next(each for each in positions if each > base + 500) - base + 20)
    problems = fmq.check("data", disk=disk).problems
    places = [(problem.file, problem.position) for problem in problems]
    assert len(places) == len(set(places)) == 2, problems
    assert places == sorted(places)

"""Segments grow with their journal, and decisions have room in segments of every size."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmq
from fmq.errors import StorageFull
from fmq.store.journal.segment import capacity_at
from fmq.testing import CrashDisk, FaultDisk
from fmq.testing.inside import inside
from tests.small import bodies, content, opened

FIRST, MOST = 2048, 16384
GROWS: dict[str, Any] = {"first_segment_bytes": FIRST, "segment_bytes": MOST}
MIB = 1 << 20


def sizes(disk: CrashDisk, suffix: str) -> list[int]:
    """The sizes of the files with a suffix, in the order of their names."""
    return [len(data) for name, data in sorted(content(disk).items()) if name.endswith(suffix)]


def files_of(path: Path) -> int:
    """Return how many bytes all files of a directory have."""
    return sum(each.stat().st_size for each in path.iterdir())


def test_a_store_of_a_few_messages_takes_at_most_two_mebibytes(tmp_path: Path) -> None:
    """With a transaction that is undecided, a retention, and all chores done."""
    with fmq.open(tmp_path / "d", fmq.Options(retain_seconds=3600.0), background=False) as engine:
        engine.send("orders", b"one", key="k")
        tx = engine.transaction(tx_id="T")
        tx.send("orders", b"two")
        tx.prepare()
        inside(engine).chores.attempt()
        engine.checkpoint()
        assert files_of(tmp_path / "d") < 2 * MIB
    assert files_of(tmp_path / "d") < 2 * MIB


@given(st.integers(0, 1 << 40), st.sampled_from([2048, 3000, 1 << 19]), st.integers(2048, 1 << 24))
def test_the_files_of_a_journal_take_at_most_twice_what_was_written(
    written: int, first: int, most: int
) -> None:
    """And a journal that has outgrown its largest segment gets no smaller ones any more."""
    capacity = capacity_at(written, first, most)
    assert min(first, most) <= capacity <= most
    assert capacity <= max(first, written)
    assert written < 2 * most or capacity == most


def test_segments_grow_up_to_the_largest() -> None:
    disk = CrashDisk()
    with opened(disk, **GROWS) as engine:
        for _ in range(70):
            engine.send("t", b"x" * 900)
        found = sizes(disk, ".seg")
        assert found[:5] == [2048, 2048, 4096, 8192, 16384]
        assert set(found[5:]) == {MOST}
        assert all(one <= other for one, other in pairwise(found))
        assert len(bodies(engine, "t")) == 70


def test_an_append_that_is_larger_than_the_next_segment_gets_one_of_its_size() -> None:
    disk = CrashDisk()
    with opened(disk, **GROWS) as engine:
        engine.send("t", b"x" * 10_000)
        assert sizes(disk, ".seg") == [2048, 16384]
        engine.send("t", b"y")
    with opened(disk, **GROWS) as engine:
        assert [len(body) for body in bodies(engine, "t")] == [10_000, 1]


def test_a_small_spare_is_kept_for_what_fits_it() -> None:
    """A large append does not throw it away."""
    disk = CrashDisk()
    with opened(disk, **GROWS) as engine:
        inside(engine).chores.attempt()
        assert sizes(disk, ".spare") == [2048]
        engine.send("t", b"x" * 10_000)
        assert sizes(disk, ".spare") == [2048]


@pytest.mark.parametrize(
    "sizes",
    [(10,) * 3, (700,) * 3, (1500,) * 3, (3000,) * 3, (5000,) * 3, (10, 10_000), (10, 20_000)],
)
@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_full_disk_refuses_no_decision_whatever_the_size_of_the_segments(
    sizes: tuple[int, ...], decision: Literal["commit", "rollback"]
) -> None:
    """Method: prepare at different sizes, let the disk be full, send until that is refused, decide
    all.
    """
    faults = FaultDisk(CrashDisk())
    with opened(faults, first_segment_bytes=FIRST, segment_bytes=65536) as engine:
        for number, size in enumerate(sizes):
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("t", bytes([number]) * size)
            tx.prepare()
            engine.send("other", b"x" * 700)
        for operation in ("create", "allocate"):
            faults.fail(operation, error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            for _ in range(100):
                engine.send("other", b"x" * 700)
        for number in range(len(sizes)):
            engine.decide(f"T{number}", decision, reason="r" * 1000)  # it fills what is left
        expected = [bytes([number]) * size for number, size in enumerate(sizes)]
        assert bodies(engine, "t") == (expected if decision == "commit" else [])


def test_small_spares_are_used_after_the_segments_have_grown() -> None:
    """Those of an earlier engine are not thrown away, and those that are too large are."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=MOST, first_segment_bytes=MOST) as engine:
        inside(engine).chores.attempt()
    assert sizes(disk, ".spare") == [MOST]
    with opened(disk, segment_bytes=4096) as engine:
        assert sizes(disk, ".spare") == []
        engine.send("t", b"x")

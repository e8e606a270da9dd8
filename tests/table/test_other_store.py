"""A part of a journal is read where its store is, or it is an error that names both stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fmq
from fmq.errors import FmqError
from fmq.table.fleet import see_all
from fmq.table.read import read_split
from fmq.table.schema import VIEWS, schema_of
from fmq.table.selection import EVERYTHING

SEGMENT_BYTES = 16 << 10


def fill(path: Path, rounds: int) -> str:
    """Make a journal of some segments; return its store as hex."""
    with fmq.open(path, fmq.Options(segment_bytes=SEGMENT_BYTES), background=False) as engine:
        for _ in range(rounds):
            engine.send_many("orders", [b"x" * 100] * 20)
    with fmq.open(path, read_only=True):
        (journal,) = see_all([str(path)])
    return journal.store.hex()


def another(path: Path) -> str | None:
    return fill(path, 40)


def a_shorter_one(path: Path) -> str | None:
    return fill(path, 1)


def an_empty_directory(path: Path) -> str | None:
    path.mkdir()
    return None


@pytest.mark.parametrize("permissive", [False, True])
@pytest.mark.parametrize("there", [another, a_shorter_one, an_empty_directory])
@pytest.mark.parametrize("view", VIEWS)
def test_another_store_at_the_planned_path_is_refused(
    tmp_path: Path, view: str, there: Callable[[Path], str | None], permissive: bool
) -> None:
    """In both modes the error names the host and both stores, and nothing is left out.

    Method: plan, put another directory in the place, and read each part as an executor does.
    """
    path = tmp_path / "shop"
    planned = fill(path, 40)
    (journal,) = see_all([str(path)])
    splits = journal.splits(EVERYTHING)
    assert len(splits) > 3
    shutil.move(path, tmp_path / "moved")
    found = there(path)
    for split in splits:
        with pytest.raises(FmqError) as caught:
            list(read_split(split, view, schema_of(view, None, fleet=False), permissive=permissive))
        assert type(caught.value).__name__ == "OtherStore"
        assert os.uname().nodename in str(caught.value)
        assert planned in str(caught.value)
        assert (found or "there is no journal") in str(caught.value)


@pytest.mark.parametrize("columns", [["topic", "queue", "offset"], ["body"]])
def test_a_copy_of_the_store_at_the_planned_path_is_read(
    tmp_path: Path, columns: list[str]
) -> None:
    """The store must be the same, not the file."""
    path = tmp_path / "shop"
    fill(path, 40)
    (journal,) = see_all([str(path)])
    shutil.move(path, tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", path)
    schema = schema_of("messages", columns, fleet=False)
    batches = [
        batch
        for each in journal.splits(EVERYTHING)
        for batch in read_split(each, "messages", schema)
    ]
    assert sum(batch.num_rows for batch in batches) == 800


def test_a_segment_with_a_damaged_header_gives_its_sound_rows(tmp_path: Path) -> None:
    """The checksum of each record shows that it belongs to the store."""
    path = tmp_path / "shop"
    fill(path, 40)
    (journal,) = see_all([str(path)])
    segment = path / f"{0:020d}.seg"
    data = bytearray(segment.read_bytes())
    data[20] ^= 1
    segment.write_bytes(data)
    schema = schema_of("messages", ["body"], fleet=False)
    batches = [
        batch
        for each in journal.splits(EVERYTHING)
        for batch in read_split(each, "messages", schema)
    ]
    assert sum(batch.num_rows for batch in batches) == 800

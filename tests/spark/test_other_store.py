"""An executor that has another store at the path fails its query or stream, in both modes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.errors import FmqError
from fmq.spark import DataSource
from fmq.table.schema import VIEWS

Rows = list[Any]


def fill(path: Path) -> None:
    with fmq.open(path, fmq.Options(segment_bytes=16 << 10), background=False) as engine:
        for _ in range(40):
            engine.send_many("orders", [b"x" * 100] * 20)


def planned_batch(path: Path, options: dict[str, str]) -> Callable[[], Rows]:
    source = DataSource({"path": str(path), **options})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    return lambda: [row for part in parts for row in reader.read(part)]


def planned_stream(path: Path, options: dict[str, str]) -> Callable[[], Rows]:
    source = DataSource({"path": str(path), "onGap": "skip", **options})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(json.loads(json.dumps(start)), reader.getDefaultReadLimit())
    parts = reader.partitions(start, end)
    return lambda: [row for part in parts for row in reader.read(part)]


CASES = [(planned_batch, view) for view in VIEWS]
CASES += [(planned_stream, view) for view in VIEWS if view != "damage"]


@pytest.mark.parametrize("mode", ["strict", "permissive"])
@pytest.mark.parametrize("there", [fill, Path.mkdir])
@pytest.mark.parametrize(("plan", "view"), CASES)
def test_a_task_that_finds_another_store_fails(
    tmp_path: Path,
    plan: Callable[[Path, dict[str, str]], Callable[[], Rows]],
    view: str,
    there: Callable[[Path], None],
    mode: str,
) -> None:
    """This includes a stream that may skip what retention dropped.

    Method: put another directory in the place between the plan and the tasks.
    """
    path = tmp_path / "shop"
    fill(path)
    read = plan(path, {"view": view, "mode": mode})
    shutil.move(path, tmp_path / "moved")
    there(path)
    with pytest.raises(FmqError) as caught:
        read()
    assert type(caught.value).__name__ == "OtherStore", caught.value

"""Small parts are read by one task, in their order; and where a stream begins. Without a JVM."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fmq
import fmq.table
from fmq.spark import DataSource


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some forty segments."""
    path = tmp_path_factory.mktemp("packed") / "shop"
    with fmq.open(path, fmq.Options(segment_bytes=16 << 10), background=False) as engine:
        for number in range(300):
            engine.send_many("orders", [b"%d" % number * 20] * 30)
    assert len(list(path.glob("*.seg"))) > 20
    return str(path)


def reader_of(path: str, **options: str) -> Any:
    source = DataSource({"path": path, **options})
    return source.reader(source.schema())


def rows(reader: Any, parts: Any) -> list[dict[str, Any]]:
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({}, 8, 12),
        ({"minPartitions": "1"}, 1, 1),
        ({"minPartitions": "1000"}, 21, 1000),
        ({"minPartitions": "1", "maxPartitionBytes": "1"}, 21, 1000),
        ({"minPartitions": "2", "maxPartitionBytes": "100000"}, 4, 20),
    ],
)
def test_parts_are_packed_and_lose_nothing(
    path: str, options: dict[str, str], low: int, high: int
) -> None:
    reader = reader_of(path, **options)
    parts = reader.partitions()
    assert low <= len(parts) <= high
    found = [(row["offset"], row["position"]) for row in rows(reader, parts)]
    whole = fmq.table.read(path, columns=["offset", "position"]).read_all().to_pylist()
    assert found == [tuple(row.values()) for row in whole]


def streamed(path: str, **options: str) -> list[int]:
    """Return the offsets that a stream without a checkpoint reads."""
    source = DataSource({"path": path, **options})
    reader = source.streamReader(source.schema())
    start = json.loads(json.dumps(reader.initialOffset()))
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return [row["offset"] for row in rows(reader, reader.partitions(start, end))]


def test_a_stream_begins_at_a_position(path: str) -> None:
    """At the append in which it lies, and at the beginning or the end where it lies outside."""
    whole = fmq.table.read(path, columns=["offset", "position"]).read_all().to_pylist()
    place = whole[1000]["position"]
    wanted = [row["offset"] for row in whole if row["position"] >= place]
    assert streamed(path, startingPosition=str(place)) == wanted
    assert streamed(path, startingPosition=str(place + 1)) == wanted
    assert streamed(path, startingPosition="0") == [row["offset"] for row in whole]
    assert streamed(path, startingPosition=str(1 << 40)) == []
    with pytest.raises(fmq.errors.BadOption, match="startingPosition"):
        streamed(path, startingPosition="soon")
    with pytest.raises(fmq.errors.BadOption, match="startingPosition='2026-13-01'"):
        streamed(path, startingPosition="2026-13-01")

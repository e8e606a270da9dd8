"""Many directories, large segments, and filters: which partitions Spark makes of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import fmq
from tests.spark.filled import fill
from tests.spark.reading import Reader


@pytest.fixture(scope="module")
def large(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Everything in one segment."""
    reader = Reader(spark, tmp_path_factory.mktemp("large") / "shop")
    fill(reader.path, segment_bytes=1 << 20)
    assert len(list(Path(reader.path).glob("*.seg"))) == 1
    return reader


def partitions(frame: DataFrame) -> int:
    return int(frame.rdd.getNumPartitions())


@pytest.mark.parametrize("view", ["messages", "records", "transactions"])
def test_a_large_segment_is_split_into_several_partitions(large: Reader, view: str) -> None:
    whole, split = large.view(view), large.view(view, splitBytes="15000")
    # Those that are undecided have a partition of their own.
    assert partitions(whole) == (2 if view == "transactions" else 1)
    assert partitions(split) > 3
    assert split.collect() == whole.collect()


def test_segments_without_chosen_rows_make_no_partition(shop: Reader) -> None:
    every = partitions(shop.view())
    assert every > 3
    assert partitions(shop.view(positionBefore="1000")) == 1
    assert partitions(shop.view(topic="orders", offsetBefore="100")) < every
    assert partitions(shop.view(topic="orders", offsetFrom="1000000")) <= 1
    assert shop.view(topic="nothing").count() == 0


def test_a_fleet_is_one_table_and_copies_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """Engine and host are columns. A pattern or a list names the directories."""
    for host, count in (("web1", 3), ("web2", 5)):
        path = tmp_path / f"host={host}" / "shop"
        path.parent.mkdir()
        with fmq.open(path, background=False) as engine:
            engine.send_many("orders", [host.encode()] * count)
    shutil.copytree(tmp_path / "host=web1" / "shop", tmp_path / "backup")
    fleet = spark.read.format("fmq").load(f"{tmp_path}/host=*/shop")
    assert fleet.columns[-3:] == ["engine", "host", "store"]
    counts = fleet.groupBy("engine", "host").count().collect()
    assert sorted(map(tuple, counts)) == [("shop", "web1", 3), ("shop", "web2", 5)]
    paths = [f"{tmp_path}/backup", f"{tmp_path}/host=web1/shop"]
    assert spark.read.format("fmq").load(paths).count() == 3

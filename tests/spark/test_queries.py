"""Each query of a DataFrame or view has its own rows, whatever was asked of it before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import fmq
import fmq.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
RARE, MANY = 10, 4000


@pytest.fixture(params=["false", "true"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Sessions with Spark's option for filters off and on: a user who leaves it has one of them."""
    fmq.spark.register(spark)
    before = spark.conf.get(PUSHDOWN)
    assert before is not None
    spark.conf.set(PUSHDOWN, request.param)
    yield spark
    spark.conf.set(PUSHDOWN, before)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A rare topic among many messages of another, over several segments."""
    path = str(tmp_path_factory.mktemp("queries") / "shop")
    with fmq.open(path, fmq.Options(segment_bytes=64 << 10), background=False) as engine:
        for part in range(RARE):
            engine.send("rare", b"%d" % part)
            engine.send_many("orders", [b"x" * 20] * (MANY // RARE))
    return path


@pytest.fixture
def frame(session: SparkSession, path: str) -> DataFrame:
    return session.read.format("fmq").load(path)


def test_a_filter_does_not_affect_other_queries(frame: DataFrame) -> None:
    rare, orders = frame.where("topic = 'rare'"), frame.where("topic = 'orders'")
    for _ in range(2):
        assert frame.count() == RARE + MANY
        assert rare.count() == RARE
        assert orders.count() == MANY
        assert rare.where("offset >= 5").count() == RARE - 5
    assert frame.count() == RARE + MANY


def test_a_union_with_a_filtered_part_of_itself_has_all_rows(frame: DataFrame) -> None:
    rare = frame.filter(col("topic") == "rare")
    assert rare.union(frame).count() == 2 * RARE + MANY
    assert frame.union(rare).count() == 2 * RARE + MANY
    assert rare.union(frame.filter("offset < 3")).count() == RARE + 6


def test_a_join_with_itself_compares_all_rows(frame: DataFrame) -> None:
    rare, orders = frame.where("topic = 'rare'"), frame.where("topic = 'orders'")
    pairs = rare.alias("a").join(orders.alias("b"), col("a.offset") == col("b.offset"))
    assert pairs.count() == RARE
    assert frame.alias("a").join(frame.alias("b"), ["topic", "offset"]).count() == RARE + MANY
    assert frame.join(rare.select("topic").distinct(), "topic").count() == RARE


def test_a_temporary_view_gives_each_query_its_own_rows(frame: DataFrame) -> None:
    frame.createOrReplaceTempView("queried")

    def number(query: str) -> int:
        [(found,)] = frame.sparkSession.sql(query).collect()
        return int(found)

    for _ in range(2):
        assert number("SELECT count(*) FROM queried WHERE topic = 'rare'") == RARE
        assert number("SELECT count(*) FROM queried") == RARE + MANY
    both = "(SELECT topic FROM queried WHERE topic = 'rare' UNION ALL SELECT topic FROM queried)"
    assert number(f"SELECT count(*) FROM {both}") == 2 * RARE + MANY
    inside = "(SELECT max(position) FROM queried WHERE topic = 'rare')"
    assert number(f"SELECT count(*) FROM queried WHERE position > {inside}") == MANY // RARE


def test_a_cached_filter_does_not_change_other_counts(frame: DataFrame) -> None:
    rare = frame.where("topic = 'rare'").cache()
    try:
        assert [rare.count(), frame.count(), rare.count()] == [RARE, RARE + MANY, RARE]
    finally:
        rare.unpersist()


def test_readers_with_different_options_do_not_share_rows(session: SparkSession, path: str) -> None:
    """One query may join several of them or put them together."""
    source = session.read.format("fmq")
    everything = source.load(path)
    rare = source.option("topic", "rare").load(path)
    few = source.option("offsetBefore", "3").load(path)
    assert [everything.count(), rare.count(), few.count()] == [RARE + MANY, RARE, 3]
    assert rare.union(everything).count() == 2 * RARE + MANY
    assert few.union(rare).union(few).count() == 3 + RARE + 3
    assert everything.join(rare, ["topic", "offset"]).count() == RARE
    assert rare.alias("a").join(rare.alias("b"), "offset").count() == RARE
    assert rare.where("offset = 1").union(rare).count() == 1 + RARE


def test_an_option_of_one_reader_does_not_apply_to_the_next(
    session: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "shop")
    with fmq.open(path) as engine:
        engine.send("a", b"1")
        engine.send("b", b"2")
    assert session.read.format("fmq").option("topic", "a").load(path).count() == 1
    assert session.read.format("fmq").load(path).count() == 2

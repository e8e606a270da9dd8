"""Small runs of the tools that try the sink, and whether they find what is planted.

`python tools/kill_spark_writes.py`, `python tools/kill_spark_delta.py` and `python -m
benchmarks.epoch` do it for longer, with drivers and a Java of their own.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import fmq
from benchmarks import epoch
from tools import dying_writes, kill_spark_delta, kill_spark_writes

ROWS = kill_spark_writes.ROWS_OF_A_BATCH
DIES = {"task": 0, "task, prepared": 1, "committer": 0, "committer, decided": 1, "slow task": 0}


def test_tasks_and_committers_that_die_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    kill_spark_writes.prepare(tmp_path, DIES, share=1)
    with fmq.open(tmp_path / "source") as source:
        source.send_many("in", [b"%d" % row for row in range(ROWS)])
    (tmp_path / "calm").touch()
    engine = kill_spark_writes.serving(tmp_path)
    try:
        dying_writes.drive(spark, tmp_path)
    finally:
        engine.kill()
    deaths = kill_spark_writes.lines_of(tmp_path, "deaths")
    assert {*deaths} == {"task, prepared", "committer, decided"}
    assert kill_spark_writes.judge(tmp_path, ROWS) == 0
    assert kill_spark_writes.judge(tmp_path, ROWS + 1) == 1  # one is lost


@pytest.mark.parametrize("planted", ["nothing", "doubled", "left behind", "a half batch"])
def test_the_judge_of_killed_writes_finds_what_is_planted(tmp_path: Path, planted: str) -> None:
    kill_spark_writes.prepare(tmp_path, DIES)
    with fmq.open(tmp_path / "sink") as sink:
        sink.send_many("out", [b"0", b"1"])
        if planted == "doubled":
            sink.send("out", b"1")
        if planted == "left behind":
            tx = sink.transaction()
            tx.send("out", b"2")
            tx.prepare()
    halves = int(planted == "a half batch")
    (tmp_path / "looks").write_text(f"0 2\n{halves} 2\n")
    assert kill_spark_writes.judge(tmp_path, 2) == int(planted != "nothing")


@pytest.mark.parametrize(
    ("rows", "code"), [([0, 1, 2], 0), ([0, 1], 1), ([0, 1, 2, 2], 1), ([0, 1, 2, 3], 1)]
)
def test_the_judge_of_a_killed_delta_table_finds_what_is_planted(
    tmp_path: Path, rows: list[int], code: int
) -> None:
    write_deltalake(tmp_path / "table", pa.table({"body": [b"%d" % row for row in rows]}))
    assert kill_spark_delta.judge(tmp_path, 3) == code


@pytest.mark.parametrize("planted", [False, True])
def test_a_large_batch_is_seen_whole_or_not_at_all(
    spark: SparkSession, tmp_path: Path, planted: bool
) -> None:
    """Planted is a row of the batch that is there before it."""
    if planted:
        with fmq.open(tmp_path / "sink") as sink:
            sink.send("out", b"0")
    assert epoch.run(spark, str(tmp_path), 3000, 64) == int(planted)


def test_a_batch_that_is_refused_is_told(spark: SparkSession, tmp_path: Path) -> None:
    assert epoch.run(spark, str(tmp_path), 12_000, 1) == 1

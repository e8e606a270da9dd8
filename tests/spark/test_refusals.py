"""What Spark shows somebody who named the wrong thing, or whose journal is damaged.

Spark wraps what its Python workers raise in a page of its own; our sentence is in it, whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader

from tests.spark.reading import Reader

READS: dict[str, tuple[Callable[[DataFrameReader, str], DataFrame], str]] = {
    "no such directory": (
        lambda spark, top: spark.load(f"{top}/nothing"),
        "NotAStore: {top}/nothing: No such file or directory",
    ),
    "a file": (
        lambda spark, top: spark.load(f"{top}/file"),
        "NotAStore: {top}/file: Not a directory",
    ),
    "an empty directory": (
        lambda spark, top: spark.load(f"{top}/empty"),
        "NotAStore: {top}/empty: no journal was ever begun here, so there is nothing to read.",
    ),
    "a directory of others": (
        lambda spark, top: spark.load(top),
        "Name the directory that a program gives to fmq.open(), or {top}/* for all of those in it.",
    ),
    "a pattern without matches": (
        lambda spark, top: spark.load(f"{top}/x*"),
        "NotAStore: {top}/x*: no directory is called so. Nothing was read.",
    ),
    "a missing segment": (
        lambda spark, top: spark.load(f"{top}/gap"),
        "Unsound: {top}/gap/00000000000000016384.seg, position 16384: the segment is missing.",
    ),
    "lost checkpoints": (
        lambda spark, top: spark.load(f"{top}/lost"),
        (
            "CheckpointLost: {top}/lost/checkpoint.0: it is missing; "
            "{top}/lost/checkpoint.1: its checksum does not match."
        ),
    ),
    "no path": (
        lambda spark, top: spark.load(),
        "BadOption: no directory was named. Nothing was read;",
    ),
    "paths that are no JSON": (
        lambda spark, top: spark.option("paths", "[oops").load(),
        "BadOption: paths='[oops': must be a list of texts in JSON",
    ),
    "a view": (
        lambda spark, top: spark.option("view", "mesages").load(f"{top}/shop"),
        "BadOption: there is no view 'mesages'; did you mean messages",
    ),
    "a column": (
        lambda spark, top: spark.option("columns", "topic, ofset").load(f"{top}/shop"),
        "BadOption: there is no column of messages 'ofset'; did you mean offset",
    ),
    "an option": (
        lambda spark, top: spark.option("colums", "topic").load(f"{top}/shop"),
        "BadOption: there is no option 'colums'; did you mean columns?",
    ),
    "a value": (
        lambda spark, top: spark.option("mode", "permisive").load(f"{top}/shop"),
        "BadOption: there is no value of mode 'permisive'; did you mean permissive?",
    ),
    "a number": (
        lambda spark, top: spark.option("splitBytes", "64 MB").load(f"{top}/shop"),
        "BadOption: splitBytes='64 MB': must be a whole number from 1 on.",
    ),
    "an offset": (
        lambda spark, top: spark.option("offsetFrom", "-1").load(f"{top}/shop"),
        "BadOption: offsetFrom='-1': must be a whole number from 0 on.",
    ),
    "a queue": (
        lambda spark, top: spark.option("queue", "1,x").load(f"{top}/shop"),
        "BadOption: queue='x': must be a whole number from 0 on to 2147483647.",
    ),
    "a time": (
        lambda spark, top: spark.option("timeFrom", "yesterday").load(f"{top}/shop"),
        "BadOption: timeFrom='yesterday': must be a time in ISO 8601, as 2026-01-31 or",
    ),
    "topics that are no JSON": (
        lambda spark, top: spark.option("topics", "orders").load(f"{top}/shop"),
        "BadOption: topics='orders': must be a list of texts in JSON",
    ),
    "offsets of records": (
        lambda spark, top: spark.options(view="records", offsetBefore=3).load(f"{top}/shop"),
        (
            "BadOption: the view 'records' has no option 'offsetBefore'. Nothing was read; the "
            "options that choose its rows are: topic, topics, queue, positionFrom, positionBefore, "
            "timeFrom, timeBefore."
        ),
    ),
    "a topic of transactions": (
        lambda spark, top: spark.options(view="transactions", topic="t").load(f"{top}/shop"),
        (
            "BadOption: the view 'transactions' has no option 'topic'. Nothing was read; the "
            "options that choose its rows are: positionFrom, positionBefore."
        ),
    ),
    "positions of damage": (
        lambda spark, top: spark.options(view="damage", positionFrom=1).load(f"{top}/shop"),
        (
            "BadOption: the view 'damage' has no option 'positionFrom'. Nothing was read; the "
            "options that choose its rows are: none."
        ),
    ),
    "a column of the user's schema": (
        lambda spark, top: spark.schema("ofset bigint").load(f"{top}/shop"),
        "BadOption: there is no column of messages 'ofset'; did you mean offset",
    ),
    "a type of the user's schema": (
        lambda spark, top: spark.schema("offset int").load(f"{top}/shop"),
        "BadOption: column 'offset' of view 'messages' is bigint, not int.",
    ),
}


@pytest.fixture(scope="module")
def top(shop: Reader, tmp_path_factory: pytest.TempPathFactory) -> str:
    top = tmp_path_factory.mktemp("refusals")
    shutil.copytree(shop.path, top / "shop")
    shutil.copytree(shop.path, top / "gap")
    (top / "gap" / "00000000000000016384.seg").unlink()
    shutil.copytree(shop.path, top / "lost")
    for slot in (top / "lost").glob("checkpoint.?"):
        slot.write_bytes(slot.read_bytes()[:-1] + b"?")
    (top / "empty").mkdir()
    (top / "file").write_text("x")
    return str(top)


@pytest.mark.parametrize("what", READS)
def test_an_error_of_spark_has_the_message_of_fmq(shop: Reader, top: str, what: str) -> None:
    read, sentence = READS[what]
    with pytest.raises(PySparkException) as caught:
        read(shop.spark.read.format("fmq"), top).collect()
    assert sentence.format(top=top) in str(caught.value)


def test_damage_is_refused_by_position_or_left_out_and_listed(top: str, shop: Reader) -> None:
    """Flip one bit. Strict mode refuses, permissive mode gives the rows before it and in other
    segments.
    """
    whole = shop.rows(columns="position,body,topic,offset")
    victim = max(row["position"] for row in whole[: len(whole) // 2] if len(row["body"]) > 4)
    damaged = Reader(shop.spark, Path(top) / "damaged")
    shutil.copytree(shop.path, damaged.path)
    file, place = place_of(damaged.path, victim)
    flip(file, place + 8 * 5 + 3)  # in its head: behind the position, before the bodies
    with pytest.raises(PySparkException) as caught:
        damaged.rows()
    assert f"{file}, position {victim}: the head's checksum does not match" in str(caught.value)
    assert "read what is sound in mode=permissive" in str(caught.value)

    (row,) = damaged.rows("damage")
    assert (row["segment"], row["path"]) == (file.name, damaged.path)
    assert row["position"] <= victim < row["position"] + row["skipped_bytes"]
    base = int(file.stem)
    capacity = file.stat().st_size
    expected = [row for row in whole if not victim <= row["position"] < base + capacity]
    found = damaged.rows(mode="permissive", columns="position,body,topic,offset")
    assert found == expected


def place_of(path: str, position: int) -> tuple[Path, int]:
    """The segment that holds `position`, and where in it that is."""
    file = max(file for file in Path(path).glob("*.seg") if int(file.stem) <= position)
    return file, position - int(file.stem)


def flip(file: Path, place: int) -> None:
    data: Any = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)

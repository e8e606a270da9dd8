#!/usr/bin/env python3
"""Measurements of devices, as a table of a lake: devices -> fmq -> Spark -> fmq -> Delta -> DuckDB.

    python tools/pipeline.py DIR                  # in a new directory; it needs Java
    python tools/pipeline.py DIR --without-spark  # DuckDB cleans, too

A second run goes on where the first one ended, as does one after a kill. At its end two audits
prove that each measurement is there once. docs/pipeline.md explains it.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

import fmq
import fmq.lake
import fmq.table

CLEAN = """
    SELECT concat(key, '/', get_json_object(cast(body AS string), '$.n')) AS key,
           get_json_object(cast(body AS string), '$.celsius') AS body
    FROM measured
    WHERE get_json_object(cast(body AS string), '$.celsius') IS NOT NULL
"""
CLEAN_HERE = """
    SELECT key || '/' || (decode(body)::JSON ->> 'n') AS key,
           encode(decode(body)::JSON ->> 'celsius') AS body
    FROM measured
    WHERE decode(body)::JSON ->> 'celsius' IS NOT NULL
"""
WARMEST = """
    SELECT split_part(key, '/', 1) AS device, count(*) AS times,
           round(avg(CAST(decode(body) AS double)), 2) AS celsius
    FROM messages WHERE topic = 'cleaned' GROUP BY device ORDER BY device
"""


def measure(shop: Path, devices: int = 4, each: int = 50) -> None:
    """Send what devices have measured, some of it useless. Ids make it safe to send it again."""
    random = Random(1)
    with fmq.open(shop) as engine:
        for number in range(each):
            for device in range(devices):
                celsius = None if random.random() < 0.1 else round(random.gauss(20, 3), 1)
                body = json.dumps({"n": number, "celsius": celsius}).encode()
                name = f"device-{device}"
                engine.send("measured", body, key=name, message_id=f"{name}/{number}")


def clean(spark: Any, shop: Path, checkpoint: Path) -> None:
    """Let Spark make `cleaned` of `measured`: each of its batches is one transaction."""
    from tools.spark_streams import ended

    with fmq.open(shop) as engine, engine.serve():
        rows = spark.readStream.format("fmq").option("topic", "measured").load(str(shop))
        rows.createOrReplaceTempView("measured")
        writer = spark.sql(CLEAN).writeStream.format("fmq").option("topic", "cleaned")
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        ended(lambda: writer.start(str(shop)))


def clean_here(shop: Path) -> None:
    """Do the same by DuckDB: what is new is one transaction with the position that it ends at."""
    import duckdb

    with fmq.open(shop) as engine:
        mark = engine.mark("clean")
        since = 0 if mark is None else mark.value
        measured = fmq.table.read(str(shop), topic="measured", since=since or None)
        cleaned: Any = duckdb.sql(CLEAN_HERE)
        rows = cleaned.to_arrow_table() if measured.end > since else None
        if rows is not None and rows.num_rows:
            fmq.table.write(engine, "cleaned", rows, mark=("clean", measured.end))


def warmest(lake: Path) -> list[tuple[Any, ...]]:
    """Ask DuckDB, or the engine that comes with deltalake, what the devices have measured."""
    import deltalake

    table = deltalake.DeltaTable(str(lake))
    try:
        import duckdb
    except ImportError:
        query = WARMEST.replace("decode(body)", "CAST(body AS varchar)")
        found = deltalake.QueryBuilder().register("messages", table).execute(query).read_all()
        return [tuple(row.values()) for row in pa.table(found).to_pylist()]
    messages = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    asked: Any = duckdb.sql(WARMEST)
    rows: list[tuple[Any, ...]] = asked.fetchall()
    return rows


def main(folder: Path, spark: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shop, lake = folder / "shop", folder / "lake"
    measure(shop)
    if spark is None:
        clean_here(shop)
    else:
        clean(spark, shop, folder / "checkpoint")
    fmq.lake.deliver(str(shop), str(lake), to="delta", once=True)
    for device, times, celsius in warmest(lake):
        print(f"{device}: {times} times, {celsius} °C")
    between = fmq.lake.audit_between(str(shop), "measured", "cleaned")
    table = fmq.lake.audit(str(shop), str(lake), to="delta")
    print(f"cleaned: {between.rows} rows of {between.jobs} jobs, {between.wrong} wrong")
    print(f"lake: {table.rows} rows, {table.wrong} wrong")
    assert between.ok and table.ok


if __name__ == "__main__":
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--without-spark", action="store_true")
    args = parser.parse_args()
    if args.without_spark:
        main(args.folder, None)
    else:
        import fmq.spark

        session = fmq.spark.session("pipeline", spark__ui__enabled="false")
        session.sparkContext.setLogLevel("ERROR")
        main(args.folder, session)
        session.stop()

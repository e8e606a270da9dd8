#!/usr/bin/env python3
"""Measurements of devices, as a table of a lake: devices -> fmq -> Spark -> fmq -> Delta -> DuckDB.

    python tools/pipeline.py DIR                  # in a new directory; it needs Java

A second run goes on where the first one ended, as does one after a kill. At its end two audits
prove that each measurement is there once. docs/pipeline.md explains it.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

import fmq
import fmq.lake
import fmq.spark

CLEAN = """
    SELECT concat(key, '/', get_json_object(cast(body AS string), '$.n')) AS key,
           get_json_object(cast(body AS string), '$.celsius') AS body
    FROM measured
    WHERE get_json_object(cast(body AS string), '$.celsius') IS NOT NULL
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
    with fmq.open(shop) as engine, engine.serve():
        rows = spark.readStream.format("fmq").option("topic", "measured").load(str(shop))
        rows.createOrReplaceTempView("measured")
        writer = spark.sql(CLEAN).writeStream.format("fmq").option("topic", "cleaned")
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start(str(shop)).awaitTermination()


def warmest(lake: Path) -> list[tuple[Any, ...]]:
    """Ask DuckDB, or the engine that comes with deltalake, what the devices have measured."""
    import deltalake

    table = deltalake.DeltaTable(str(lake))
    query = """
        SELECT split_part(key, '/', 1) AS device, count(*) AS times,
               round(avg(CAST(CAST(body AS varchar) AS double)), 2) AS celsius
        FROM messages WHERE topic = 'cleaned' GROUP BY device ORDER BY device
    """
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        found = deltalake.QueryBuilder().register("messages", table).execute(query).read_all()
        return [tuple(row.values()) for row in pa.table(found).to_pylist()]
    query = query.replace("CAST(body AS varchar)", "decode(body)")
    answer: list[tuple[Any, ...]] = (
        duckdb.from_arrow(table.to_pyarrow_table()).query("messages", query).fetchall()
    )
    return answer


def main(folder: Path, spark: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shop, lake = folder / "shop", folder / "lake"
    measure(shop)
    clean(spark, shop, folder / "checkpoint")
    fmq.lake.deliver(str(shop), str(lake), to="delta", once=True)
    for device, times, celsius in warmest(lake):
        print(f"{device}: {times} times, {celsius} °C")
    between = fmq.lake.audit_between(str(shop), "measured", "cleaned")
    table = fmq.lake.audit(str(shop), str(lake), to="delta")
    print(f"cleaned: {between.rows} rows of {between.jobs} batches, {between.wrong} wrong")
    print(f"lake: {table.rows} rows, {table.wrong} wrong")
    assert between.ok and table.ok


if __name__ == "__main__":
    session = fmq.spark.session("pipeline", spark__ui__enabled="false")
    session.sparkContext.setLogLevel("ERROR")
    main(Path(sys.argv[1]), session)
    session.stop()

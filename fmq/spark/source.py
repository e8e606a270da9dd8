"""What Spark is told of fmq: `spark.dataSource.register(fmq.spark.DataSource)`.

Spark pickles it and makes its readers in processes of its own: one that plans, on the driver's
machine, and those that read. So nothing here is kept but options.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource as SparkDataSource
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from fmq.spark.filters import wanted_by
from fmq.spark.options import ReadOptions, parse
from fmq.spark.part import Part
from fmq.spark.stream import StreamReader
from fmq.spark.types import arrow_schema, spark_schema
from fmq.spark.worker import spare_collections
from fmq.table.fleet import is_fleet, see_all
from fmq.table.read import read_split, told_batch, told_rows
from fmq.table.schema import schema_of
from fmq.table.wanted import EVERYTHING, Wanted

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# Spark refuses a reader that takes filters unless this option is on, and nothing but the module
# that it plans in tells whether it is.
PUSHING_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"


class DataSource(SparkDataSource):
    """Journals as tables: `spark.read.format("fmq").option("view", ...).load("shop")`."""

    @classmethod
    def name(cls) -> str:
        session = SparkSession.getActiveSession()
        if session is not None and session.conf.get(PUSHDOWN, "false") != "true":
            warnings.warn(
                f"{PUSHDOWN} is off, so filters do not spare fmq reading segments that hold none "
                f'of the rows. spark.conf.set("{PUSHDOWN}", "true") turns it on, and '
                "fmq.spark.register(spark) does both.",
                stacklevel=3,
            )
        return "fmq"

    def schema(self) -> StructType:
        options = parse(self.options)
        columns = schema_of(options.view, options.columns, fleet=is_fleet(options.paths))
        return spark_schema(columns, options.view)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = PushingReader if PUSHING_MODULE in sys.modules else Reader
        return kind(parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(parse(self.options), schema)


class Reader(DataSourceReader):
    """Plans a read on the driver, and does a part of it on an executor."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted: Wanted = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        options, found = self._options, list[InputPartition]()
        arrow_schema(options.view, self._schema)  # refused here, before anything runs
        for journal in see_all(options.paths, permissive=options.permissive):
            splits = journal.splits(
                self._wanted, lanes=options.view == "messages", split_bytes=options.split_bytes
            )
            found += map(Part, splits)
            if rows := told_rows(journal, options.view, permissive=options.permissive):
                found.append(Part(journal.whole(), rows))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())  # Spark's own, when there is nothing to read
        spare_collections()
        schema = arrow_schema(self._options.view, self._schema)
        if partition.rows is not None:
            return iter((told_batch(partition.split, partition.rows, schema),))
        return read_split(
            partition.split,
            self._options.view,
            schema,
            self._wanted,
            permissive=self._options.permissive,
        )


class PushingReader(Reader):
    """The same, for a session that pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._wanted = wanted_by(filters)
        # Spark applies all of them itself, too: what is left of a segment is not exact.
        return filters


def register(spark: Any) -> None:
    """Have `spark` know the format "fmq", and push filters down to it."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(DataSource)

"""The data source that Spark registers: `spark.dataSource.register(fmq.spark.DataSource)`.

Spark pickles it and makes its readers in processes of its own: one that plans, on the driver's
machine, and those that read. So nothing here is kept but options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource as SparkDataSource
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from fmq.spark.options import ReadOptions, parse
from fmq.spark.part import SparkPart, packed
from fmq.spark.stream import StreamReader
from fmq.spark.types import arrow_schema, spark_schema
from fmq.spark.worker import spare_collections
from fmq.spark.write_options import parse_write
from fmq.spark.writers import BatchWriter, StreamWriter
from fmq.table.fleet import is_fleet, see_all
from fmq.table.read import read_split, told_batch, told_rows
from fmq.table.schema import names_value, schema_of
from fmq.table.split import Split
from fmq.table.value_column import value_type


class DataSource(SparkDataSource):
    """Journals as tables: `spark.read.format("fmq").option("view", ...).load("shop")`."""

    @classmethod
    def name(cls) -> str:
        return "fmq"

    def schema(self) -> StructType:
        options = parse(self.options)
        value = None
        if names_value(options.view, options.columns):
            seen = see_all(options.paths, permissive=options.permissive)
            value = value_type(seen, options.wanted.topics)
        fleet = is_fleet(options.paths)
        columns = schema_of(options.view, options.columns, fleet=fleet, value=value)
        return spark_schema(columns, options.view)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SplitReader(parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(parse_write(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(parse_write(self.options, streaming=True), schema, overwrite)


class SplitReader(DataSourceReader):
    """Plans a read on the driver, and reads a part of it on an executor.

    It takes no filters from Spark: Spark keeps those of one query with the DataFrame, and hands
    the rows that they leave to the next query, too. The reader's options choose rows instead.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options, splits, told = self._options, list[Split](), list[InputPartition]()
        # a wrong schema is refused here, before anything runs
        arrow_schema(options.view, self._schema)
        undecided = options.view == "transactions"
        seen = see_all(options.paths, permissive=options.permissive, undecided=undecided)
        for journal in seen:
            splits += journal.splits(
                options.wanted, lanes=options.view == "messages", split_bytes=options.split_bytes
            )
            if rows := told_rows(journal, options.view, permissive=options.permissive):
                told.append(SparkPart([journal.whole()], rows))
        return [*packed(splits, options.partition_bytes, options.partitions_min), *told]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SparkPart):
            return iter(())  # Spark passes a partition of its own when there is nothing to read
        spare_collections()
        schema = arrow_schema(self._options.view, self._schema)
        if partition.rows is not None:
            told = told_batch(partition.splits[0], partition.rows, schema, self._options.wanted)
            return iter((told,))
        options = self._options
        what: Any = options.view, schema, options.wanted
        return (
            batch
            for split in partition.splits
            for batch in read_split(split, *what, permissive=options.permissive)
        )


def register(spark: Any) -> None:
    """Register the format "fmq" with `spark`."""
    spark.dataSource.register(DataSource)

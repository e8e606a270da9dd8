"""The part of a read that one Spark task does."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from fmq.table.records import RecordRow
from fmq.table.split import Split


class SparkPart(InputPartition):
    """One split, or the rows of a journal that belong to no split."""

    def __init__(self, split: Split, rows: tuple[RecordRow, ...] | None = None) -> None:
        super().__init__(None)
        self.split = split
        self.rows = rows

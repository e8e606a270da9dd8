"""The part of a read that one Spark task does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import InputPartition

from fmq.table.records import RecordRow
from fmq.table.split import Split


class SparkPart(InputPartition):
    """Splits that follow each other, or the rows of a journal that belong to no split."""

    def __init__(self, splits: Sequence[Split], rows: tuple[RecordRow, ...] | None = None) -> None:
        super().__init__(None)
        self.splits = tuple(splits)
        self.rows = rows


def packed(splits: Sequence[Split], bytes_max: int, parts_min: int) -> Iterator[SparkPart]:
    """Yield parts of at most `bytes_max`, in their order: a task for each small segment would cost
    more than it reads. There are `parts_min`, if there are so many splits.
    """
    limit = min(bytes_max, sum(map(_size, splits)) // parts_min)
    waiting: list[Split] = []
    for split in splits:
        if waiting and sum(map(_size, waiting)) + _size(split) > limit:
            yield SparkPart(waiting)
            waiting = []
        waiting.append(split)
    if waiting:
        yield SparkPart(waiting)


def _size(split: Split) -> int:
    return split.end - split.start

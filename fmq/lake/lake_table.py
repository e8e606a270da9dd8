"""What a delivery asks of a table, and which table an address and a format name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import pyarrow as pa

from fmq.errors import BadOption, ExtraMissing
from fmq.lake.lake_batch import LakeBatch
from fmq.lake.table_topics import topics_said
from fmq.table.schema import check_choice

FORMATS = ("delta", "iceberg", "parquet")


class LakeTable(Protocol):
    """A table that rows are added to, with the position of each journal in the same commit."""

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        """Look at the table as it is now, and make it if it does not exist. Return for each of
        these stores the position up to which the table has it. Leave out stores of which the table
        has nothing.
        """

    def append(self, batch: LakeBatch) -> None:
        """Add the rows of `batch`, and where it ends, in one commit on what `positions` has seen.

        Raises TableMoved, and adds nothing, if the table has got another position since.
        """

    def close(self) -> None:
        """Release what is open."""


@runtime_checkable
class CanCompact(Protocol):
    """What a table may have, too: small files that can be merged."""

    def compact(self, least: int) -> int:
        """Put fewer and larger files in the place of small ones, if there are at least so many.
        Rows and positions stay. Return how many files there were before; 0 if nothing was done,
        for example because another program was first.
        """


def table_at(
    url: str,
    to: str,
    schema: pa.Schema,
    options: Mapping[str, str] | None = None,
    topics: Iterable[str] | None = None,
) -> LakeTable:
    """Return the table of the format `to` at `url`, for rows of `schema`, by default of all topics.
    `options` go to the library that writes it, such as the keys of an object store.

    Raises BadOption for a format or an address that cannot be written, and ExtraMissing.
    """
    check_choice("format", to, FORMATS)
    given, said = dict(options or {}), topics_said(topics)
    if to == "delta":
        try:
            from fmq.lake.delta_table import DeltaLakeTable
        except ImportError as error:
            raise ExtraMissing("a delivery into Delta", "deltalake", "delta") from error
        return DeltaLakeTable(url, schema, given, said)
    if to == "iceberg":
        try:
            from fmq.lake.iceberg_table import IcebergTable
        except ImportError as error:
            raise ExtraMissing("a delivery into Iceberg", "pyiceberg", "iceberg") from error
        return IcebergTable(url, schema, given, said)
    from fmq.lake.parquet_folder import ParquetFolder

    if given:
        raise BadOption(f"{', '.join(given)}: a folder of Parquet files takes no options.")
    return ParquetFolder(url, schema, said)

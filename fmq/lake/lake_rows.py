"""What an audit asks of a table, and which reader an address and a format name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from fmq.errors import BadOption, ExtraMissing
from fmq.lake.lake_table import FORMATS
from fmq.lake.table_part import TablePart
from fmq.table.schema import check_choice


class LakeRows(Protocol):
    """A table as it was when it was opened. Commits behind that do not change it."""

    @property
    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""

    @property
    def topics(self) -> frozenset[str] | None:
        """Return the topics that the table has; None: all."""

    def position(self, store: str) -> int | None:
        """Return the position up to which the table says that it has the journal of `store`."""

    def count(self, part: TablePart | None = None) -> int:
        """Return how many rows a part has, by default the whole table."""

    def stores(self) -> set[str]:
        """Return the stores of which there are rows."""

    def read(self, part: TablePart, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows of a part, in any order."""

    def close(self) -> None:
        """Release what is open."""


def rows_at(url: str, to: str, options: Mapping[str, str] | None = None) -> LakeRows:
    """Return the table of the format `to` at `url`, to be read. `options` go to its library.

    Raises OtherTable if there is none, BadOption and ExtraMissing.
    """
    check_choice("format", to, FORMATS)
    given = dict(options or {})
    if to == "delta":
        try:
            from fmq.lake.delta_table import DeltaRows
        except ImportError as error:
            raise ExtraMissing("an audit of Delta", "deltalake", "delta") from error
        return DeltaRows(url, given)
    if to == "iceberg":
        try:
            from fmq.lake.iceberg_table import IcebergRows
        except ImportError as error:
            raise ExtraMissing("an audit of Iceberg", "pyiceberg", "iceberg") from error
        return IcebergRows(url, given)
    from fmq.lake.parquet_folder import ParquetRows

    if given:
        raise BadOption(f"{', '.join(given)}: a folder of Parquet files takes no options.")
    return ParquetRows(url)

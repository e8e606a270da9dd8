"""Journals as Arrow tables, without Spark or Java; needs the extra `arrow`."""

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"{error.name} is not installed, and reading journals as tables needs it: "
        "pip install 'fmq-engine[arrow]'. Nothing else of fmq does.",
        name=error.name,
    ) from error

from fmq.intake import BadRows, JobPassed, JobUnsure, RowsWritten, write
from fmq.table.pins import pinned
from fmq.table.read import read
from fmq.table.read_range import ReadRange
from fmq.table.table_errors import OtherStore, Outrun, Overtaken, PositionBeyond
from fmq.table.table_reader import TableReader

__all__ = [
    "BadRows",
    "JobPassed",
    "JobUnsure",
    "OtherStore",
    "Outrun",
    "Overtaken",
    "PositionBeyond",
    "ReadRange",
    "RowsWritten",
    "TableReader",
    "pinned",
    "read",
    "write",
]

"""The errors of an export."""

from __future__ import annotations

from fmq.errors import StorageError, UsageError
from fmq.table.table_errors import Overtaken


class NotAnExport(StorageError):
    """The directory to export to holds files that no export made."""


class OtherExport(UsageError):
    """The directory to export to holds an export of another view, format or journal."""


class NotText(UsageError):
    """A body was to be exported as text and is not valid text."""


class ExportFailed(StorageError):
    """The files could not be written. Files of earlier exports are unchanged."""


class Behind(Overtaken):
    """Retention has dropped positions that were not exported yet."""

    def __init__(self, path: str, reached: int, first: int) -> None:
        super().__init__(
            path,
            f"the journal from position {reached} up to {first}, not exported yet,",
            "Nothing was written. --on-gap skip (on_gap='skip') goes on behind the gap and notes "
            "it; else export more often",
        )
        self.reached = reached
        self.first = first

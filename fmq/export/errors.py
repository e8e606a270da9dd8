"""What can go wrong between a journal and the files that it is exported to."""

from __future__ import annotations

from fmq.errors import StorageError, UsageError
from fmq.table.errors import Overtaken


class NotAnExport(StorageError):
    """The place to export to holds something that no export made."""


class OtherExport(UsageError):
    """The place to export to holds an export of other things, or in another form."""


class NotText(UsageError):
    """A body was to be written as text and is none."""


class ExportFailed(StorageError):
    """The files could not be written. What was exported before is unchanged."""


class Behind(Overtaken):
    """Retention was faster than the exports: positions are gone that none of them has."""

    def __init__(self, path: str, reached: int, first: int) -> None:
        super().__init__(
            path,
            f"the journal from position {reached} up to {first}, not exported yet,",
            "Nothing was written. --on-gap skip (on_gap='skip') goes on behind the gap and notes "
            "it; else export more often",
        )
        self.reached = reached
        self.first = first

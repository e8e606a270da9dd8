"""The errors of a delivery."""

from __future__ import annotations

from fmq.errors import StorageError, UsageError


class TableMoved(StorageError):
    """Another writer has committed since the table was looked at, so this commit was refused.
    Nothing of it is in the table: look again.
    """

    def __init__(self, url: str, reason: object = "another commit was first") -> None:
        super().__init__(
            f"{url}: the table refused a commit: {reason}. Nothing of it is in the table; its "
            "position has to be read again."
        )
        self.url = url


class OtherTable(UsageError):
    """The table is not one to which these rows can be added."""

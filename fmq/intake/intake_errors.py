"""The errors of a job that writes rows."""

from __future__ import annotations

from fmq.errors import TransactionError, UsageError


class BadRows(UsageError):
    """The columns of the rows are not those of messages, or a value is missing."""


class JobPassed(TransactionError):
    """The mark of a job is already beyond its value: a later job was committed."""

    def __init__(self, mark: str, value: int, found: int) -> None:
        super().__init__(
            f"the mark {mark!r} has the value {found}, so the job with the value {value} comes too "
            "late. Nothing was written. A stream that begins anew, with another checkpoint, needs "
            "another mark; a batch needs a larger value."
        )
        self.mark, self.value, self.found = mark, value, found


class JobUnsure(TransactionError):
    """The parts of a job do not belong together, so it was not committed."""

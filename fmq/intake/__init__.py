"""Rows of Arrow become messages, all of a job by one decision."""

from fmq.intake.intake_errors import BadRows, JobPassed, JobUnsure
from fmq.intake.job_parts import PART_BYTES, JobPart
from fmq.intake.row_columns import COLUMNS, ROW_BYTES, ManySent, check_columns, messages_of
from fmq.intake.row_files import RowFile
from fmq.intake.rows_written import RowsWritten, write, write_sent
from fmq.intake.write_job import WriteJob

__all__ = [
    "COLUMNS",
    "PART_BYTES",
    "ROW_BYTES",
    "BadRows",
    "JobPart",
    "JobPassed",
    "JobUnsure",
    "ManySent",
    "RowFile",
    "RowsWritten",
    "WriteJob",
    "check_columns",
    "messages_of",
    "write",
    "write_sent",
]

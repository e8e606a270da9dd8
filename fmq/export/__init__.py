"""Journals as files of other formats: `export("shop", "archive")` adds what is new.

Needs the extra `arrow`, or `spark` and Java.
"""

import fmq.table  # noqa: F401 - which says what is not installed
from fmq.export.errors import Behind, ExportFailed, NotAnExport, NotText, OtherExport
from fmq.export.job import Exported, ExportReport, Progress, export

__all__ = [
    "Behind",
    "ExportFailed",
    "ExportReport",
    "Exported",
    "NotAnExport",
    "NotText",
    "OtherExport",
    "Progress",
    "export",
]

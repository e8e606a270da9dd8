"""Delivery: journals as tables of a lake, each row once, while engines write.

    fmq.lake.deliver("shop", "lake/messages", to="delta", once=True)

The position up to which a table has a journal lies in the same commit as the rows. docs/pipeline.md
says what that promises for each format, and what each failure leads to.
"""

import fmq.table  # noqa: F401 - which says what is not installed
from fmq.lake.lake_audit import AuditProgress, LakeAudit, LakeFinding, audit
from fmq.lake.lake_batch import LakeBatch
from fmq.lake.lake_delivery import LakeCommit, LakeDelivery, LakeStats, deliver
from fmq.lake.lake_errors import OtherTable, TableMoved
from fmq.lake.lake_rows import LakeRows, rows_at
from fmq.lake.lake_table import CanCompact, LakeTable, table_at
from fmq.lake.table_part import TablePart
from fmq.lake.topic_audit import TopicAudit, audit_between
from fmq.lake.typed_bodies import NotDecoded, TypedBodies, typed_by

__all__ = [
    "AuditProgress",
    "CanCompact",
    "LakeAudit",
    "LakeCommit",
    "LakeDelivery",
    "LakeStats",
    "LakeBatch",
    "LakeFinding",
    "LakeRows",
    "LakeTable",
    "NotDecoded",
    "OtherTable",
    "TableMoved",
    "TablePart",
    "TopicAudit",
    "TypedBodies",
    "audit",
    "audit_between",
    "deliver",
    "rows_at",
    "table_at",
    "typed_by",
]

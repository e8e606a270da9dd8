"""SQLAlchemy 2: the outbox of sessions, and the marker table for metadata and migrations."""

try:
    import sqlalchemy  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fmq.bind.sqlalchemy needs SQLAlchemy: pip install 'fmq-engine[sqlalchemy]'. Nothing was "
        "changed."
    ) from error

from fmq.bind.sqlalchemy.events import Outbox, attach
from fmq.bind.sqlalchemy.table import create_marker_table, drop_marker_table, marker_table

__all__ = ["Outbox", "attach", "create_marker_table", "drop_marker_table", "marker_table"]

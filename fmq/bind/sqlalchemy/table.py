"""The marker table of `fmq ddl` for SQLAlchemy's metadata and Alembic's migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    CHAR,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from fmq.bind.dialects import SQLITE_NOW
from fmq.bind.marker import DDL, TABLE
from fmq.bind.sqlalchemy.database import dialect_named

if TYPE_CHECKING:
    from alembic.operations import Operations
    from sqlalchemy.types import TypeEngine


ASCII: dict[str, Any] = {"charset": "ascii", "collation": "ascii_bin"}


def marker_table(metadata: MetaData) -> Table:
    """Add the marker table to `metadata`, for `create_all` and autogenerate. Return the table."""
    return Table(
        TABLE,
        metadata,
        Column("store_id", _text(String(36), mysql.CHAR(36, **ASCII)), primary_key=True),
        Column("tx_id", _text(String(256), mysql.VARBINARY(260)), primary_key=True),
        Column("state", _text(CHAR(1), mysql.CHAR(1, **ASCII)), nullable=False),
        Column("deadline", _time(), nullable=False),
        Column("created_at", _time(), nullable=False, server_default=_Now()),
        Column("checked_at", _time()),
        CheckConstraint("state IN ('C', 'R')"),
        sqlite_with_rowid=False,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _text(usual: TypeEngine[Any], in_mysql: TypeEngine[Any]) -> TypeEngine[Any]:
    return usual.with_variant(Text(), "sqlite").with_variant(in_mysql, "mysql", "mariadb")


def _time() -> TypeEngine[Any]:
    return (
        BigInteger()
        .with_variant(Integer(), "sqlite")
        .with_variant(DateTime(timezone=True), "postgresql")
    )


class _Now(FunctionElement[Any]):
    """The default of created_at: the present time, in the SQL of each dialect."""

    inherit_cache = True


@compiles(_Now, "sqlite")
def _sqlite_now(element: _Now, compiler: Any, **options: Any) -> str:
    return f"({SQLITE_NOW})"


@compiles(_Now, "postgresql")
def _postgres_now(element: _Now, compiler: Any, **options: Any) -> str:
    return "now()"


@compiles(_Now, "mysql", "mariadb")
def _mysql_now(element: _Now, compiler: Any, **options: Any) -> str:
    return "(unix_timestamp())"


def create_marker_table(op: Operations) -> None:
    """Make the marker table, in the `upgrade` of an Alembic migration."""
    op.execute(DDL[dialect_named(op.get_context().dialect.name).ddl].rstrip().rstrip(";"))


def drop_marker_table(op: Operations) -> None:
    """Drop the marker table, in the `downgrade` of a migration.

    The database can then no longer decide what a crash left undecided.
    """
    op.drop_table(TABLE)

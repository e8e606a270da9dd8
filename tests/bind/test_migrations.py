"""The marker table, by whichever way it was made: the database has the same one."""

from __future__ import annotations

import io
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, MetaData, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

import fmq.bind
from fmq.bind.sqlalchemy import create_marker_table, marker_table

ROOT = Path(__file__).parent.parent.parent


def by_fmq_ddl(connection: Connection) -> None:
    line = [sys.executable, "-m", "fmq", "ddl", "sqlite"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    connection.exec_driver_sql(done.stdout)


def by_create_table(connection: Connection) -> None:
    fmq.bind.create_table(connection.connection.dbapi_connection)


def by_create_table_of_an_engine(connection: Connection) -> None:
    fmq.bind.create_table(connection.engine)


def by_metadata(connection: Connection) -> None:
    metadata = MetaData()
    marker_table(metadata)
    metadata.create_all(connection)


def by_alembic(connection: Connection) -> None:
    create_marker_table(Operations(MigrationContext.configure(connection)))


def by_autogenerate(connection: Connection) -> None:
    """Run what Alembic writes into a migration script for the metadata."""
    metadata = MetaData()
    marker_table(metadata)
    context = MigrationContext.configure(connection)
    script = produce_migrations(context, metadata)
    assert script.upgrade_ops is not None
    names = {"op": Operations(context), "sa": sqlalchemy, "postgresql": postgresql, "mysql": mysql}
    exec("if 1:\n" + render_python_code(script.upgrade_ops, migration_context=context), names)


WAYS: list[Callable[[Connection], None]] = [
    by_create_table,
    by_create_table_of_an_engine,
    by_metadata,
    by_alembic,
    by_autogenerate,
]


def looked_at(database: Engine) -> Any:
    """Return all that SQLite knows of the table."""
    with database.connect() as connection:
        columns = connection.exec_driver_sql("PRAGMA table_xinfo(fmq_tx)").all()
        indexes = connection.exec_driver_sql("PRAGMA index_list(fmq_tx)").all()
        [flags] = connection.exec_driver_sql("SELECT wr, strict FROM pragma_table_list('fmq_tx')")
        sql: Any = connection.scalar(text("SELECT sql FROM sqlite_master WHERE name = 'fmq_tx'"))
        with pytest.raises(IntegrityError, match="CHECK"):
            connection.execute(text("INSERT INTO fmq_tx VALUES ('', '', 'X', 0, 0, 0)"))
    return columns, indexes, tuple(flags), sql.count("CHECK")


@pytest.fixture
def databases(tmp_path: Path) -> list[Engine]:
    return [sqlalchemy.create_engine(f"sqlite:///{tmp_path}/{name}.db") for name in "ab"]


def make(database: Engine, way: Callable[[Connection], None]) -> None:
    with database.begin() as connection:
        way(connection)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_migrate_makes_the_table_of_fmq_ddl(
    databases: list[Engine], way: Callable[[Connection], None]
) -> None:
    one, other = databases
    make(one, by_fmq_ddl)
    make(other, way)
    assert looked_at(one) == looked_at(other)


@pytest.mark.parametrize("way", [by_fmq_ddl, *WAYS])
def test_alembic_finds_nothing_to_change(
    databases: list[Engine], way: Callable[[Connection], None]
) -> None:
    """Autogenerate compares the metadata with the database, types and defaults included."""
    make(databases[0], way)
    metadata = MetaData()
    marker_table(metadata)
    with databases[0].connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


ENV = """
from alembic import context
import sqlalchemy

with sqlalchemy.create_engine(context.config.get_main_option("sqlalchemy.url")).begin() as found:
    context.configure(connection=found)
    with context.begin_transaction():
        context.run_migrations()
"""
VERSION = """
from alembic import op
from fmq.bind.sqlalchemy import create_marker_table, drop_marker_table

revision, down_revision = "1", None

def upgrade():
    create_marker_table(op)

def downgrade():
    drop_marker_table(op)
"""


def test_an_alembic_migration_can_be_upgraded_and_downgraded(
    databases: list[Engine], tmp_path: Path
) -> None:
    """A migration script as the guide shows it, run by Alembic's own commands."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "versions" / "1.py").write_text(VERSION)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("sqlalchemy.url", str(databases[1].url))
    make(databases[0], by_fmq_ddl)
    for _ in range(2):
        command.upgrade(config, "head")
        assert looked_at(databases[0]) == looked_at(databases[1])
        command.downgrade(config, "base")
        assert not sqlalchemy.inspect(databases[1]).has_table("fmq_tx")


def test_a_migration_can_be_printed_as_sql(tmp_path: Path) -> None:
    """Alembic's offline mode prints SQL that makes the table."""
    printed = io.StringIO()
    options = {"as_sql": True, "output_buffer": printed}
    create_marker_table(Operations(MigrationContext.configure(dialect_name="sqlite", opts=options)))
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.executescript(printed.getvalue())
    assert connection.execute("SELECT count(*) FROM fmq_tx").fetchone() == (0,)
    connection.close()


def test_mysql_migrates_to_the_table_that_fmq_ddl_prints() -> None:
    """It is the same text but for comments and spaces, as no server runs here."""
    made = str(
        CreateTable(marker_table(MetaData()), if_not_exists=True).compile(dialect=mysql.dialect())
    )
    assert sorted(words(made)) == sorted(words(fmq.bind.ddl("mysql")))


def words(ddl: str) -> list[str]:
    lines = [line.partition("--")[0] for line in ddl.lower().splitlines()]
    return re.findall(r"[\w']+|[()]", " ".join(lines))

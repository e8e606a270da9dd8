"""A PostgreSQL server of the tests' own, and the databases that rules for both are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq
from benchmarks.peers.programs import Folder
from tests.bind.databases import Database, Postgres, Sqlite, make_tables


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of a PostgreSQL server of the tests' own, on a new socket."""
    from benchmarks.peers.postgres import Postgres as Server

    # Not in tmp_path, which only its owner may enter: the server may have a user of its own.
    folder = Folder("fmq-postgres-")
    folder.path.chmod(0o755)
    server = Server(folder.path)
    with server.connect() as connection:
        host = connection.info.host
        # A lock that a failed test has left fails the next one. It would wait for ever.
        connection.execute("ALTER SYSTEM SET lock_timeout = '60s'")
        connection.execute("SELECT pg_reload_conf()")
    yield f"postgresql://postgres@/postgres?host={host}"
    server.close()
    folder.remove()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    # No threads that ask: a test that prepares must be the first to ask.
    with fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0)) as engine:
        yield engine


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """SQLite and PostgreSQL in turn, with empty tables."""
    found: Database
    if request.param == "sqlite":
        found = Sqlite(tmp_path)
    else:
        found = Postgres(request.getfixturevalue("address"))
    make_tables(found)
    return found

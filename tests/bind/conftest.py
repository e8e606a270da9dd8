"""A PostgreSQL server of the tests' own, and the databases that rules for both are tried on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq
from benchmarks.peers import find_program
from tests.bind.databases import Database, Postgres, Sqlite, make_tables


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """A server of our own, reached over a socket of its own."""
    if find_program("postgres") is None:
        pytest.skip("there is no PostgreSQL server on this machine")
    from benchmarks.peers.postgres import Postgres as Server

    # Not in tmp_path, which only its owner may enter: the server has a user of its own.
    with tempfile.TemporaryDirectory(prefix="fmq-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder))
        with server.connect() as connection:
            host = connection.info.host
        yield f"postgresql://postgres@/postgres?host={host}"
        server.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    # Without threads that ask: a test that prepares and then asks must be the first to.
    with fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0)) as engine:
        yield engine


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Each of the two in turn, with empty tables."""
    found: Database
    if request.param == "sqlite":
        found = Sqlite(tmp_path)
    else:
        found = Postgres(request.getfixturevalue("address"))
    make_tables(found)
    return found

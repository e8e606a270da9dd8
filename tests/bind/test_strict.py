"""A database that may lose what it has committed is warned about, or refused, as the user says."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
import fmq.bind
from tests.bind.databases import Database, Postgres, Sqlite, make_tables, rows

FORGETFUL: dict[type[Database], list[str]] = {
    Sqlite: [
        "PRAGMA synchronous = FULL",
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
        "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL",
        "PRAGMA journal_mode = MEMORY",
        "PRAGMA synchronous = OFF",
    ],
    Postgres: ["SET synchronous_commit = off"],
}
DURABLE: dict[type[Database], list[str]] = {
    Sqlite: [
        "PRAGMA synchronous = EXTRA",
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
        "PRAGMA journal_mode = PERSIST; PRAGMA synchronous = FULL",
    ],
    Postgres: ["SET synchronous_commit = on", "SET synchronous_commit = local"],
}
# What the message tells the user to do.
ADVICE = r"synchronous=FULL, or .*=EXTRA|synchronous_commit=on and fsync=on"


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "strict", fmq.Options(strict_bind=True)) as engine:
        yield engine


@contextlib.contextmanager
def connection_set(database: Database, settings: str) -> Iterator[Any]:
    with contextlib.closing(database.connect()) as connection:
        for setting in settings.split("; "):
            connection.execute(setting)
        connection.commit()
        yield connection


def place(engine: fmq.Engine, connection: Any, order: str) -> None:
    with engine.transaction(tx_id=order, bind=connection) as tx:
        connection.execute(f"INSERT INTO orders VALUES ('{order}')")
        tx.send("orders", order.encode())


def test_a_setting_that_may_lose_commits_is_warned_about(
    engine: fmq.Engine, database: Database
) -> None:
    """The transaction works all the same."""
    for number, settings in enumerate(FORGETFUL[type(database)]):
        with connection_set(database, settings) as connection:
            with pytest.warns(fmq.bind.DurabilityWarning, match=ADVICE):
                place(engine, connection, str(number))
            assert len(rows(database)) == len(engine.read("orders")) == number + 1, settings


def test_a_setting_that_may_lose_commits_is_refused_if_strict(
    strict: fmq.Engine, database: Database
) -> None:
    """Nothing was begun: the connection works, and the tx_id is free."""
    for settings in FORGETFUL[type(database)]:
        with connection_set(database, settings) as connection:
            for _ in range(2):  # the first try left nothing open
                with pytest.raises(fmq.bind.NotDurable, match=ADVICE) as caught:
                    place(strict, connection, "order")
                assert "Nothing was begun" in str(caught.value)
    assert rows(database) == []
    assert strict.read("orders") == []
    with connection_set(database, DURABLE[type(database)][0]) as connection:
        place(strict, connection, "order")
    assert rows(database) == ["order"]


def test_a_database_that_keeps_its_commits_is_accepted_without_a_warning(
    strict: fmq.Engine, database: Database
) -> None:
    for number, settings in enumerate(DURABLE[type(database)]):
        with connection_set(database, settings) as connection:
            place(strict, connection, str(number))
            assert len(rows(database)) == number + 1, settings


def test_a_warning_that_is_made_an_error_leaves_nothing_begun(
    engine: fmq.Engine, database: Database
) -> None:
    with connection_set(database, FORGETFUL[type(database)][0]) as connection:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(fmq.bind.DurabilityWarning):
                place(engine, connection, "order")
        with pytest.warns(fmq.bind.DurabilityWarning):
            place(engine, connection, "order")
    assert rows(database) == ["order"]


def test_a_server_that_does_not_sync_is_refused(strict: fmq.Engine, address: str) -> None:
    """Each transaction reads the setting, as it can change without a restart."""
    database = Postgres(address)
    make_tables(database)
    with connection_set(database, "SELECT 1") as connection:
        place(strict, connection, "synced")
        try:
            have_fsync(address, "off")
            with pytest.raises(fmq.bind.NotDurable, match="fsync=off"):
                while True:  # until the connection has the setting, too
                    place(strict, connection, f"order {len(rows(database))}")
        finally:
            have_fsync(address, "on")
    assert "synced" in rows(database)


def have_fsync(address: str, value: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET fsync = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")
    while True:
        with psycopg.connect(address) as connection:
            if connection.execute("SHOW fsync").fetchone() == (value,):
                return

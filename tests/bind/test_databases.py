"""The log and the stats name databases that do not answer, and old rows are purged."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.bind
from fmq.testing import FakeClock
from tests.bind.databases import Database, Postgres, told
from tests.bind.shop import PRODUCER, leave_prepared
from tests.interrupts import PATIENCE_SECONDS

WEEK_SECONDS = 8 * 86400
DAY_SECONDS = 86400


def place(engine: fmq.Engine, connection: Any, order: str) -> None:
    with engine.transaction(tx_id=order, producer=PRODUCER, bind=connection) as tx:
        connection.execute(f"INSERT INTO orders VALUES ('{order}')")
        tx.send("orders", order.encode())


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    with contextlib.closing(database.connect()) as connection:
        yield connection


def age(database: Database) -> None:
    """Make all rows older than the purge keeps them."""
    old = f"- {WEEK_SECONDS}"
    if isinstance(database, Postgres):
        old = f"- {WEEK_SECONDS} * interval '1 s'"
    told(database, f"UPDATE fmq_tx SET created_at = created_at {old}, deadline = deadline {old}")


def ids(database: Database) -> set[str]:
    """Return the ids of the transactions that have a row, without the producers' own rows."""
    return {tx_id for (tx_id,) in told(database, "SELECT tx_id FROM fmq_tx") if tx_id[0] != "§"}


def eventually(true: Callable[[], bool]) -> bool:
    """Wait until a thread of the engine makes `condition` true, and return whether it did."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if true():
            return True
    return False


def trouble(engine: fmq.Engine) -> str:
    return engine.stats().trouble or ""


def opened(path: Path, clock: Any = None, **more: Any) -> fmq.Engine:
    engine: fmq.Engine = fmq.open(path / "shop", clock=clock, **more)
    return engine


# --- a database that cannot be reached -----------------------------------------------------------


WRONG = {
    "sqlite": ("sqlite:////nowhere/shop.db", "unable to open database file"),
    "postgres": ("postgresql://127.0.0.1:1/shop", "Connection refused"),
    "sqlalchemy": ("sqlite+pysqlite:////nowhere/shop.db", "unable to open database file"),
}


@pytest.mark.parametrize("background", [True, False], ids=["threads", "none"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_address_is_reported_when_the_engine_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, background: bool
) -> None:
    """The driver's message is in the log and in `trouble`, though no transaction is undecided."""
    address, says = WRONG[kind]
    with opened(tmp_path, background=background, resolve={PRODUCER: address}) as engine:
        assert eventually(lambda: says in trouble(engine)), engine.stats().trouble
        assert repr(PRODUCER) in trouble(engine)
    [record] = [each for each in caplog.records if each.name == "fmq.bind"]
    assert record.levelname == "WARNING"
    assert says in record.getMessage() and repr(PRODUCER) in record.getMessage()


def test_a_database_that_does_not_answer_about_the_undecided_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is "unknown", and the log has it once."""
    address, says = WRONG["sqlite"]
    with opened(tmp_path, background=False) as engine:
        leave_prepared(engine, "order-1")
    clock = FakeClock()
    with opened(tmp_path, clock, background=False, resolve={PRODUCER: address}) as engine:
        for _ in range(3):
            assert says in trouble(engine)
            engine.settle(timeout=60.0)
        assert engine.undecided()[0].answers == 4
    said = [each.getMessage() for each in caplog.records if each.name == "fmq.bind"]
    assert len(said) == 2
    assert "cannot be asked: " in said[0] and "cannot be reached: " in said[1]


def test_undecided_transactions_that_no_database_of_resolve_is_for_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So a producer that is misspelt in `resolve` does not go unnoticed."""
    with opened(tmp_path, background=False) as engine:
        leave_prepared(engine, "order-1")
    for producer, n in (("chop", 1), (PRODUCER, 0)):
        caplog.clear()
        address = f"sqlite:///{tmp_path}/shop.db"
        with opened(tmp_path, background=False, resolve={producer: address}):
            said = [each.getMessage() for each in caplog.records if each.name == "fmq.bind"]
        assert sum("of other producers" in line and repr(PRODUCER) in line for line in said) == n


def test_trouble_goes_away_when_the_database_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine tries again by itself, and logs the success once."""
    caplog.set_level(logging.INFO, "fmq.bind")
    clock = FakeClock()
    folder = tmp_path / "later"
    address = f"sqlite:///{folder}/shop.db"
    with opened(tmp_path, clock, resolve={PRODUCER: address}) as engine:
        assert eventually(lambda: trouble(engine) != "")
        folder.mkdir()
        with contextlib.closing(sqlite3.connect(folder / "shop.db")) as connection:
            fmq.bind.create_table(connection)
        clock.advance(60)
        assert eventually(lambda: trouble(engine) == "")
    said = [each.getMessage() for each in caplog.records if each.name == "fmq.bind"]
    assert len(said) == 2 and "answers again" in said[1]


# --- purging by the engine -----------------------------------------------------------------------


def test_old_rows_go_when_the_engine_opens_with_resolve(
    tmp_path: Path, database: Database, connection: Any
) -> None:
    """Young rows stay, and so do rows of undecided transactions."""
    with opened(tmp_path, background=False) as engine:
        place(engine, connection, "old")
        tx = engine.transaction(tx_id="undecided", producer="another")
        tx.prepare()
        store = engine.feedback.store
    moment = "now()" if isinstance(database, Postgres) else "0"
    told(
        database,
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) "
        f"VALUES ('{store}', 'undecided', 'C', {moment})",
    )
    age(database)
    with opened(tmp_path, background=False) as engine:
        place(engine, connection, "young")
    resolve = {PRODUCER: database.address}
    with opened(tmp_path, background=False, resolve=resolve) as engine:
        assert ids(database) == {"undecided", "young"}
        assert trouble(engine) == ""


def test_old_rows_go_once_a_day_with_resolve(
    tmp_path: Path, database: Database, connection: Any
) -> None:
    """The engine's clock counts the day, whether or not the program runs blocks."""
    clock = FakeClock()
    with opened(tmp_path, clock, resolve={PRODUCER: database.address}) as engine:
        place(engine, connection, "first")
        for order in ("second", "third"):
            age(database)
            clock.advance(DAY_SECONDS + 1)
            assert eventually(lambda: ids(database) == set())
            place(engine, connection, order)
            assert ids(database) == {order}


def test_old_rows_go_after_1000_blocks_without_resolve(
    tmp_path: Path, database: Database, connection: Any
) -> None:
    """They stay until the thousandth block ends."""
    with opened(tmp_path, background=False) as engine:
        place(engine, connection, "old")
        age(database)
        for number in range(2, 1000):
            place(engine, connection, f"{number}")
        assert "old" in ids(database)
        place(engine, connection, "1000")
        assert "old" not in ids(database)
        assert len(ids(database)) == 999


def test_a_purge_that_fails_fails_no_block(
    tmp_path: Path, connection: Any, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is in the log and in `trouble`. This block and later ones commit."""
    clock, resolve = FakeClock(), {PRODUCER: database.address}
    with opened(tmp_path, clock, background=False, resolve=resolve) as engine:
        place(engine, connection, "1")
        told(database, "ALTER TABLE fmq_tx RENAME COLUMN created_at TO created")
        clock.advance(DAY_SECONDS + 1)
        place(engine, connection, "2")
        assert "created_at" in trouble(engine)
        place(engine, connection, "3")
        assert len(engine.read("orders")) == 3
    assert "created_at" in caplog.text


def test_a_purge_takes_few_rows_in_each_transaction(
    tmp_path: Path, connection: Any, database: Database
) -> None:
    """All old rows go, however many there are."""
    with opened(tmp_path, background=False) as engine:
        place(engine, connection, "first")
        store = engine.feedback.store
    moment = "now()" if isinstance(database, Postgres) else "0"
    values = ", ".join(f"('{store}', 'old-{number}', 'C', {moment})" for number in range(2500))
    told(database, f"INSERT INTO fmq_tx (store_id, tx_id, state, deadline) VALUES {values}")
    age(database)
    with opened(tmp_path, background=False, resolve={PRODUCER: database.address}):
        assert ids(database) == set()

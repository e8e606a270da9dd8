"""Transactions by hand of a producer that also binds: its database has no mark, and decides none.

Each test has one by hand beside one that is bound and has no mark, which is rolled back: so the
database was asked.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq
import fmq.bind
from tests.bind.shop import (
    PRODUCER,
    connect,
    leave_prepared,
    messages,
    place,
    question,
    reopened,
    rows,
)

ROOT = Path(__file__).parent.parent.parent
SMALL = fmq.Options(segment_bytes=4096, relocate_bytes=5000, checker_threads=0)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path)
    yield connection
    connection.close()


def prepare_by_hand(engine: fmq.Engine) -> fmq.Transaction:
    tx = engine.transaction(tx_id="by hand", producer=PRODUCER)
    tx.send("orders", b"by hand")
    tx.prepare()
    return tx


def undecided(engine: fmq.Engine) -> list[str]:
    return [tx.tx_id for tx in engine.undecided()]


def test_a_database_does_not_settle_a_transaction_that_is_not_bound(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """It stays undecided, and the program may commit it later."""
    place(engine, connection, "one")
    by_hand = prepare_by_hand(engine)
    leave_prepared(engine, "bound")
    settled = engine.settle()
    assert (settled.rolled_back, settled.unknown) == (("bound",), ("by hand",))
    by_hand.commit()
    assert (rows(tmp_path), messages(engine)) == (["one"], ["one", "by hand"])


def test_a_question_says_whether_its_transaction_is_bound(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    check = fmq.bind.checker_of(f"sqlite:///{tmp_path}/shop.db")
    place(engine, connection, "registers the producer")
    prepare_by_hand(engine)
    [by_hand] = engine.feedback.ask_about("by hand")
    bound = question(engine)
    assert (by_hand.bound, check(by_hand)) == (False, "unknown")
    assert (bound.bound, check(bound)) == (True, "rollback")
    assert connection.execute("SELECT 1 FROM fmq_tx WHERE tx_id = 'by hand'").fetchall() == []


@pytest.mark.parametrize("asked_by", ["resolve", "the first that is bound"])
def test_a_transaction_by_hand_is_not_settled_after_a_kill(tmp_path: Path, asked_by: str) -> None:
    """The child dies with a transaction by hand, and a bound one at its database's commit."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.bind.test_by_hand", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 1, child.stderr
    if asked_by == "resolve":
        engine = reopened(tmp_path)
    else:
        engine = fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0))
        assert undecided(engine) == ["by hand", "bound"]
        connection = connect(tmp_path)
        place(engine, connection, "next")
        connection.close()
        engine.settle()
    with engine:
        assert undecided(engine) == ["by hand"]
        assert engine.outcome("bound").state == "rolled back"
        assert rows(tmp_path) == messages(engine)
        engine.decide("by hand", "commit")
        assert "by hand" in messages(engine)


class Mortal(sqlite3.Connection):
    """A connection that kills its process when it commits an order."""

    def commit(self) -> None:
        if self.execute("SELECT 1 FROM orders").fetchall():
            os._exit(1)
        super().commit()


def main(folder: Path) -> None:
    connection = connect(folder, Mortal)
    with fmq.open(folder / "shop", fmq.Options(checker_threads=0)) as engine:
        with engine.transaction(producer=PRODUCER, bind=connection):
            pass  # registers the producer
        prepare_by_hand(engine)
        place(engine, connection, "bound", tx_id="bound")


def test_a_relocated_transaction_by_hand_is_not_settled(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """A relocation keeps for both transactions whether they are bound."""
    with fmq.open(tmp_path / "shop", SMALL, background=False) as engine:
        place(engine, connection, "one")
        prepare_by_hand(engine)
        leave_prepared(engine, "bound")
        before = {tx.tx_id: tx.position for tx in engine.undecided()}
        while engine.stats().segments < 8:
            engine.send("fill", b"f" * 400)
        after = {tx.tx_id: tx.position for tx in engine.undecided()}
        assert all(after[tx_id] > before[tx_id] for tx_id in ("by hand", "bound"))
    with reopened(tmp_path) as engine:
        assert undecided(engine) == ["by hand"]
        assert engine.outcome("bound").state == "rolled back"


def test_a_producer_with_an_unbound_transaction_can_still_be_bound(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """No database was bound before, so one without a row of the producer is accepted."""
    prepare_by_hand(engine)
    place(engine, connection, "one")
    assert rows(tmp_path) == messages(engine) == ["one"]
    assert undecided(engine) == ["by hand"]


def test_the_programs_own_checker_decides_a_transaction_by_hand(
    engine: fmq.Engine, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """The guide's checker passes on the questions about bound transactions."""
    database = fmq.bind.checker_of(f"sqlite:///{tmp_path}/shop.db")

    @engine.checker(PRODUCER)
    def check(asked: fmq.Question) -> fmq.Answer:
        return database(asked) if asked.bound else "commit"

    place(engine, connection, "one")
    prepare_by_hand(engine)
    leave_prepared(engine, "bound")
    engine.settle()
    assert undecided(engine) == []
    assert messages(engine) == ["one", "by hand"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The two-phase verbs of PEP 249: a coordinator drives fmq as it does any other store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
from fmq.bind.tpc import Connection, Xid
from fmq.errors import AlreadyDecided, BadName, TxIdInUse, UnknownTransaction, WrongState
from tests.bind.coordinated_child import PRODUCER
from tests.bind.coordinator import Coordinator

ROOT = Path(__file__).parent.parent.parent
STEPS_MAX = 20


@pytest.fixture
def store(engine: fmq.Engine) -> Connection:
    return Connection(engine, producer=PRODUCER)


def bodies(engine: fmq.Engine) -> list[str]:
    return [bytes(message.body).decode() for message in engine.read("orders", limit=9999)]


def prepared(store: Connection, gtrid: str, body: bytes = b"one") -> Xid:
    xid = store.xid(0, gtrid, "fmq")
    store.tpc_begin(xid)
    store.transaction.send("orders", body)
    store.tpc_prepare()
    return xid


def test_a_prepared_branch_is_committed_or_rolled_back(
    engine: fmq.Engine, store: Connection
) -> None:
    first = prepared(store, "order-1", b"one")
    assert store.tpc_recover() == [first]
    assert bodies(engine) == []
    store.tpc_commit()
    prepared(store, "order-2", b"two")
    store.tpc_rollback()
    assert bodies(engine) == ["one"]
    assert store.tpc_recover() == []


def test_a_branch_that_is_not_prepared_commits_in_one_phase_or_is_dropped(
    engine: fmq.Engine, store: Connection
) -> None:
    for body, end in ((b"one", store.tpc_commit), (b"two", store.tpc_rollback)):
        store.tpc_begin(store.xid(0, body.decode(), ""))
        store.transaction.send("orders", body)
        end()
    assert bodies(engine) == ["one"]
    assert store.tpc_recover() == []


def test_a_branch_that_a_crash_left_is_listed_and_ended_by_its_xid(tmp_path: Path) -> None:
    """Ending it twice is accepted, and the opposite decision is refused.

    The journal has the coordinator's name.
    """
    with fmq.open(tmp_path / "shop") as engine:
        xids = [prepared(Connection(engine, producer=PRODUCER), f"{n}") for n in range(2)]
    with fmq.open(tmp_path / "shop") as engine:
        store = Connection(engine, producer=PRODUCER)
        assert store.tpc_recover() == xids
        for _ in range(2):
            store.tpc_commit(xids[0])
            store.tpc_rollback(xids[1])
        with pytest.raises(AlreadyDecided):
            store.tpc_rollback(xids[0])
        assert store.tpc_recover() == []
        assert bodies(engine) == ["one"]
        assert engine.outcome(xids[0].tx_id).decided_by == PRODUCER


def test_only_branches_of_the_coordinator_are_listed(engine: fmq.Engine, store: Connection) -> None:
    """Other producers' transactions are not listed, nor are ids that are not xids."""
    xid = prepared(store, "order-1")
    prepared(Connection(engine, producer="another"), "order-2")
    for tx_id in ("order-3", "7_x_", "7_!_", "07_QQ==_", "7_QQ_", "7_/w==_"):
        engine.transaction(tx_id=tx_id, producer=PRODUCER).prepare()
    assert store.tpc_recover() == [xid]


def test_verbs_that_do_not_follow_are_refused(engine: fmq.Engine, store: Connection) -> None:
    for verb in (store.tpc_prepare, store.tpc_commit, store.tpc_rollback):
        with pytest.raises(WrongState, match="no transaction is begun"):
            verb()
    xid = prepared(store, "order-1")
    with pytest.raises(WrongState, match="prepare cannot follow"):
        store.tpc_prepare()
    for verb_of_xid in (store.tpc_begin, store.tpc_commit, store.tpc_rollback):
        with pytest.raises(WrongState, match="is begun on this connection"):
            verb_of_xid(xid)
    other = Connection(engine, producer=PRODUCER)
    with pytest.raises(TxIdInUse):
        other.tpc_begin(xid)
    with pytest.raises(UnknownTransaction):
        other.tpc_commit(other.xid(0, "order-2", "fmq"))
    store.tpc_commit()
    assert bodies(engine) == ["one"]


def test_the_xid_of_another_driver_names_the_same(store: Connection) -> None:
    """PostgreSQL, psycopg and JDBC list it under the tx_id of fmq."""
    xid = psycopg.Xid(7, "order-1", "fmq")
    store.tpc_begin(xid)
    assert store.transaction.tx_id == str(xid)
    store.tpc_prepare()
    assert store.tpc_recover() == [(7, "order-1", "fmq")]


def test_the_longest_xid_is_a_tx_id(store: Connection) -> None:
    xid = store.xid(2**31 - 1, "é" * 32, "b" * 64)
    store.tpc_begin(xid)
    store.tpc_prepare()
    assert store.tpc_recover() == [xid]


@pytest.mark.parametrize(
    "parts",
    [
        *((-1, "g", "b"), (2**31, "g", "b"), ("1", "g", "b"), (True, "g", "b"), (None, "g", None)),
        *((0, "", "b"), (0, "g" * 65, "b"), (0, "é" * 33, "b"), (0, "g", "b" * 65), (0, b"g", "b")),
    ],
)
def test_an_xid_that_cannot_be_one_is_refused(store: Connection, parts: Any) -> None:
    with pytest.raises(BadName, match="must be"):
        store.tpc_begin(parts)
    with pytest.raises(BadName, match="must be"):
        store.xid(*parts)


# --- with PostgreSQL's own verbs ----------------------------------------------------------------


@pytest.fixture
def database(address: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(address) as connection:
        for xid in connection.tpc_recover():
            connection.tpc_rollback(xid)
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (name text PRIMARY KEY)")
        connection.commit()
        yield connection


def test_after_a_kill_a_global_transaction_is_in_both_stores_or_none(
    database: psycopg.Connection[Any], address: str, tmp_path: Path
) -> None:
    """A coordinator of PostgreSQL and fmq is killed at each step.

    The next one asks both stores what is prepared, and ends it as decided.
    """
    seen = []
    for step in range(1, STEPS_MAX):
        child = subprocess.run(
            [sys.executable, "-m", "tests.bind.coordinated_child", tmp_path, address, str(step)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert child.returncode in (0, -9), child.stderr
        with fmq.open(tmp_path / "shop") as engine:
            store = Connection(engine, producer=PRODUCER)
            coordinator = Coordinator(tmp_path / "decisions", {"postgres": database, "fmq": store})
            coordinator.recover()
            assert store.tpc_recover() == []
            assert database.tpc_recover() == []
            rows = [name for (name,) in database.execute("SELECT name FROM orders")]
            assert sorted(rows) == sorted(bodies(engine)), f"killed at step {step}"
            seen.append(f"cut at {step}" in rows)
            database.commit()
        if child.stdout:
            break
    else:
        raise AssertionError("so many steps?")
    assert sorted(seen) == seen, "once it is decided it is committed"
    assert set(seen) == {True, False}

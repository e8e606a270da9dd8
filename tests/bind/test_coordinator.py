"""The guide's recipe for a coordinator of two phases, killed at each step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
from tests.bind.coordinator import Coordinator

ROOT = Path(__file__).parent.parent.parent
STEPS_MAX = 20


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
    """The next coordinator asks both stores what is prepared, and ends it as decided."""
    seen = []
    for step in range(1, STEPS_MAX):
        child = subprocess.run(
            [sys.executable, "-m", "tests.bind.coordinated_child", tmp_path, address, str(step)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert child.returncode in (0, -9), child.stderr
        with fmq.open(tmp_path / "shop") as engine:
            Coordinator(tmp_path / "decisions", database, engine).recover()
            assert engine.undecided() == []
            assert database.tpc_recover() == []
            rows = sorted(name for (name,) in database.execute("SELECT name FROM orders"))
            sent = sorted(
                bytes(message.body).decode() for message in engine.read("orders", limit=9999)
            )
            assert rows == sent, f"killed at step {step}"
            seen.append(f"cut at {step}" in rows)
            database.commit()
        if child.stdout:
            break
    else:
        raise AssertionError("so many steps?")
    assert sorted(seen) == seen, "once it is decided it is committed"
    assert set(seen) == {True, False}

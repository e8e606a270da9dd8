"""A directory with messages of all sorts, and the formats whose libraries are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fmq
from tests.lake.tables import FORMATS

SMALL = fmq.Options(segment_bytes=16 << 10, topic_queues={"orders": 2})


@pytest.fixture(scope="module", params=FORMATS)
def to(request: pytest.FixtureRequest) -> Any:
    """A format of tables."""
    if request.param != "parquet":
        pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return request.param


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The path of a directory with 300 messages or so."""
    path = tmp_path / "shop"
    add_to(path, 40)
    return path


def add_to(path: Path, count: int, options: fmq.Options = SMALL) -> None:
    """Send single messages, batches and transactions, also some that are rolled back."""
    with fmq.open(path, options, background=False) as engine:
        for number in range(count):
            body = b"%d" % number * 20
            engine.send_many("orders", [body] * (number % 5 + 1), queue=number % 2)
            engine.send("orders", body, key=f"k{number}", tag="new", headers={"trace": "4f"})
            with engine.transaction() as tx:
                tx.send("orders", body)
                tx.send("emails", body)
            if number % 4 == 0:
                tx = engine.transaction()
                tx.send("late", body)
                tx.prepare()
                engine.decide(tx.tx_id, "rollback" if number % 8 else "commit")
        engine.checkpoint()

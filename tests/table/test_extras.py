"""The ids, priorities and expiries of messages as columns of a table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Message
from fmq.table.read import read

LATER = datetime(2031, 5, 6, tzinfo=UTC)
NAMES = "message_id", "priority", "expires_at"


def rows(path: str, columns: list[str]) -> list[dict[str, Any]]:
    """All messages as a table shows them, by topic and offset."""
    batches = read(path, "messages", columns=columns)
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["offset"]))


@pytest.mark.parametrize("remote", [True, False])
def test_tables_and_engines_show_equal_extras(tmp_path: Path, remote: bool) -> None:
    """Many plain records before and after, also with the requests of a client in their extensions;
    compressed ones; references to what was prepared.
    """
    path = str(tmp_path / "d")
    options = fmq.Options(reference_bytes_min=200, compress_bytes_min=2000)
    with fmq.open(path, options) as served:
        engine: Any = served
        if remote:
            served.serve()
            engine = fmq.connect(path)
        for number in range(40):
            engine.send("t", b"%d" % number)
        engine.send("t", b"x", message_id="ä", priority=0)
        engine.send("t", b"y", expires_at=LATER, key="k")
        messages = [Message(b"1"), Message(bytes(5000), message_id="m", priority=9), b"2"]
        engine.send_many("u", messages)
        with engine.transaction() as tx:
            tx.send("u", bytes(300), message_id="n", expires_at=LATER)
            tx.prepare()
        for number in range(40):
            engine.send("t", b"%d" % number)
        expected = [
            {"topic": each.topic, "offset": each.offset}
            | {name: getattr(each, name) for name in NAMES}
            for topic in "tu"
            for each in engine.read(topic, limit=1000)
        ]
        if remote:
            engine.close()
    assert rows(path, ["topic", "offset", *NAMES]) == expected
    assert sum(row["priority"] is not None for row in expected) == 2
    for name in NAMES:
        alone = [
            {"topic": row["topic"], "offset": row["offset"], name: row[name]} for row in expected
        ]
        assert rows(path, ["topic", "offset", name]) == alone

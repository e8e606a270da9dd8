"""`fmq topics`: what each topic holds, who reads it, and how long it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from tests.cli.command import fmq_json, fmq_table


@pytest.mark.parametrize("is_live", [False, True])
def test_each_topic_says_what_it_holds_and_who_reads_it(shop: Path, *, is_live: bool) -> None:
    engine = fmq.open(shop, background=is_live)
    engine.create_topic("wide", queues=2, retain_seconds=7200)
    if is_live:
        engine.serve()
    else:
        engine.close()
    rows = {row["topic"]: row for row in fmq_json("topics", shop).of("topic")}
    assert list(rows) == ["audit", "orders", "emails", "wide"]
    audit, wide = rows["audit"], rows["wide"]
    assert (audit["queues"], audit["messages"], audit["bytes"]) == (1, 3, None)
    assert audit["groups"] == [{"group": "billing", "unread": 2}]
    with fmq.open(shop, read_only=True) as reader:
        time = reader.read("audit")[0].time
    assert time is not None and audit["first_time"] == time.isoformat()
    assert audit["last_time"] >= audit["first_time"]
    assert (wide["queues"], wide["first_time"], wide["retain_seconds"]) == (2, None, 7200)
    assert (audit["retain_seconds"], wide["groups"]) == (None, [])
    (kept,) = fmq_json("topics", shop).of("journal")
    assert kept["bytes"] > 0 and kept["segments"] == 1
    assert kept["oldest"] == min(row["first_time"] for row in rows.values() if row["messages"])
    engine.close()


def test_the_bytes_of_a_topic_are_those_of_its_visible_records(shop: Path) -> None:
    """A prepared transaction that is undecided or was rolled back takes no part in it."""
    records = fmq_json("records", shop).lines
    for row in fmq_json("topics", shop, "--bytes").of("topic"):
        mine = [
            each["size"]
            for each in records
            if each.get("topic") == row["topic"]
            and each["kind"] in ("MESSAGE", "REF_MESSAGE", "TX_MESSAGE")
        ]
        assert row["bytes"] == sum(mine)
    said = fmq_table("topics", shop)
    assert "nobody" in said and "billing (2 unread)" in said

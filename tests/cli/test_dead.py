"""`fmq dead`, on a directory at rest and on a live one, and the other commands that show
dead letters.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq.table.read import read
from tests.cli.command import fmq_json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send_many("orders", [b"0", b"\xff1", b"2"])
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll():
                delivery.reject("no such customer")
    return tmp_path / "shop"


def numbers(path: Path, *more: str) -> list[int]:
    code, lines, _ = fmq_json("dead", "list", path, "billing", *more)
    assert code == 0
    return [line["number"] for line in lines]


@pytest.mark.parametrize("is_live", [False, True])
def test_dead_letters_are_shown_replayed_and_purged(path: Path, *, is_live: bool) -> None:
    engine = fmq.open(path) if is_live else None
    if engine is not None:
        engine.serve()
    assert fmq_json("dead", "list", path).lines == [
        {"what": "group", "group": "billing", "dead_letters": 3}
    ]
    assert numbers(path) == [0, 1, 2]
    assert numbers(path, "--limit", "1", "--after", "0") == [1]
    (shown,) = fmq_json("dead", "show", path, "billing", "1").lines
    assert (shown["offset"], shown["reason"]) == (1, "no such customer")
    assert shown["body_base64"] == "/zE="
    assert fmq_json("dead", "replay", path, "billing", "0").lines[0]["dead_letters"] == 1
    assert fmq_json("group", "list", path).lines[0]["dead_letters"] == 2
    assert fmq_json("dead", "purge", path, "billing", "1").code == 0
    assert numbers(path) == [2]
    late = "2100-01-01T00:00:00Z"
    assert fmq_json("dead", "purge", path, "billing", "--before", late).code == 0
    assert numbers(path) == []
    assert fmq_json("dead", "list", path).lines == []
    if engine is not None:
        engine.close()


def test_errors_about_dead_letters_are_printed(path: Path) -> None:
    code, _, error = fmq_json("dead", "show", path, "billing", "7")
    assert code == 3
    assert "no dead letter 7" in error
    assert fmq_json("dead", "list", path, "biling").code == 3
    with pytest.raises(SystemExit):  # nothing is purged by a slip
        fmq_json("dead", "purge", path, "billing")
    assert numbers(path) == [0, 1, 2]


def test_dead_letters_are_hidden_from_the_table_and_named_in_records(
    path: Path,
) -> None:
    fmq_json("dead", "replay", path, "billing", "0")
    topics = {
        topic
        for batch in read(str(path), "messages")
        for topic in batch.column("topic").to_pylist()
    }
    assert topics == {"orders"}
    records = [
        row for batch in read(str(path), "records") for row in batch.to_pylist() if row["topic"]
    ]
    assert {row["topic"] for row in records} == {
        *("orders", "fmq:dead/billing", "fmq:again/billing/orders")
    }
    shown = fmq_json("records", path, "--topic", "fmq:dead/billing").lines
    assert {row["kind"] for row in shown} == {"TOPIC", "MESSAGE"}

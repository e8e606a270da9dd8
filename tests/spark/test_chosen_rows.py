"""The reader's options choose exactly the rows that a query over all rows would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmq
from fmq.testing import FakeClock
from tests.spark.reading import Reader
from tests.spark.streaming import Stream

MESSAGES = {
    "a topic": ({"topic": "orders"}, "topic = 'orders'"),
    "a topic that is not there": ({"topic": "nothing"}, "false"),
    "several topics": (
        {"topics": json.dumps(["emails", "nothing", "orders"])},
        "topic in ('emails', 'orders')",
    ),
    "several topics and one": (
        {"topics": '["nothing"]', "topic": "emails"},
        "topic in ('nothing', 'emails')",
    ),
    "queues": ({"queue": "1, 2"}, "queue in (1, 2)"),
    "an offset in the middle of a record": ({"offsetFrom": "117"}, "offset >= 117"),
    "offsets": ({"offsetFrom": "3", "offsetBefore": "50"}, "offset >= 3 and offset < 50"),
    "no offset": ({"offsetBefore": "0"}, "false"),
    "offsets of a topic": (
        {"topic": "orders", "offsetFrom": "100", "offsetBefore": "120"},
        "topic = 'orders' and offset >= 100 and offset < 120",
    ),
    "positions": (
        {"positionFrom": "{position}", "positionBefore": "{later}"},
        "position >= {position} and position < {later}",
    ),
    "times": (
        {"timeFrom": "{time}", "timeBefore": "{later_time}"},
        "time >= timestamp'{time}' and time < timestamp'{later_time}'",
    ),
    "a time with a zone": (
        {"timeFrom": "2000-01-01T02:00:00+02:00", "timeBefore": "{time}+00:00"},
        "time < timestamp'{time}'",
    ),
    "no time": ({"timeBefore": "2000-01-01"}, "false"),
    "everything at once": (
        {"topic": "orders", "queue": "0", "offsetFrom": "7", "positionFrom": "{position}",
         "timeBefore": "{later_time}"},
        ("topic = 'orders' and queue = 0 and offset >= 7 and position >= {position}"
        " and time < timestamp'{later_time}'"),
    ),
}  # fmt: skip
OTHERS = {
    "records": ("a topic", "several topics", "queues", "positions", "times"),
    "transactions": ("positions",),
}
CASES = [("messages", what) for what in MESSAGES]
CASES += [(view, what) for view, names in OTHERS.items() for what in names]


@pytest.fixture(scope="module")
def shop(shop: Reader, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Two queues of each topic, a second between two appends, all kinds of transactions."""
    path = tmp_path_factory.mktemp("chosen") / "shop"
    clock = FakeClock()
    options = fmq.Options(segment_bytes=16 << 10, topic_queues={"orders": 3, "emails": 2})
    with fmq.open(path, options, clock=clock, background=False) as engine:
        for number in range(60):
            clock.advance(1)
            engine.send_many("orders", [b"x" * number] * 20, queue=number % 3)
            engine.send("emails", b"y" * 300, queue=number % 2)
            engine.send("audit", b"z")
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("orders", b"in two phases", queue=0)
            tx.prepare()
            if number % 3:
                clock.advance(1)
                tx.commit()
        assert engine.stats().segments > 3
    return Reader(shop.spark, path)


@pytest.fixture(scope="module")
def places(shop: Reader) -> dict[str, str]:
    """A place a third of the way, and one behind two thirds."""
    rows = sorted(shop.rows(columns="position,time"), key=lambda row: row["position"])
    one, two = rows[len(rows) // 3], rows[2 * len(rows) // 3]
    return {
        "position": str(one["position"] + 1),
        "later": str(two["position"]),
        "time": one["time"].isoformat(sep=" "),
        "later_time": two["time"].isoformat(sep=" "),
    }


@pytest.mark.parametrize(("view", "what"), CASES)
def test_options_choose_the_same_rows_as_a_filter(
    shop: Reader, places: dict[str, str], view: str, what: str
) -> None:
    """Test messages, records and transactions, with all columns and with fewer."""
    given, condition = MESSAGES[what]
    options = {name: value.format(**places) for name, value in given.items()}
    expected = shop.view(view).filter(condition.format(**places)).collect()
    assert bool(expected) == (condition != "false")
    assert len(expected) < shop.view(view).count()
    assert shop.rows(view, **options) == expected
    narrow = "producer" if view == "transactions" else "time"
    assert len(shop.rows(view, columns=narrow, **options)) == len(expected)
    assert [row["store"] for row in shop.rows(view, columns="store", **options)] == [
        row["store"] for row in shop.rows(view, columns="store")[: len(expected)]
    ]


def test_small_splits_give_the_same_chosen_rows(shop: Reader) -> None:
    """Some splits begin in the middle of the wanted rows."""
    whole = shop.rows(topic="orders", offsetFrom="100", offsetBefore="300")
    assert shop.rows(topic="orders", offsetFrom="100", offsetBefore="300", splitBytes="1") == whole


def test_a_stream_has_only_the_chosen_rows(shop: Reader, tmp_path: Path) -> None:
    """Each batch has only chosen rows. A stream that chooses nothing ends without rows."""
    stream = Stream(shop.spark, tmp_path / "checkpoint")
    chosen = {"topic": "emails", "queue": "1", "offsetFrom": "5"}
    stream.drain(shop.path, maxRecordsPerTrigger="300", **chosen)
    assert len(stream.batches) > 3
    assert stream.rows == shop.rows(**chosen)
    none = Stream(shop.spark, tmp_path / "none")
    none.drain(shop.path, topic="nothing")
    assert none.rows == []

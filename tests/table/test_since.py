"""`fmq.table.read` from a position to another: exactly those rows, and no append is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

import fmq
import fmq.table
from fmq.table.table_reader import TableReader

SMALL = fmq.Options(segment_bytes=16 << 10, topic_queues={"orders": 2})
VIEWS = ["messages", "records", "transactions"]
Row = dict[str, Any]


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """Some segments of single messages, batches, transactions over two topics and acks."""
    path = str(tmp_path / "shop")
    with fmq.open(path, SMALL, background=False) as engine:
        fill(engine, 60)
        engine.checkpoint()
    return path


def fill(engine: fmq.Engine, count: int) -> None:
    consumer = engine.consumer("orders", group="billing")
    for number in range(count):
        body = b"%d" % number * 40
        engine.send_many("orders", [body] * (number % 5 + 1), queue=number % 2)
        with engine.transaction() as tx:
            tx.send("orders", body)
            tx.send("emails", body)
        if number % 7 == 0:
            tx = engine.transaction()
            tx.send("late", body)
            tx.prepare()
            engine.decide(tx.tx_id, "commit" if number % 2 else "rollback")
            for delivery in consumer.poll(limit=3):
                delivery.ack()


def rows(path: Any, view: str = "messages", **how: Any) -> list[Row]:
    found: list[Row] = fmq.table.read(path, view, **how).read_all().to_pylist()
    return found


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("limit", [{"limit_messages": 7}, {"limit_bytes": 5000}, {}])
def test_reads_that_go_on_at_the_end_give_each_row_once(
    shop: str, view: str, limit: dict[str, Any]
) -> None:
    whole = rows(shop, view)
    got, since, reads = list[Row](), None, 0
    while True:
        reader = fmq.table.read(shop, view, since=since, **limit)
        assert reader.first == (0 if since is None else since)
        if reader.first == reader.end:
            break
        got += reader.read_all().to_pylist()
        since, reads = reader.end, reads + 1
    assert got == whole
    assert (reads > 10) == bool(limit)


def test_no_read_has_a_part_of_a_transaction(shop: str) -> None:
    """Each read of three messages has all messages of a transaction, or none."""
    place, of_read = None, list[set[str]]()
    while (reader := fmq.table.read(shop, since=place, limit_messages=3)).first != reader.end:
        place = reader.end
        found = reader.read_all().to_pylist()
        of_read.append({row["tx_id"] for row in found if row["tx_id"] is not None})
    assert sum(map(len, of_read)) == len(set().union(*of_read)) > 50


@pytest.mark.parametrize("view", VIEWS)
def test_until_any_position_gives_the_whole_appends_before_it(shop: str, view: str) -> None:
    """Both halves together are the whole, wherever the cut was asked for."""
    whole, end = rows(shop, view), fmq.table.read(shop).end
    for asked in range(0, end + 999, 2991):
        reader = fmq.table.read(shop, view, until=asked)
        assert reader.end <= asked
        assert reader.read_all().to_pylist() + rows(shop, view, since=reader.end) == whole


def test_a_position_inside_of_an_append_is_refused(shop: str) -> None:
    """The error says where the append begins."""
    appends = {row["append"] for row in rows(shop, "records")}
    inside = next(
        row["position"] for row in rows(shop, "records") if row["position"] not in appends
    )
    with pytest.raises(fmq.BadOption, match=f"{inside} is inside of an append, which begins at "):
        fmq.table.read(shop, since=inside)


def test_a_position_beyond_the_end_is_an_error(shop: str) -> None:
    end = fmq.table.read(shop).end
    assert rows(shop, since=end) == []
    with pytest.raises(fmq.table.PositionBeyond) as caught:
        fmq.table.read(shop, since=end + 1)
    assert (caught.value.position, caught.value.end) == (end + 1, end)


def test_what_retention_dropped_is_an_error_that_names_the_bytes(tmp_path: Path) -> None:
    shop = str(tmp_path / "shop")
    with fmq.open(shop, replace(SMALL, retain_bytes=20_000), background=False) as engine:
        engine.send("orders", b"first")
        engine.checkpoint()
        place = fmq.table.read(shop).end
        for _ in range(100):
            engine.send("orders", b"x" * 2000)
        engine.checkpoint()
    with pytest.raises(fmq.table.Outrun) as caught:
        fmq.table.read(shop, since=place)
    gap = caught.value
    assert (gap.start, f"{gap.end - gap.start:,} bytes" in str(gap)) == (place, True)
    behind = fmq.table.read(shop, since=gap.end)
    assert behind.read_all().to_pylist() == rows(shop) != []


def test_topic_and_queue_choose_rows(shop: str) -> None:
    whole = rows(shop)
    middle = whole[len(whole) // 2]["position"]
    since = fmq.table.read(shop, until=middle).end
    assert rows(shop, since=since, topic="orders", queue=1) == [
        row
        for row in whole
        if row["position"] >= since and (row["topic"], row["queue"]) == ("orders", 1)
    ]
    assert {row["topic"] for row in rows(shop, topic=["emails", "late"])} == {"emails", "late"}
    with pytest.raises(fmq.BadOption, match="no topic to choose by"):
        fmq.table.read(shop, "transactions", topic="orders")


def test_several_journals_go_on_each_at_its_own_position(tmp_path: Path) -> None:
    """`ends` of a reader is `since` of the next one. One position for all is refused."""
    paths = [str(tmp_path / name) for name in ("web1", "web2")]
    for path in paths:
        with fmq.open(path, SMALL, background=False) as engine:
            fill(engine, 10)
            engine.checkpoint()
    whole, got = rows(paths), list[Row]()
    reader = fmq.table.read(paths, limit_messages=11)
    seen = [reader.ends]
    while (found := reader.read_all()).num_rows:
        got += found.to_pylist()
        reader = fmq.table.read(paths, since=reader.ends, limit_messages=11)
        seen.append(reader.ends)
    key = ["store", "position", "topic", "offset"]
    assert sorted(got, key=lambda row: [row[name] for name in key]) == sorted(
        whole, key=lambda row: [row[name] for name in key]
    )
    assert all(old[store] <= new[store] for old, new in pairwise(seen) for store in old)
    for wrong in ("store", "first", "end"):
        with pytest.raises(fmq.BadOption, match=f"`{wrong}` means nothing in a read of 2"):
            getattr(reader, wrong)
    with pytest.raises(fmq.BadOption, match="one position means nothing in 2 journals"):
        fmq.table.read(paths, since=3)


def test_an_undecided_transaction_has_a_row_in_a_whole_read_only(shop: str) -> None:
    """From a position on, it gets its row when it is decided."""
    with fmq.open(shop, SMALL, background=False) as engine:
        tx = engine.transaction(tx_id="waits")
        tx.send("orders", b"x")
        tx.prepare()
        engine.checkpoint()
        assert "undecided" in {row["state"] for row in rows(shop, "transactions")}
        place = fmq.table.read(shop, "transactions", since=0)
        assert "waits" not in {row["tx_id"] for row in place.read_all().to_pylist()}
        tx.commit()
        engine.checkpoint()
    assert [row["tx_id"] for row in rows(shop, "transactions", since=place.end)] == ["waits"]


def test_a_reader_is_an_arrow_stream(shop: str, tmp_path: Path) -> None:
    whole = fmq.table.read(shop).read_all()
    assert pa.RecordBatchReader.from_stream(fmq.table.read(shop)).read_all() == whole
    assert pa.Table.from_batches(list(fmq.table.read(shop))) == whole
    out = tmp_path / "out"
    pyarrow.dataset.write_dataset(fmq.table.read(shop), out, format="parquet")
    assert pyarrow.dataset.dataset(out).count_rows() == whole.num_rows
    with fmq.table.read(shop) as reader:
        assert isinstance(reader, TableReader)
        assert reader.read_next_batch().num_rows > 0
        assert reader.schema == whole.schema


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"since": -1}, fmq.BadOption),
        ({"since": True}, TypeError),
        ({"until": "end"}, TypeError),
        ({"since": {7: 7}}, TypeError),
        ({"limit_messages": 0}, fmq.BadOption),
        ({"limit_bytes": -1}, fmq.BadOption),
        ({"view": "damage", "since": 0}, fmq.BadOption),
        ({"view": "damge", "topic": "orders"}, fmq.BadOption),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    shop: str, how: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        fmq.table.read(shop, **how)

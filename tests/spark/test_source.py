"""Spark shows what the engine shows, row by row."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import fmq
import fmq.table
from tests.spark.reading import Reader, shown_by_engine


def test_spark_reads_the_messages_that_the_engine_shows(shop: Reader) -> None:
    """Compare every column of every message, over several segments and in all kinds of records."""
    assert len(list(Path(shop.path).glob("*.seg"))) > 3
    assert shop.messages() == shown_by_engine(shop.path)


def test_messages_of_a_running_engine_are_read_without_its_lock(reader: Reader) -> None:
    with fmq.open(reader.path) as engine:
        engine.send_many("orders", [b"a", b"b"])
        engine.checkpoint()
        shown = reader.messages()
        assert [row["body"] for row in shown] == [b"a", b"b"]
        assert shown == shown_by_engine(reader.path)


def test_columns_that_spark_takes_as_not_null_are_never_null(shop: Reader) -> None:
    """Every other column of messages is null in some row."""
    told = {field.name for field in shop.view().schema if not field.nullable}
    rows = fmq.table.read(shop.path).read_all()
    assert told == {name for name in rows.schema.names if not rows.column(name).null_count}
    assert all(field.nullable for field in shop.view("records").schema)


def test_the_fields_of_a_codec_are_a_struct(reader: Reader) -> None:
    """Spark computes with them. A schema of the user's own names fields without a codec."""

    @dataclass
    class Order:
        id: int
        note: str | None = None

    with fmq.open(reader.path) as engine:
        orders = engine.topic("orders", codec=fmq.codecs.dataclass(Order))
        orders.send_many([Order(1), Order(2, "x")])
        engine.send("orders", b"\xff")
        engine.send("plain", b'{"id": 5}')
    frame = reader.view(topic="orders", columns="offset,value,body")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,note:string>"
    assert frame.selectExpr("sum(value.id)").collect() == [(3,)]
    assert frame.filter("value is null").count() == 1
    own = reader.spark.read.format("fmq").schema("value struct<id:bigint,flag:boolean>")
    (row,) = own.option("topic", "plain").load(reader.path).collect()
    assert (row.value.id, row.value.flag) == (5, None)
    for wrong in "value binary", "value struct<id:int>":
        with pytest.raises(Exception, match="the column 'value' is a struct of"):
            reader.spark.read.format("fmq").schema(wrong).load(reader.path).collect()


def test_transactions_agree_with_outcome(shop: Reader) -> None:
    """Each transaction has one row, which says the same as `outcome`."""
    rows = {row["tx_id"]: row for row in shop.rows("transactions")}
    with fmq.open(shop.path, read_only=True) as engine:
        for tx_id, row in rows.items():
            outcome = engine.outcome(tx_id)
            assert row["state"] == outcome.state
            assert row["producer"] == outcome.producer
            assert (row["messages"], row["bytes"]) == (outcome.messages, outcome.bytes)
            assert row["prepared"] == outcome.prepared_at.replace(tzinfo=None)
            assert row["seal"] == outcome.seal
            assert row["position"] == outcome.position
            if outcome.decided_at is not None:
                assert row["decided"] == outcome.decided_at.replace(tzinfo=None)
                published = [tuple(queue) for queue in row["queues"]]
                assert published == [
                    (receipt.topic, receipt.queue, receipt.offset, receipt.count)
                    for receipt in outcome.receipts
                ]
    states = [row["state"] for row in rows.values()]
    assert len(rows) == 40
    assert (states.count("undecided"), states.count("rolled back")) == (5, 5)


def test_records_include_messages_that_are_not_committed(shop: Reader) -> None:
    """Their bodies are included."""
    rows = shop.rows("records")
    kinds = {row["kind"] for row in rows}
    assert kinds == {
        "TOPIC", "MESSAGE", "PREPARE", "PRE_MESSAGE", "REF_MESSAGE", "TX_MESSAGE", "COMMIT",
        "ROLLBACK",
    }  # fmt: skip
    hidden = [row for row in rows if row["kind"] == "PRE_MESSAGE" and row["tx_id"] == "two-3"]
    assert [list(map(bytes, row["bodies"])) for row in hidden] == [
        [b"in two phases"],
        [b"a", b"bb", b"ccc"],
    ]
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)


def test_a_transaction_row_counts_the_questions_to_checkers(reader: Reader) -> None:
    with fmq.open(reader.path) as engine:
        tx = engine.transaction(tx_id="order-1", producer="checkout")
        tx.send("orders", b"x")
        tx.prepare()
        [question] = engine.feedback.ask_about("order-1")
        engine.feedback.answer(question, "commit", reason="its row is there")
    [row] = reader.rows("transactions")
    assert (row["state"], row["asked"], row["decided_by"]) == ("committed", 1, "checker")


@pytest.mark.parametrize(
    "columns", ["topic,offset", "body", "time,topic", "headers,key", "tx_id,body", "position"]
)
def test_a_read_of_fewer_columns_gives_the_same_values(shop: Reader, columns: str) -> None:
    """The option `columns` or the user's schema leaves the other columns out."""
    names = columns.split(",")
    whole = [[row[name] for name in names] for row in shop.rows()]
    assert [list(row) for row in shop.rows(columns=columns)] == whole
    schema = shop.view(columns=columns).schema
    by_schema = shop.spark.read.format("fmq").schema(schema).load(shop.path)
    assert [list(row) for row in by_schema.collect()] == whole

"""`fmq.testing.outbox`: an application's calls lead to an engine in memory, and are seen there."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.bind
from fmq.errors import TxIdInUse
from fmq.testing import outbox


def place(engine: Any, order: str) -> None:
    """Send an order as an application does."""
    with engine.transaction() as tx:
        tx.send("orders", order.encode(), key=order, tag="new", headers={"a": "b"})
        tx.send("emails", b"receipt " + order.encode())


def test_messages_of_an_application_are_seen_and_reach_no_journal(tmp_path: Path) -> None:
    engine = fmq.connect(tmp_path / "shop", lazy=True)
    with outbox(engine) as box:
        assert len(box) == 0
        place(engine, "1")
        with pytest.raises(ValueError, match="2"), engine.transaction() as tx:
            tx.send("orders", b"2")
            raise ValueError("2")
        engine.send("orders", b"3")
        assert [each.body for each in box] == [b"1", b"receipt 1", b"3"]
        order = box[0]
        assert (order.topic, order.key, order.tag) == ("orders", "1", "new")
        assert order.headers == {"a": "b"}
        assert [each.body for each in box.of("orders")] == [b"1", b"3"]
        assert [each.body for each in box[1:]] == [b"receipt 1", b"3"]
        assert "('orders', None, b'3')" in repr(box)
    assert [each.body for each in box] == [b"1", b"receipt 1", b"3"], "also after the block"
    assert list(tmp_path.iterdir()) == [], "it never connected"


def test_an_outbox_says_bodies_values_and_the_only_message() -> None:
    with outbox() as box:
        box.engine.send("orders", b'{"id": 1}', key="k")
        box.engine.send_many("emails", [b"a", b"b"])
        assert (box.bodies("emails"), box.bodies("none")) == ([b"a", b"b"], [])
        assert (box.values("orders"), box.one("orders").key) == ([{"id": 1}], "k")
        with pytest.raises(ValueError, match="Expecting"):
            box.values("emails")
        with pytest.raises(AssertionError, match=r"2 messages of 'emails'.*'orders', 'k'"):
            box.one("emails")


@pytest.mark.parametrize("made_by", ["open", "connect"])
def test_the_engine_goes_on_as_before_after_the_block(tmp_path: Path, made_by: str) -> None:
    """A call in the block does not reach it, and one after the block does."""
    engine: Any = fmq.open(tmp_path / "shop")
    serving = engine.serve() if made_by == "connect" else None
    used = fmq.connect(tmp_path / "shop") if serving else engine
    place(used, "1")
    held = used.transaction
    with outbox(used) as box:
        place(used, "2")
        assert isinstance(used, type(engine) if made_by == "open" else fmq.RemoteEngine)
        used.close()
    with outbox(used) as other:
        assert len(other) == 0, "each block begins without messages"
    place(used, "3")
    assert [each.body for each in box.of("orders")] == [b"2"]
    assert [each.body for each in engine.read("orders")] == [b"1", b"3"]
    assert held == used.transaction
    used.close()
    engine.close()


def test_outboxes_may_be_inside_of_each_other(tmp_path: Path) -> None:
    engine = fmq.connect(tmp_path / "shop", lazy=True)
    with outbox(engine) as outer:
        engine.send("t", b"1")
        with pytest.raises(ValueError, match="in a test"), outbox(engine) as inner:
            engine.send("t", b"2")
            raise ValueError("in a test")
        engine.send("t", b"3")
    assert [each.body for each in inner] == [b"2"]
    assert [each.body for each in outer] == [b"1", b"3"]


def test_several_handles_lead_to_one_engine_in_memory(tmp_path: Path) -> None:
    """A worker's handle polls what the handle of the web has sent, if both are diverted."""
    web, worker = (fmq.connect(tmp_path / "shop", lazy=True) for _ in range(2))
    with outbox(web, worker) as box:
        assert box.engine is web
        place(web, "1")
        (delivery,) = worker.consumer("orders", group="g").poll()
        with worker.transaction() as tx:
            tx.ack(delivery)
            tx.send("done", delivery.body)
        assert [each.body for each in box.of("done")] == [b"1"]


def test_an_outbox_can_pass_its_engine_to_the_application() -> None:
    """For one that is given its engine: no directory is named, and none is made."""
    with outbox() as box:
        place(box.engine, "1")
        assert [each.topic for each in box] == ["orders", "emails"]


def test_messages_seen_in_an_outbox_can_be_dropped() -> None:
    with outbox() as box:
        box.clear()
        place(box.engine, "1")
        box.clear()
        assert list(box) == []
        place(box.engine, "2")
        assert [each.body for each in box] == [b"2", b"receipt 2"]
    box.clear()
    assert list(box) == []


def test_the_rules_of_an_engine_hold_in_memory() -> None:
    with outbox(options=fmq.Options(message_bytes_max=1024)) as box:
        with box.engine.transaction(tx_id="T") as tx:
            tx.send("t", b"1")
        with pytest.raises(TxIdInUse):
            box.engine.transaction(tx_id="T")
        with pytest.raises(fmq.errors.TooLarge):
            box.engine.send("t", b"x" * 1025)
        assert box.engine.outcome("T").state == "committed"


def test_many_messages_of_several_queues_are_in_the_order_of_their_transactions() -> None:
    with outbox(options=fmq.Options(queues=3)) as box:
        for number in range(2500):
            box.engine.send("t", b"%d" % number)
        assert [each.body for each in box] == [b"%d" % number for number in range(2500)]


def test_a_block_with_a_database_of_its_own_commits_the_rows_and_a_marker(tmp_path: Path) -> None:
    """The marker lies in the database of the test."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, outbox() as box:
        database.execute("PRAGMA synchronous = EXTRA")
        database.execute("CREATE TABLE orders (name)")
        fmq.bind.create_table(database)
        for order in ("1", "fails"):
            with suppress(ValueError), box.engine.transaction(producer="p", bind=database) as tx:
                database.execute("INSERT INTO orders VALUES (?)", (order,))
                tx.send("orders", order.encode())
                if order == "fails":
                    raise ValueError(order)
        assert [each.body for each in box] == [b"1"]
        assert database.execute("SELECT * FROM orders").fetchall() == [("1",)]


def test_an_outbox_refuses_arguments_that_are_no_engine() -> None:
    wrong: Any = "shop"
    with pytest.raises(TypeError, match=r"made by fmq\.connect"), outbox(wrong):
        pass

"""Bodies that a transaction takes all at once count as those that it takes one by one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmq
from fmq.basics.joined_bodies import JoinedBodies

OPTIONS = fmq.Options(segment_bytes=32 << 10, topic_queues={"one": 1, "three": 3})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "shop", OPTIONS) as engine:
        yield engine


@pytest.mark.parametrize(("topic", "queue"), [("one", None), ("three", None), ("three", 2)])
def test_as_many_fit_as_one_by_one(engine: fmq.Engine, topic: str, queue: int | None) -> None:
    count, single = 0, engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        while True:
            single.send(topic, b"x" * 100, queue=queue)
            count += 1
    assert count > 50
    many = engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        many.send_many(topic, [b"x" * 100] * (count + 1), queue=queue)
    many.send_many(topic, [b"x" * 100] * (count - 1), queue=queue)
    many.send_many(topic, [bytearray(b"x" * 100)], queue=queue)
    with pytest.raises(fmq.errors.TooLarge):
        many.send_many(topic, [b"x" * 100], queue=queue)
    assert sum(receipt.count for receipt in many.commit()) == count


def test_one_body_too_large_refuses_all(engine: fmq.Engine) -> None:
    tx = engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        tx.send_many("one", [b"x", b"y" * 40_000])
    tx.send_many("one", [b"z"])
    tx.commit()
    assert [message.body for message in engine.read("one")] == [b"z"]


bodies = st.lists(st.binary(max_size=5), max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("joined"), bodies),
        st.tuples(st.just("list"), bodies),
        st.tuples(st.sampled_from(["body", "message"]), st.binary(max_size=5)),
        st.tuples(st.sampled_from(["save", "back"]), st.none()),
    )
)


def done(tx: fmq.Transaction, topic: str, steps: list[tuple[str, Any]], *, joins: bool) -> None:
    back = tx.savepoint()
    for name, what in steps:
        if name == "joined" and joins:
            tx.send_many(topic, JoinedBodies(array("I", map(len, what)), [b"".join(what)]))
        elif name in ("joined", "list"):
            tx.send_many(topic, what)
        elif name in ("body", "message"):
            tx.send(topic, what, key="k" if name == "message" else None)
        elif name == "save":
            back = tx.savepoint()
        else:
            back()


@given(steps)
def test_joined_bodies_are_sent_as_a_list_of_them(steps: list[tuple[str, Any]]) -> None:
    """With other messages of the transaction before and behind them, to one queue and to any."""
    with fmq.open(":memory:") as engine:
        for count in (1, 3):
            found = []
            for joins in (True, False):
                topic = f"{count}, {joins}"
                engine.create_topic(topic, queues=count)
                with engine.transaction() as tx:
                    done(tx, topic, steps, joins=joins)
                read = [engine.read(topic, queue=queue) for queue in range(count)]
                found.append([[each[:4] for each in messages] for messages in read])
            assert found[0] == found[1]


def test_joined_bodies_of_several_records_arrive() -> None:
    sent = [b"%d" % number for number in range(150_000)]
    with fmq.open(":memory:") as engine, engine.transaction() as tx:
        tx.send_many("one", JoinedBodies(array("I", map(len, sent)), [b"".join(sent)]))
        receipts = tx.commit()
        assert [each.count for each in receipts] == [65_536, 65_536, 18_928]
        assert [each.body for each in engine.read("one", limit=200_000)] == sent


def test_a_joined_body_too_large_refuses_all(engine: fmq.Engine) -> None:
    tx = engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        tx.send_many("one", JoinedBodies(array("I", [1, 40_000]), [b"x" * 40_001]))
    assert tx.messages == 0
    tx.rollback()


def test_joined_bodies_stay_as_they_are(engine: fmq.Engine) -> None:
    """A part that has no room for its last rows is sent again in halves."""
    joined = JoinedBodies(array("I", [1]), [b"a"])
    with engine.transaction() as tx:
        tx.send_many("one", joined)
        tx.send_many("one", joined)
        tx.send("one", b"b")
    assert [*joined] == [b"a"]
    assert [each.body for each in engine.read("one")] == [b"a", b"a", b"b"]

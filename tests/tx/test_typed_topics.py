"""Topics with a codec: values are sent and handled, and what the codec is called is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import fmq
from fmq import TopicCodec
from fmq.codecs import json
from fmq.errors import BadBody, BadName, BadOption, CodecDiffers, ReadOnly
from fmq.testing import CrashDisk
from fmq.testing.inside import inside
from tests.small import bodies, opened


@dataclass
class Order:
    id: int
    note: str | None = None


class Reversed:
    """A codec of a program's own: texts, from behind."""

    name = "reversed"

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, body: bytes) -> str:
        return body.decode()[::-1]


FIELDS = {"id": "integer", "note": "null|string"}
ORDERS = fmq.codecs.dataclass(Order)


def test_values_are_sent_by_each_call_and_read_again() -> None:
    """By send, send_many, a transaction, a transaction that was prepared, and a schedule."""
    with opened(CrashDisk()) as engine:
        orders = engine.topic("orders", codec=ORDERS)
        assert orders.send(Order(1), key="k").offset == 0
        assert [each.count for each in orders.send_many([Order(2), Order(3)])] == [2]
        with engine.transaction() as tx:
            orders.send_in(tx, Order(4), tag="paid")
            tx.send_many("orders", [orders.message(Order(5), headers={"a": "b"})])
        with engine.transaction() as tx:
            orders.send_in(tx, Order(6))
            tx.prepare()
        orders.schedule("nightly", "0 0 1 1 *", Order(7)).run_now()
        found = engine.read("orders")
        assert [orders.value(each).id for each in found] == [1, 2, 3, 4, 5, 6, 7]
        assert found[0].body == b'{"id":1,"note":null}'
        assert found[3].tag == "paid"
        assert found[4].headers == {"a": "b"}


def test_a_wrong_value_is_refused_before_anything_is_written() -> None:
    """The error names the topic, the codec and the field."""
    with opened(CrashDisk()) as engine:
        orders = engine.topic("orders", codec=ORDERS)
        before = inside(engine).ledger.end
        wrong: Any = Order("1")  # type: ignore[arg-type]
        with pytest.raises(BadBody, match=r"'orders'.*'json'.*'id'.*expected integer") as refused:
            orders.send(wrong)
        assert (refused.value.topic, refused.value.codec) == ("orders", "json")
        assert (refused.value.field, refused.value.place) == ("id", None)
        with pytest.raises(BadBody):
            orders.send_many([Order(1), wrong])
        with pytest.raises(BadBody):
            orders.schedule("nightly", "0 0 1 1 *", wrong)
        with engine.transaction() as tx:
            with pytest.raises(BadBody):
                orders.send_in(tx, wrong)
            assert tx.messages == 0
            tx.rollback()
        assert inside(engine).ledger.end == before
        assert bodies(engine, "orders") == []


def test_a_delivery_has_the_value_of_its_body() -> None:
    with opened(CrashDisk()) as engine:
        engine.topic("orders", codec=ORDERS).send(Order(1))
        engine.topic("words", codec=Reversed()).send("abc")
        engine.send("plain", b"1")
        with engine.consumer(["orders", "words", "plain"], group="g") as consumer:
            handed = {each.topic: each for _ in range(3) for each in consumer.poll()}
            assert handed["orders"].value == Order(1)
            assert handed["orders"].value is handed["orders"].value
            assert (handed["words"].value, handed["words"].body) == ("abc", b"cba")
            with pytest.raises(BadOption, match=r"'plain' has no codec.*codec=\.\.\."):
                handed["plain"].value  # noqa: B018


def test_a_body_that_cannot_be_decoded_becomes_a_dead_letter_at_once() -> None:
    """It has its reason, whatever the consumer's retry says. An error about another message counts
    as a failed attempt.
    """
    with opened(CrashDisk()) as engine:
        orders = engine.topic("orders", codec=ORDERS)
        engine.send_many("orders", [b"{", b'{"id":"x"}', b'{"id":3}'])
        with engine.consumer("orders", group="g", retry=fmq.Retry(backoff=0.0)) as consumer:
            first, second, third = consumer.poll()
            for each in first, second:
                with pytest.raises(BadBody), each:
                    each.value  # noqa: B018
            with pytest.raises(BadBody), third:
                orders.value(first)
            assert third.value == Order(3)
            assert [each.offset for each in consumer.poll()] == [2]
        letters = engine.dead_letters("g").list()
        assert [each.offset for each in letters] == [0, 1]
        assert "cannot decode the field 'id' of the body: expected integer" in letters[1].reason


def test_run_makes_a_dead_letter_of_it_and_goes_on() -> None:
    with opened(CrashDisk()) as engine:
        orders = engine.topic("orders", codec=ORDERS)
        engine.send("orders", b"junk")
        orders.send(Order(2))
        handled = []
        consumer = engine.consumer("orders", group="g")

        def handle(delivery: Any) -> None:
            handled.append(delivery.value)
            delivery.ack()
            consumer.close()

        consumer.run(handle)
        assert handled == [Order(2)]
        assert [each.offset for each in engine.dead_letters("g")] == [0]


def test_the_codec_is_stored_with_its_topic() -> None:
    """It is there after a replay, after a checkpoint, and for those who only read."""
    disk = CrashDisk()
    with opened(disk) as engine:
        assert engine.create_topic("orders").codec() is None
        engine.topic("orders", codec=ORDERS)
        assert engine.topic("orders").codec() == TopicCodec("json", 1, FIELDS)
        end = inside(engine).ledger.end
        engine.topic("orders", codec=ORDERS)  # there is nothing to change
        assert inside(engine).ledger.end == end
    with opened(disk) as engine:
        assert engine.topic("orders").codec() == TopicCodec("json", 1, FIELDS)
        engine.checkpoint()
    with opened(disk) as engine:
        assert engine.topic("orders").codec() == TopicCodec("json", 1, FIELDS)
    with fmq.open("data", read_only=True, disk=disk) as reader:
        assert reader.topic("orders").codec() == TopicCodec("json", 1, FIELDS)
        with pytest.raises(ReadOnly):
            reader.topic("orders", codec=ORDERS)
    with opened(disk) as engine:
        engine.topic("orders").delete()
        assert engine.create_topic("orders").codec() is None


def test_the_first_codec_makes_its_topic() -> None:
    with opened(CrashDisk(), topic_queues={"orders": 3}) as engine:
        assert len(engine.topic("orders", codec=ORDERS).queues()) == 3
        with pytest.raises(BadName):
            engine.topic("", codec=ORDERS)


def test_another_codec_of_the_same_version_is_refused() -> None:
    with opened(CrashDisk()) as engine:
        engine.topic("orders", codec=ORDERS)
        with pytest.raises(CodecDiffers, match=r"'orders' has .*'json' of version 1, and") as e:
            engine.topic("orders", codec=Reversed())
        assert "version=" in str(e.value)
        engine.topic("orders", codec=json())  # knows no fields, so it has no others
        assert engine.topic("orders").codec() == TopicCodec("json", 1, FIELDS)


def test_a_higher_version_is_stored_and_a_lower_one_goes_on() -> None:
    """Bodies of the first version say nothing, and others say theirs in a header."""
    with opened(CrashDisk()) as engine:
        old = engine.topic("orders", codec=ORDERS)
        old.send(Order(1))
        upper: fmq.codecs.Codec[dict[str, Any]]
        upper = json(dict, version=2, old={1: lambda body: {"was": body}})
        new = engine.topic("orders", codec=upper)
        assert engine.topic("orders").codec() == TopicCodec("json", 2, None)
        new.send({"id": "two"})
        engine.topic("orders", codec=ORDERS).send(Order(3))
        assert engine.topic("orders").codec() == TopicCodec("json", 2, None)
        first, second, third = engine.read("orders")
        assert [each.headers for each in (first, second, third)] == [
            None,
            {"fmq-version": "2"},
            None,
        ]
        assert new.value(second) == {"id": "two"}
        assert new.value(third) == {"was": b'{"id":3,"note":null}'}
        with pytest.raises(BadBody, match="version 2, and this codec knows up to 1"):
            old.value(second)


@pytest.mark.parametrize("wrong", [5, "json", object(), fmq.codecs, Order])
def test_what_is_no_codec_is_refused(wrong: Any) -> None:
    with opened(CrashDisk()) as engine:
        with pytest.raises(TypeError, match="a codec has"):
            engine.topic("orders", codec=wrong)
        assert engine.queues() == []

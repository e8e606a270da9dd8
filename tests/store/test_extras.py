"""The extras of messages: ids, priorities and expiries, as columns of the record's extension."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fmq import Message
from fmq.errors import BadName, BadOption
from fmq.store.bytes.content import encode_messages
from fmq.store.bytes.extension import Request, encode_extension, extension_of, without_request
from fmq.store.bytes.extras import (
    EXPIRIES,
    MESSAGE_IDS,
    PRIORITIES,
    Extras,
    check_message_columns,
    has_extras,
)
from fmq.store.bytes.pieces import BadColumns
from fmq.testing import CrashDisk
from tests.small import opened

LATER = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
SENT = [
    Message(b"1", message_id="order 4711 ä", priority=9),
    Message(b"2", key="k", expires_at=LATER),
    Message(b"3", message_id="x" * 255, priority=0, expires_at=LATER),
    Message(b"4"),
]
REQUEST = Request(bytes(16), 7, 1)


def as_sent(messages: list[Message]) -> list[Message]:
    return [each._replace(offset=None, origin=None) for each in messages]


def test_a_message_without_extras_takes_no_extra_byte() -> None:
    plain = encode_messages([Message(b"x", key="k")], None)
    assert plain.extension == b""
    with opened(CrashDisk()) as engine:
        first = engine.send("t", b"x")
        second = engine.send("t", b"x")
        third = engine.send("t", b"x", priority=3)
        fourth = engine.send("t", b"x")
    assert fourth.position - third.position > third.position - second.position
    assert third.position - second.position == second.position - first.position


def test_extras_are_read_as_they_were_sent() -> None:
    with opened(CrashDisk()) as engine:
        for each in SENT:
            body, key, *_, message_id, priority, expires_at = each
            engine.send(
                "one by one",
                body,
                key=key,
                message_id=message_id,
                priority=priority,
                expires_at=expires_at,
            )
        engine.send_many("together", SENT)
        assert as_sent(engine.read("one by one")) == as_sent(engine.read("together")) == SENT
        batch = engine.read_batch("together", offset=1, limit=2)
        assert batch is not None
        assert as_sent(batch.messages) == SENT[1:3]


def test_a_delivery_has_the_extras_of_its_message() -> None:
    with opened(CrashDisk()) as engine, engine.consumer("t", group="g") as consumer:
        engine.send("t", b"x", message_id="m", priority=4, expires_at=LATER)
        engine.send("t", b"y")
        first, second = consumer.poll(limit=2)
        assert (first.message_id, first.priority, first.expires_at) == ("m", 4, LATER)
        assert (second.message_id, second.priority, second.expires_at) == (None, None, None)


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("phases", [1, 2])
def test_a_transaction_publishes_extras_by_reference_and_by_copy(phases: int, size: int) -> None:
    body = b"b" * size
    sent = [each._replace(body=body) for each in SENT]
    disk = CrashDisk()
    with opened(disk, segment_bytes=32768, reference_bytes_min=256) as engine:
        with engine.transaction() as tx:
            tx.send("t", body, message_id=sent[0].message_id, priority=9)
            tx.send_many("t", sent[1:])
            if phases == 2:
                tx.prepare()
        assert as_sent(engine.read("t")) == sent
    with opened(disk) as engine:
        assert as_sent(engine.read("t")) == sent


def test_relocation_and_a_commit_in_another_segment_keep_extras() -> None:
    disk = CrashDisk()
    with opened(disk, relocate_bytes=4096, segment_bytes=8192) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send_many("t", SENT)
        tx.prepare()
        before = engine.undecided()[0].position
        for _ in range(60):
            engine.send("other", bytes(500))
        assert engine.undecided()[0].position > before
        engine.decide("T", "commit")
        assert as_sent(engine.read("t")) == SENT


def test_a_question_shows_the_extras_of_its_messages() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction(producer="p", check_after=0)
        tx.send_many("t", SENT)
        tx.prepare()
        (question,) = engine.feedback.ask("p")
        assert as_sent(question.messages()) == SENT
        tx.rollback()


def test_limits_count_extras_so_that_a_commit_always_fits() -> None:
    """A transaction is filled with the worst case: plain messages first, then one with extras."""
    with opened(CrashDisk(), segment_bytes=8192) as engine:
        tx = engine.transaction()
        with pytest.raises(Exception, match="in bytes"):
            while True:
                tx.send("t", b"")
        with pytest.raises(Exception, match="in bytes"):
            tx.send("t", b"", priority=1)
        back = tx.savepoint()
        back()
        tx.commit()
        for plain in range(100, 300, 25):
            tx = engine.transaction()
            tx.send_many("t", [b""] * plain)
            with pytest.raises(Exception, match="in bytes"):
                while True:
                    tx.send("t", b"", message_id="i" * 255, priority=1, expires_at=LATER)
            tx.prepare()
            tx.commit()


@pytest.mark.parametrize(
    ("extras", "error", "text"),
    [
        ({"message_id": ""}, BadName, "0 bytes"),
        ({"message_id": "ä" * 128}, BadName, "256 bytes"),
        ({"message_id": "\udc80"}, BadName, "UTF-8"),
        ({"message_id": 7}, TypeError, "str"),
        ({"message_id": b"x"}, TypeError, "str"),
        ({"priority": -1}, BadOption, "0 to 9"),
        ({"priority": 10}, BadOption, "0 to 9"),
        ({"priority": True}, TypeError, "int"),
        ({"priority": "1"}, TypeError, "int"),
        ({"expires_at": datetime(2031, 5, 6)}, BadOption, "time zone"),  # noqa: DTZ001
        ({"expires_at": 7.0}, TypeError, "datetime"),
    ],
)
def test_bad_extras_are_refused_and_nothing_is_sent(
    extras: dict[str, Any], error: type[Exception], text: str
) -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction()
        for call in (
            lambda: engine.send("t", b"x", **extras),
            lambda: engine.send_many("t", [b"y", Message(b"x", **extras)]),
            lambda: tx.send("t", b"x", **extras),
            lambda: tx.send_many("t", [b"y", Message(b"x", **extras)]),
        ):
            with pytest.raises(error, match=text):
                call()
        assert tx.messages == 0
        tx.rollback()
        assert engine.queues() == []


# --- forged ones --------------------------------------------------------------------------------


def id_column(sizes: list[int], text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + array("H", sizes).tobytes() + text


@pytest.mark.parametrize(
    "columns",
    [
        {MESSAGE_IDS: b""},
        {MESSAGE_IDS: id_column([1], b"a")},
        {MESSAGE_IDS: id_column([1, 5], b"ab")},
        {MESSAGE_IDS: id_column([1, 1], b"ab") + b"c"},
        {MESSAGE_IDS: id_column([0, 1], b"b")},
        {MESSAGE_IDS: id_column([1, 256], b"b" * 257)},
        {MESSAGE_IDS: id_column([1, 1], b"a\xff")},
        {PRIORITIES: b"\1"},
        {PRIORITIES: b"\1\2\3"},
        {PRIORITIES: b"\1\x0a"},
        {EXPIRIES: bytes(15)},
        {EXPIRIES: bytes(17)},
    ],
)
def test_columns_that_fmq_cannot_have_written_are_refused(columns: dict[int, bytes]) -> None:
    with pytest.raises(BadColumns):
        Extras(encode_extension(columns), 2).check()


@given(st.binary(max_size=60), st.integers(1, 5))
@example(encode_extension({MESSAGE_IDS: id_column([0xFFFF], b"")}), 1)
def test_random_bytes_decode_to_extras_or_are_refused(data: bytes, count: int) -> None:
    try:
        check_message_columns(data)
        extras = Extras(data, count)
        extras.check()
    except BadColumns:
        return
    ask: list[Callable[[int, int], Any]] = [extras.ids, extras.priorities, extras.expiries]
    for each in ask:
        found = each(0, count)
        assert found is None or len(found) == count


def test_a_request_and_extras_share_an_extension() -> None:
    alone, extras = extension_of(REQUEST), encode_messages(SENT, None).extension
    both = extension_of(REQUEST, extras)
    assert not has_extras(alone)
    assert has_extras(extras)
    assert has_extras(both)
    assert without_request(both) == extras
    assert without_request(alone) == b""
    with pytest.raises(BadColumns):
        check_message_columns(both)

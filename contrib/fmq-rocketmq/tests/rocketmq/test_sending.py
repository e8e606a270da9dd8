"""Sending through the door: one message, several, delayed ones and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq_rocketmq.protocol import Code, DigestType, MessageType, message
from fmq_rocketmq.testing import Broker, Caller


@pytest.fixture
def caller(rocketmq: Broker) -> Iterator[Caller]:
    with Caller(rocketmq.address) as made:
        yield made


def test_a_message_has_all_of_its_parts_in_fmq(rocketmq: Broker, caller: Caller) -> None:
    said: dict[str, Any] = {
        "tag": "paid",
        "keys": ["k1", "k2"],
        "message_id": "id-1",
        "trace_context": "trace",
    }
    answer = caller.send("orders", b"order 1", properties={"amount": "70"}, **said)
    assert answer.status.code == Code.OK
    assert (answer.entries[0].message_id, answer.entries[0].offset) == ("id-1", 0)
    (found,) = rocketmq.engine.read("orders")
    assert (found.body, found.key, found.tag, found.message_id) == (
        b"order 1",
        "k1",
        "paid",
        "id-1",
    )
    assert found.headers is not None
    assert found.headers["amount"] == "70"
    assert found.headers["rocketmq.keys"] == "k1 k2"


def test_a_send_that_a_client_repeats_is_stored_once(rocketmq: Broker, caller: Caller) -> None:
    for _ in range(3):
        assert caller.send("orders", b"1", message_id="same").entries[0].offset == 0
    assert len(rocketmq.engine.read("orders")) == 1


def test_several_messages_of_a_request_are_sent_all_or_none(
    rocketmq: Broker, caller: Caller
) -> None:
    assert len(caller.send("orders", b"1", b"2", b"3").entries) == 3
    assert len(rocketmq.engine.read("orders")) == 3
    too_large = bytes(rocketmq.engine.options.message_bytes_max + 1)
    assert caller.send("orders", b"4", too_large).status.code == Code.MESSAGE_BODY_TOO_LARGE
    assert len(rocketmq.engine.read("orders")) == 3


def test_each_of_several_messages_has_its_offset_in_the_answer(caller: Caller) -> None:
    caller.send("orders", b"0")
    answer = caller.send("orders", b"1", b"2", b"3")
    assert [each.offset for each in answer.entries] == [1, 2, 3]


def test_a_delayed_message_waits_and_can_be_recalled_after_a_restart(tmp_path: Path) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    with Broker(tmp_path / "a") as broker, Caller(broker.address) as caller:
        sent = caller.send("later", b"1", kind=MessageType.DELAY, delivery_timestamp=at)
        handle = sent.entries[0].recall_handle
        assert broker.engine.read("later") == []
        assert len(broker.engine.delayed("later")) == 1
    with Broker(tmp_path / "a") as broker, Caller(broker.address) as caller:
        topic = {"name": "later"}
        recalled = caller.call("RecallMessage", topic=topic, recall_handle=handle)
        assert recalled.status.code == Code.OK
        assert recalled.message_id == sent.entries[0].message_id
        assert broker.engine.delayed("later") == []
        again = caller.call("RecallMessage", topic=topic, recall_handle=handle)
        assert again.status.code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    "handle", ["", "fmq1.", "fmq1.!!", "fmq1.W10=", "fmq1.eyJhIjoxfQ==", "x" * 99]
)
def test_a_handle_that_is_none_recalls_nothing(caller: Caller, handle: str) -> None:
    answer = caller.call("RecallMessage", topic={"name": "later"}, recall_handle=handle)
    assert answer.status.code == Code.BAD_REQUEST


def test_a_transaction_is_seen_once_it_is_committed(rocketmq: Broker, caller: Caller) -> None:
    tx_id = caller.half("orders", b"1").transaction_id
    assert rocketmq.engine.read("orders") == []
    assert rocketmq.engine.outcome(tx_id).producer == "rocketmq"
    assert caller.end(tx_id, commits=True).code == Code.OK
    assert [each.body for each in rocketmq.engine.read("orders")] == [b"1"]


@pytest.mark.parametrize("commits", [True, False])
def test_the_same_decision_again_succeeds_and_the_opposite_is_refused(
    rocketmq: Broker, caller: Caller, commits: bool
) -> None:
    """RocketMQ takes both: commit twice delivers twice, and a commit after a rollback delivers."""
    tx_id = caller.half("orders", b"1").transaction_id
    assert caller.end(tx_id, commits=commits).code == Code.OK
    assert caller.end(tx_id, commits=commits).code == Code.OK
    refused = caller.end(tx_id, commits=not commits)
    assert refused.code == Code.INVALID_TRANSACTION_ID
    assert "the first durable decision stands" in refused.message
    assert len(rocketmq.engine.read("orders")) == commits


def test_a_half_message_that_a_client_repeats_is_one_transaction(
    rocketmq: Broker, caller: Caller
) -> None:
    first = caller.half("orders", b"1", message_id="same")
    assert caller.half("orders", b"1", message_id="same") == first
    assert len(rocketmq.engine.undecided()) == 1
    caller.end(first.transaction_id, commits=True)
    assert caller.half("orders", b"1", message_id="same") == first
    assert rocketmq.engine.undecided() == []
    assert len(rocketmq.engine.read("orders")) == 1


def test_a_half_message_that_is_refused_leaves_its_id_free(tmp_path: Path) -> None:
    options = fmq.Options(transactions_max=1)
    with Broker(tmp_path / "a", options) as broker, Caller(broker.address) as caller:
        first = caller.half("orders", b"1").transaction_id
        kind = MessageType.TRANSACTION
        refused = caller.send("orders", b"2", kind=kind, message_id="second")
        assert refused.status.code == Code.TOO_MANY_REQUESTS
        caller.end(first, commits=True)
        assert caller.half("orders", b"2", message_id="second").transaction_id


def test_a_client_decides_no_transaction_of_another_kind(rocketmq: Broker, caller: Caller) -> None:
    tx = rocketmq.engine.transaction(tx_id="mine", producer="shop")
    tx.send("orders", b"1")
    tx.prepare()
    assert caller.end("mine", commits=True).code == Code.INVALID_TRANSACTION_ID
    assert rocketmq.engine.outcome("mine").state == "undecided"
    assert caller.end("rocketmq-unknown", commits=True).code == Code.INVALID_TRANSACTION_ID
    tx.rollback()


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_what_is_answered_with_ok_is_durable_with_any_option(
    tmp_path: Path, sync: fmq.Options
) -> None:
    """Method: the engine would sync after an hour, and a reader sees only what is durable."""
    options = fmq.Options(sync=sync, sync_interval_seconds=3600)  # type: ignore[arg-type]
    with Broker(tmp_path / "a", options) as broker, Caller(broker.address) as caller:

        def seen() -> int:
            with fmq.open(tmp_path / "a", read_only=True) as reader:
                return len(reader.read("orders"))

        caller.send("orders", b"1")
        assert seen() == 1
        caller.send("orders", b"2", b"3")
        assert seen() == 3
        caller.end(caller.half("orders", b"4").transaction_id, commits=True)
        assert seen() == 4
        handles = [
            each.system_properties.receipt_handle for each in caller.receive("orders", "group")
        ]
        caller.ack("orders", handles[0])
        with fmq.open(tmp_path / "a", read_only=True) as reader:
            assert reader.groups("group")[0].acked_below == 1
        caller.ack("orders", *handles[1:])
        with fmq.open(tmp_path / "a", read_only=True) as reader:
            assert reader.groups("group")[0].acked_below == 4


GOOD: dict[str, Any] = {"topic": "orders", "body": b"1", "kind": MessageType.NORMAL}
REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "no topic": ({"topic": ""}, Code.ILLEGAL_TOPIC),
    "a topic that is too long": ({"topic": "x" * 256}, Code.ILLEGAL_TOPIC),
    "a topic with a separator": ({"topic": "a%b"}, Code.ILLEGAL_TOPIC),
    "no body": ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
    "no message id": ({"message_id": ""}, Code.ILLEGAL_MESSAGE_ID),
    "a message id that is too long": ({"message_id": "x" * 201}, Code.ILLEGAL_MESSAGE_ID),
    "a key with a blank": ({"keys": ["a b"]}, Code.ILLEGAL_MESSAGE_KEY),
    "a property of the server": (
        {"properties": {"rocketmq.type": "x"}},
        Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
    ),
    "large properties": ({"properties": {"a": "x" * 33_000}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    "FIFO without a group": (
        {"kind": MessageType.FIFO},
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    "a transaction with a group": (
        {"kind": MessageType.TRANSACTION, "message_group": "g"},
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    "a delay without a time": (
        {"kind": MessageType.DELAY},
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    "a lite topic": ({"kind": MessageType.LITE}, Code.UNSUPPORTED),
    "a type that nobody knows": ({"kind": 77}, Code.UNSUPPORTED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_message_that_is_not_right_is_refused_with_its_code(
    rocketmq: Broker, caller: Caller, name: str
) -> None:
    wrong, code = REFUSED[name]
    said = GOOD | wrong
    topic, body = said.pop("topic"), said.pop("body")
    answer = caller.send(str(topic), body, **said)
    assert answer.status.code == code, answer
    assert "Nothing was" in answer.status.message
    assert rocketmq.engine.queues() == []


def test_a_body_that_is_not_what_its_digest_says_is_refused(
    rocketmq: Broker, caller: Caller
) -> None:
    for kind, right in ((DigestType.CRC32, "00000000"), (DigestType.MD5, "0" * 32), (99, "0")):
        made = message("Message")(topic={"name": "orders"}, body=b"1")
        made.system_properties.message_id = "id"
        made.system_properties.body_digest.type = kind
        made.system_properties.body_digest.checksum = right
        answer = caller.call("SendMessage", messages=[made])
        assert answer.status.code == Code.MESSAGE_CORRUPTED
    assert rocketmq.engine.queues() == []

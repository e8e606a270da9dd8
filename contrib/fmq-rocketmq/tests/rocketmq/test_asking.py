"""Check-back: a producer is asked what became of a transaction that nobody has decided."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq_rocketmq.clients import COMMANDS_MAX, SILENCE_SECONDS, TOPICS_MAX, Clients
from fmq_rocketmq.protocol import Code
from fmq_rocketmq.testing import Broker, Caller

SOON = fmq.Options(check_after_seconds=0.01, check_backoff_seconds=0.01)


def test_an_orphan_is_asked_about_after_a_restart(tmp_path: Path) -> None:
    """The producer that is asked has sent nothing: it has only named its topic."""
    with Broker(tmp_path / "a", SOON) as broker, Caller(broker.address) as caller:
        tx_id = caller.half("orders", b"orphan", tag="t", properties={"a": "1"}).transaction_id
    with Broker(tmp_path / "a", SOON) as broker, Caller(broker.address, "heir") as heir:
        stream = heir.telemetry()
        assert stream.publishes("orders").settings.publishing.max_body_size == 4 << 20
        asked = stream.next().recover_orphaned_transaction_command
        assert (asked.transaction_id, asked.message.body) == (tx_id, b"orphan")
        assert asked.message.system_properties.tag == "t"
        assert dict(asked.message.user_properties) == {"a": "1"}
        assert heir.end(tx_id, commits=True).code == Code.OK
        assert [each.body for each in broker.engine.read("orders")] == [b"orphan"]
        stream.close()


def test_a_producer_that_has_named_no_topic_is_asked_about_what_it_has_sent(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "a", SOON) as broker, Caller(broker.address) as caller:
        stream = caller.telemetry()
        stream.publishes()
        tx_id = caller.half("orders", b"1").transaction_id
        asked = stream.next().recover_orphaned_transaction_command
        assert asked.transaction_id == tx_id
        stream.close()


def test_a_checker_that_does_not_know_is_asked_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "a", SOON) as broker, Caller(broker.address) as caller:
        tx_id = caller.half("orders", b"1").transaction_id
        stream = caller.telemetry()
        stream.publishes("orders")
        for answers in (0, 1, 2):
            asked = stream.next().recover_orphaned_transaction_command
            assert asked.transaction_id == tx_id
            assert broker.engine.undecided()[0].answers == answers
            assert caller.end(tx_id, commits=None).code == Code.OK
        assert caller.end(tx_id, commits=False).code == Code.OK
        stream.close()


def test_a_producer_of_other_topics_is_not_asked() -> None:
    clients = Clients()
    orders, emails = clients.open("a"), clients.open("b")
    clients.publishes(orders, ["orders"])
    clients.publishes(emails, ["emails"])
    assert clients.wait_for_topics() == ["emails", "orders"]
    assert clients.send_to_producer("emails", "command")
    assert not clients.send_to_producer("other", "command")
    emails.end_after_rest()
    orders.end_after_rest()
    assert [[*orders.commands()], [*emails.commands()]] == [[], ["command"]]


def test_producers_of_a_topic_take_turns_and_one_that_does_not_read_is_passed_over() -> None:
    clients = Clients()
    streams = [clients.open(name) for name in "ab"]
    for each in streams:
        clients.publishes(each, ["orders"])
    for number in range(4):
        assert clients.send_to_producer("orders", number)
    for each in streams:
        while each.send("more"):
            pass
    assert not clients.send_to_producer("orders", "too much")
    first = next(iter(streams[0].commands()))
    assert first == 0
    assert clients.send_to_producer("orders", "fits")
    assert COMMANDS_MAX > 4


def test_a_client_lives_while_it_is_connected_and_for_a_short_time_after_its_last_call() -> None:
    now = [100.0]
    clients = Clients(lambda: now[0])
    assert not clients.is_live("a")
    clients.note_call("a")
    stream = clients.open("b")
    assert clients.is_live("a")
    now[0] += SILENCE_SECONDS
    assert not clients.is_live("a")
    assert clients.is_live("b")
    clients.close(stream)
    assert not clients.is_live("b")


def test_settings_that_are_not_right_end_the_stream_with_a_code(rocketmq: Broker) -> None:
    with Caller(rocketmq.address) as caller:
        for data, code in (
            (b"\xff\xff", Code.BAD_REQUEST),
            (b"\x12\x00", Code.UNRECOGNIZED_CLIENT_TYPE),  # settings that say nothing
        ):
            stream = caller.telemetry()
            stream.send_bytes(data)
            assert stream.next().status.code == code
            with pytest.raises(StopIteration):
                stream.next()
        stream = caller.telemetry()
        refused = stream.publishes(*map(str, range(TOPICS_MAX + 1)))
        assert refused.status.code == Code.BAD_REQUEST


def test_a_push_consumer_is_told_how_to_consume(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "a", fifo_groups=["in-order"]) as broker,
        Caller(broker.address) as caller,
    ):
        stream = caller.telemetry()
        for group, is_fifo in (("in-order", True), ("other", False)):
            told = stream.subscribes(group).settings
            assert told.subscription.fifo == is_fifo
            assert told.subscription.receive_batch_size == 32
            assert told.backoff_policy.max_attempts == 17
            assert told.backoff_policy.customized_backoff.next[0].seconds == 10
        stream.close()

"""Taking through the door: filters, order, leases, acks and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import filters
from fmq_rocketmq.clients import Clients
from fmq_rocketmq.lending import RENEWED_SECONDS, Lending
from fmq_rocketmq.protocol import Code, MessageType
from fmq_rocketmq.receiving import FILTER_SECONDS, Receiving
from fmq_rocketmq.testing import Answered, Broker, Caller


@pytest.fixture
def caller(rocketmq: Broker) -> Iterator[Caller]:
    with Caller(rocketmq.address) as made:
        yield made


def bodies(found: list[Any]) -> list[bytes]:
    return [each.body for each in found]


def handle_of(found: Any) -> str:
    handle: str = found.system_properties.receipt_handle
    return handle


def test_a_client_gets_what_a_client_has_sent(caller: Caller) -> None:
    said: dict[str, Any] = {"tag": "paid", "keys": ["k1", "k2"], "message_id": "id-1"}
    said |= {"trace_context": "trace", "born_host": "host"}
    caller.send("orders", b"order 1", properties={"amount": "70"}, **said)
    (found,) = caller.receive("orders")
    system = found.system_properties
    assert (found.topic.name, found.body) == ("orders", b"order 1")
    assert dict(found.user_properties) == {"amount": "70"}
    assert (system.tag, [*system.keys], system.message_id) == ("paid", ["k1", "k2"], "id-1")
    assert (system.trace_context, system.born_host) == ("trace", "host")
    assert (system.delivery_attempt, system.queue_offset) == (1, 0)
    assert system.invisible_duration.seconds == 30


def test_a_client_gets_what_a_program_of_fmq_has_sent(rocketmq: Broker, caller: Caller) -> None:
    """Headers that look like the server's own may say anything."""
    odd = {"rocketmq.type": "?", "rocketmq.encoding": "?", "rocketmq.born_at": "9" * 30, "a": "1"}
    with rocketmq.engine.transaction() as tx:
        tx.send("orders", b"", key="k")
        tx.send("orders", b"2", headers=odd)
    first, second = caller.receive("orders")
    assert first.body == b""
    assert first.system_properties.message_id == "orders/0/0"
    assert [*first.system_properties.keys] == ["k"]
    assert dict(second.user_properties) == {"a": "1"}


def test_an_acked_message_does_not_come_again_and_a_repeated_ack_succeeds(
    rocketmq: Broker, caller: Caller
) -> None:
    caller.send("orders", b"1")
    (found,) = caller.receive("orders")
    for _ in range(2):
        answer = caller.ack("orders", handle_of(found))
        assert (answer.status.code, answer.entries[0].status.code) == (Code.OK, Code.OK)
    assert rocketmq.engine.groups("group")[0].acked_below == 1
    assert caller.receive("orders") == []


def test_each_message_of_an_ack_has_its_own_status(rocketmq: Broker, caller: Caller) -> None:
    caller.send("orders", b"1", b"2")
    handles = [handle_of(each) for each in caller.receive("orders")]
    answer = caller.ack("orders", handles[0], "no handle", handles[1])
    assert answer.status.code == Code.MULTIPLE_RESULTS
    codes = [each.status.code for each in answer.entries]
    assert codes == [Code.OK, Code.INVALID_RECEIPT_HANDLE, Code.OK]
    assert rocketmq.engine.groups("group")[0].acked_below == 2
    assert caller.ack("orders", "no handle").status.code == Code.INVALID_RECEIPT_HANDLE
    assert caller.ack("orders").status.code == Code.BAD_REQUEST


def test_a_handle_is_good_for_its_group_and_topic_only(caller: Caller) -> None:
    caller.send("orders", b"1")
    (found,) = caller.receive("orders")
    for topic, group in (("other", "group"), ("orders", "other")):
        answer = caller.ack(topic, handle_of(found), group=group)
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_handle_that_somebody_has_made_up_is_refused(rocketmq: Broker, caller: Caller) -> None:
    caller.send("orders", b"1")
    (found,) = caller.receive("orders")
    handle = handle_of(found)
    start, ticket, mark = handle.split(".")
    place, queue, offset, attempt = ticket.split("-")
    made_up = [
        f"{start}.{mark}",
        f"{start}..{mark}",
        f"{start}.{'f' * 5000}.{mark}",
        f"{start}.{place}-{queue}-{offset}-2.{mark}",  # another attempt
        f"{start}.{place}-{queue}-7-{attempt}.{mark}",  # no such message
        f"{start}.{place}-ffffffff-{offset}-{attempt}.{mark}",
        f"{start}.0-{queue}-{offset}-{attempt}.{mark}",
    ]
    for each in made_up:
        answer = caller.ack("orders", each)
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE, each
        assert caller.change("orders", each, 5.0).code == Code.INVALID_RECEIPT_HANDLE
    assert caller.ack("orders", handle).status.code == Code.OK


def test_a_message_comes_again_when_its_invisible_time_has_ended(caller: Caller) -> None:
    """The second receive waits until then. An ack with the first handle is refused."""
    caller.send("orders", b"1")
    (first,) = caller.receive("orders", invisible=0.05)
    (second,) = caller.receive("orders", wait=20.0)
    assert second.system_properties.delivery_attempt == 2
    answer = caller.ack("orders", handle_of(first))
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
    assert caller.ack("orders", handle_of(second)).status.code == Code.OK


def test_a_changed_invisible_time_counts_from_now(caller: Caller) -> None:
    caller.send("orders", b"1")
    (found,) = caller.receive("orders")
    assert caller.change("orders", handle_of(found), 3600.0).code == Code.OK
    assert caller.receive("orders") == []
    assert caller.change("orders", handle_of(found), 0.0).code == Code.OK
    (again,) = caller.receive("orders")
    assert again.system_properties.delivery_attempt == 2
    assert caller.change("orders", handle_of(again), 0.0, suspend=True).code == Code.OK
    (again,) = caller.receive("orders")
    assert again.system_properties.delivery_attempt == 2
    refused = caller.change("orders", handle_of(again), -1.0)
    assert refused.code == Code.ILLEGAL_INVISIBLE_TIME
    assert caller.change("orders", "none", 1.0).code == Code.INVALID_RECEIPT_HANDLE


def test_a_handle_and_its_time_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    with Broker(tmp_path / "a") as broker, Caller(broker.address) as caller:
        caller.send("orders", b"1", b"2", b"3", b"4")
        taken = [handle_of(each) for each in caller.receive("orders", invisible=3600.0)]
        assert caller.change("orders", taken[1], 7200.0).code == Code.OK
    with Broker(tmp_path / "a") as broker, Caller(broker.address) as caller:
        assert caller.receive("orders") == []
        for _ in range(2):
            assert caller.ack("orders", taken[0]).status.code == Code.OK
        assert caller.change("orders", taken[1], 3600.0).code == Code.OK
        assert caller.change("orders", taken[2], 0.0).code == Code.OK
        where = {"group": {"name": "group"}, "topic": {"name": "orders"}}
        fields = {"receipt_handle": taken[3]} | where
        assert caller.call("ForwardMessageToDeadLetterQueue", **fields).status.code == Code.OK
        (again,) = caller.receive("orders")
        assert (again.body, again.system_properties.delivery_attempt) == (b"3", 2)
        old = caller.ack("orders", taken[2])
        assert old.status.code == Code.INVALID_RECEIPT_HANDLE
        assert caller.ack("orders", handle_of(again)).status.code == Code.OK
        (dead,) = broker.engine.dead_letters("group")
        assert dead.body == b"4"


def test_tags_and_sql_choose_messages(caller: Caller) -> None:
    for tag, amount in (("open", "70"), ("paid", "30"), ("paid", "80")):
        caller.send("orders", f"{tag} {amount}".encode(), tag=tag, properties={"amount": amount})
    assert bodies(caller.receive("orders", "a", tags="paid")) == [b"paid 30", b"paid 80"]
    found = caller.receive("orders", "b", sql="amount > 50 AND TAGS = 'paid'")
    assert bodies(found) == [b"paid 80"]


def test_a_filter_that_cannot_be_read_or_is_another_one_is_refused(
    rocketmq: Broker, caller: Caller
) -> None:
    with pytest.raises(Answered, match="column 10") as caught:
        caller.receive("orders", sql="amount > ")
    assert caught.value.code == Code.ILLEGAL_FILTER_EXPRESSION
    caller.send("orders", b"1", tag="paid")
    assert len(caller.receive("orders", tags="paid")) == 1
    with pytest.raises(Answered, match="filter") as caught:
        caller.receive("orders", tags="open")
    assert caught.value.code == Code.ILLEGAL_FILTER_EXPRESSION
    # A person changes it, and the clients with the new one go on.
    rocketmq.engine.group("group").set_filter("orders", filters.tags("open"))
    caller.send("orders", b"2", tag="open")
    assert b"2" in bodies(caller.receive("orders", tags="open"))


def test_a_new_filter_counts_once_nobody_asks_with_the_old_one(tmp_path: Path) -> None:
    """As with a new version of a program. Method: the receives are made without a network."""
    clock = Clock()
    with fmq.open(tmp_path / "a") as engine:
        engine.send("orders", b"1", tag="paid")
        receiving = Receiving(engine, Clients(clock), clock=clock)
        wanted, other = filters.tags("paid"), filters.tags("open")
        receiving._consumer("g", "orders", wanted)
        clock.now = FILTER_SECONDS - 1
        receiving._consumer("g", "orders", wanted)
        clock.now += FILTER_SECONDS
        with pytest.raises(fmq.FilterDiffers):
            receiving._consumer("g", "orders", other)
        clock.now += 1
        receiving._consumer("g", "orders", other)
        engine.send("orders", b"2", tag="open")
        assert bodies(receiving._consumer("g", "orders", other).poll(timeout=5.0)) == [b"2"]
        receiving.close()


def test_all_queues_of_a_topic_are_shown_and_each_receive_brings_messages_of_all(
    rocketmq: Broker, caller: Caller
) -> None:
    rocketmq.engine.create_topic("wide", queues=3)
    for number in range(12):
        caller.send("wide", b"%d" % number, keys=[f"k{number}"])
    topic, group = {"name": "wide"}, {"name": "group"}
    queues = caller.call("QueryRoute", topic=topic).message_queues
    assert [each.id for each in queues] == [0, 1, 2]
    assigned = caller.call("QueryAssignment", topic=topic, group=group).assignments
    assert [each.message_queue.id for each in assigned] == [0, 1, 2]
    found = []
    while some := caller.receive("wide"):
        found += bodies(some)
    assert {*found} == {b"%d" % number for number in range(12)}
    assert len({info.queue for info in rocketmq.engine.queues("wide") if info.next}) > 1


def test_receives_that_are_too_many_do_not_wait_and_others_are_served(tmp_path: Path) -> None:
    """Of eight threads three may wait in a receive."""
    with (
        Broker(tmp_path / "a", workers=8) as broker,
        ExitStack() as callers,
        ThreadPoolExecutor(5) as threads,
    ):
        made = [callers.enter_context(Caller(broker.address, f"c{n}")) for n in range(5)]
        waits = [threads.submit(each.receive, "orders", wait=20.0) for each in made]
        done = islice(as_completed(waits, timeout=15.0), 2)
        assert [each.result() for each in done] == [[], []]
        with Caller(broker.address, "sender") as sender:
            assert sender.send("orders", b"1").status.code == Code.OK
            broker.server.close()  # ends those that wait


def test_a_fifo_group_gets_the_messages_of_a_group_in_order(tmp_path: Path) -> None:
    """A client that asks again before it has acked gets messages of other keys only."""
    with (
        Broker(tmp_path / "a", fifo_groups=["group"]) as broker,
        Caller(broker.address) as one,
        Caller(broker.address, "other") as other,
    ):
        for body, group in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b")):
            one.send("orders", body, kind=MessageType.FIFO, message_group=group)
        (first,) = one.receive("orders", limit=1)
        assert first.system_properties.message_group == "a"
        assert bodies(other.receive("orders")) == [b"b1"]
        one.ack("orders", handle_of(first))
        assert bodies(other.receive("orders")) == [b"a2"]


def test_a_forwarded_message_is_a_dead_letter(rocketmq: Broker, caller: Caller) -> None:
    caller.send("orders", b"1", properties={"amount": "70"})
    (found,) = caller.receive("orders")
    where = {"group": {"name": "group"}, "topic": {"name": "orders"}}
    fields = {"receipt_handle": handle_of(found)} | where
    for _ in range(2):
        answer = caller.call("ForwardMessageToDeadLetterQueue", **fields)
        assert answer.status.code == Code.OK
    (dead,) = rocketmq.engine.dead_letters("group")
    assert (dead.body, dead.headers) == (b"1", {"amount": "70"})
    rocketmq.engine.dead_letters("group").replay()
    assert bodies(caller.receive("orders")) == [b"1"]


def test_a_message_that_fails_too_often_is_a_dead_letter(rocketmq: Broker, caller: Caller) -> None:
    caller.send("orders", b"1")
    attempts = 0
    while found := caller.receive("orders"):
        attempts += 1
        assert found[0].system_properties.delivery_attempt == attempts
        caller.change("orders", handle_of(found[0]), 0.0)
    assert attempts == 17
    assert rocketmq.engine.dead_letters("group").count() == 1


def test_what_a_push_consumer_has_is_free_when_it_ends(rocketmq: Broker, caller: Caller) -> None:
    caller.send("orders", b"1")
    with Caller(rocketmq.address, "push") as push:
        assert bodies(push.receive("orders", invisible=None)) == [b"1"]
        assert caller.receive("orders") == []
        ended = push.call("NotifyClientTermination", group={"name": "group"})
        assert ended.status.code == Code.OK
    (found,) = caller.receive("orders")
    # The push consumer has handled nothing, so its attempt does not count.
    assert found.system_properties.delivery_attempt == 1


def test_a_group_that_is_deleted_begins_anew(rocketmq: Broker, caller: Caller) -> None:
    caller.send("orders", b"1")
    caller.receive("orders")
    rocketmq.engine.group("group").delete()
    with pytest.raises(Answered) as caught:
        caller.receive("orders")
    assert caught.value.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert bodies(caller.receive("orders")) == [b"1"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"limit": 0}, Code.BAD_REQUEST),
        ({"invisible": 0.0}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible": -5.0}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible": 12 * 3600 + 1.0}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"wait": -1.0}, Code.ILLEGAL_POLLING_TIME),
        ({"topic": ""}, Code.ILLEGAL_TOPIC),
        ({"group": ""}, Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_a_receive_that_is_not_right_is_refused(
    rocketmq: Broker, caller: Caller, fields: dict[str, Any], code: int
) -> None:
    with pytest.raises(Answered, match="Nothing was") as caught:
        caller.receive(**{"topic": "orders"} | fields)
    assert caught.value.code == code


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_a_client_has_is_renewed_while_it_lives(tmp_path: Path) -> None:
    """Method: the clock of the renewals is moved by hand, and the engine says until when."""
    clock, live = Clock(), {"push"}
    with fmq.open(tmp_path / "a") as engine:
        engine.send_many("orders", [b"1", b"2", b"3"])
        lending = Lending(engine, clock)
        with engine.consumer("orders", group="g") as consumer:
            group = engine.group("g")
            renewed, acked, named = consumer.poll()
            for each, seconds in ((renewed, None), (acked, None), (named, 100.0)):
                assert lending.lend(each, group, "push", seconds) is not None
        group.ack_ticket(acked.ticket)
        assert lending.count() == 2

        before = group.in_hand()[0].until
        clock.now = RENEWED_SECONDS - 1
        lending.keep(live.__contains__)
        after = group.in_hand()[0].until
        assert before is not None and after is not None and before < after
        assert lending.count() == 1  # one was acked
        live.clear()
        clock.now += RENEWED_SECONDS
        lending.keep(live.__contains__)
        assert lending.count() == 1
        clock.now += 1
        lending.keep(live.__contains__)
        assert lending.count() == 0


def test_a_client_may_think_for_longer_than_a_member_may_be_silent(tmp_path: Path) -> None:
    """The server's member is put out of the group meanwhile, and holds nothing."""
    options = fmq.Options(member_timeout_seconds=0.05)
    with Broker(tmp_path / "a", options) as broker, Caller(broker.address) as caller:
        caller.send("orders", b"1")
        (found,) = caller.receive("orders", invisible=3600.0)
        with broker.engine.consumer("orders", group="group", retry=fmq.Retry(17)) as other:
            for _ in range(4):
                assert other.poll(timeout=0.05) == []
        assert caller.receive("orders") == []
        assert caller.ack("orders", handle_of(found)).status.code == Code.OK

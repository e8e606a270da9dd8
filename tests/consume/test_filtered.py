"""A group that wants some of the messages of a topic: the others are passed over, durably."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from fmq import Engine, Message, filters
from fmq.errors import BadFilter, Damaged, FilterDiffers, LeaseLost
from tests.small import CrashDisk, check, fill, flip, opened, segments

PAID = filters.tags("paid")


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk) as engine:
        yield engine
    check(disk)


def send(engine: Engine, count: int, every: int = 3, *, in_one: bool = False) -> list[bytes]:
    """Messages of which one of `every` is paid. Return those."""
    messages = [
        Message(b"%d" % n, tag="paid" if n % every == 0 else "open", headers={"n": str(n)})
        for n in range(count)
    ]
    if in_one:
        engine.send_many("t", messages)
    else:
        for body, _, tag, headers, *_ in messages:
            engine.send("t", body, tag=tag, headers=headers)
    return [b"%d" % n for n in range(0, count, every)]


def polled(consumer: fmq.Consumer, *, ack: bool = True, limit: int = 100) -> list[bytes]:
    got = []
    while deliveries := consumer.poll(limit=limit):
        for delivery in deliveries:
            got.append(delivery.body)
            if ack:
                delivery.ack()
    return got


def test_matching_messages_come_in_their_order_over_the_end_of_a_segment(
    disk: CrashDisk, engine: Engine
) -> None:
    for tag in ("open", *["paid"] * 6, "open", "paid"):
        engine.send("t", bytes(900), tag=tag)
    assert len(segments(disk)) > 1
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        got = []
        while deliveries := consumer.poll(limit=100):
            got += [each.offset for each in deliveries]
        assert got == [1, 2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("in_one", [False, True])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_only_matching_messages_are_delivered(engine: Engine, limit: int, *, in_one: bool) -> None:
    paid = send(engine, 40, in_one=in_one)
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        assert polled(consumer, limit=limit) == paid
        engine.sync()
        (info,) = engine.groups("g")
        assert (info.acked_below, info.unread) == (40, 0)


def test_unread_counts_messages_that_the_filter_has_not_seen_yet(disk: CrashDisk) -> None:
    """Each info names the group's filter, so that the count is not taken for one of matching
    messages.
    """
    wide = filters.sql("n >= 0")
    with opened(disk) as engine:
        paid = send(engine, 9)
        with engine.consumer("t", group="g", filter=PAID) as consumer:
            (info,) = engine.groups("g")
            assert (info.unread, info.filter) == (9, "tags:paid")
            said = f"9 unread, {len(paid)} of them pass its filter tags:paid"
            assert said in engine.group("g").explain()
            with fmq.open("data", disk=disk, read_only=True) as reader:
                assert reader.groups("g") == [info]
            assert polled(consumer, ack=False) == paid
            engine.sync()
            (info,) = engine.groups("g")
            assert info.unread == len(paid)
        engine.group("g").set_filter("t", wide)
        assert engine.groups("g")[0].filter == f"sql:{wide.normal}"
        engine.group("g").set_filter("t", None)
        assert engine.groups("g")[0].filter == ""
        assert "its filter" not in engine.group("g").explain()


def test_explain_applies_the_filter_to_the_oldest_4096_messages_only(engine: Engine) -> None:
    """It takes the queues of the topic one after the other, until it has looked at so many."""
    engine.create_topic("t", queues=3)
    for queue in range(3):
        for _ in range(10):
            tags = ["open", "paid", "open"] * 100
            engine.send_many("t", [fmq.Message(b"", tag=tag) for tag in tags], queue=queue)
    engine.create_group("g", "t", filter=PAID)
    said = engine.group("g").explain()
    assert "queue 0: acked below 0, 3000 unread, 1000 of them pass its filter tags:paid" in said
    assert "queue 1: acked below 0, 3000 unread, 365 of the first 1096 pass its filter" in said
    assert "queue 2: acked below 0, 3000 unread, 0 of the first 0 pass its filter" in said
    engine.group("g").seek("t", to="latest")
    assert "0 unread, filter tags:paid" in engine.group("g").explain()


def test_filtered_batches_are_consecutive(engine: Engine) -> None:
    for tag in ("paid", "paid", "open", "paid"):
        engine.send("t", tag.encode(), tag=tag)
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        first, second = consumer.poll_batch(), consumer.poll_batch()
        assert first is not None
        assert second is not None
        assert (len(first), len(second), second.offset) == (2, 1, 3)
        second.ack()
        first.ack()
        assert consumer.poll_batch() is None


def test_a_filter_can_be_a_condition_on_headers(engine: Engine) -> None:
    send(engine, 20)
    with engine.consumer("t", group="g", filter=filters.sql("n between 3 and 5")) as consumer:
        assert polled(consumer) == [b"3", b"4", b"5"]


def test_messages_that_do_not_match_keep_no_segment(disk: CrashDisk) -> None:
    with opened(disk, retain_bytes=8192) as engine:
        engine.create_group("g", "t", filter=PAID)
        with engine.consumer("t", group="g") as consumer:
            for _ in range(4):
                fill(engine, "t")
                assert polled(consumer) == []
            assert engine.queues("t")[0].first > 0
    check(disk)


def test_only_a_released_message_is_redelivered(engine: Engine) -> None:
    paid = send(engine, 30)
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        deliveries = consumer.poll()
        deliveries[3].release()
        assert [each.body for each in consumer.poll()] == [paid[3]]
    with engine.consumer("t", group="g") as consumer:
        assert polled(consumer) == paid


def test_another_filter_is_refused(engine: Engine) -> None:
    send(engine, 3)
    with engine.consumer("t", group="g", filter=filters.tags("paid || refunded")):
        with pytest.raises(FilterDiffers, match="set_filter") as refused:
            engine.consumer("t", group="g", filter=filters.tags("open"))
        assert (refused.value.has, refused.value.brings) == ("tags:paid || refunded", "tags:open")
        with engine.consumer("t", group="g", filter=filters.tags("refunded||paid")):
            pass
        with pytest.raises(FilterDiffers):
            engine.consumer("t", group="g", filter=filters.tags("*"))
    with engine.consumer("t", group="all"), pytest.raises(FilterDiffers):
        engine.consumer("t", group="all", filter=PAID)


def test_the_filter_is_durable_and_can_be_changed_for_all(engine: Engine, disk: CrashDisk) -> None:
    send(engine, 9)
    engine.create_group("g", "t", filter=PAID)
    engine.close()
    with opened(disk) as again, again.consumer("t", group="g") as consumer:
        assert polled(consumer) == [b"0", b"3", b"6"]
        again.group("g").set_filter("t", filters.sql("n = 4"))
        assert polled(consumer) == []
        again.group("g").seek("t", to="earliest")
        assert polled(consumer) == [b"4"]
        again.group("g").set_filter("t", None)
        again.group("g").seek("t", to="earliest")
        assert len(polled(consumer)) == 9


def test_a_seek_lets_the_filter_see_messages_again(engine: Engine) -> None:
    paid = send(engine, 30)
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        (first,) = consumer.poll(limit=1)
        engine.group("g").seek("t", to="earliest")
        with pytest.raises(LeaseLost):
            first.ack()
        assert polled(consumer) == paid


def test_a_transaction_can_ack_filtered_messages(engine: Engine) -> None:
    paid = send(engine, 30)
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        with engine.transaction() as tx:
            for delivery in consumer.poll(limit=4):
                tx.ack(delivery)
        assert polled(consumer) == paid[4:]
        assert sum(info.unread for info in engine.groups("g")) == 0


def test_a_bad_filter_is_refused(engine: Engine) -> None:
    with pytest.raises(BadFilter) as refused:
        filters.sql("n = ")
    assert refused.value.column == 5
    with pytest.raises(TypeError, match=r"fmq\.filters"):
        engine.consumer("t", group="g", filter="paid")  # type: ignore[arg-type]


def test_messages_that_a_new_filter_excludes_are_not_redelivered(engine: Engine) -> None:
    send(engine, 6, every=2)
    with engine.consumer("t", group="g", filter=PAID) as consumer:
        (old,) = consumer.poll(limit=1)
        engine.group("g").set_filter("t", filters.tags("open"))
        assert polled(consumer) == [b"1", b"3", b"5"]
        old.release()
        assert consumer.poll() == []
        engine.sync()
        assert engine.groups("g")[0].unread == 0


@pytest.mark.parametrize("size", [2, 3000])
def test_single_messages_are_filtered_by_their_tag_alone(disk: CrashDisk, size: int) -> None:
    """Not by a key, a header or a body that says the same, in records of every sort and size."""
    with opened(disk, segment_bytes=1 << 17, compress_bytes_min=1000) as engine:
        wanted = []
        for n in range(60):
            body = b"%02d" % n + b"paid" * (size // 4)
            tag = ("paid", "unpaid", None, "open")[n % 4]
            key, headers = ("paid", None)[n % 2], ({"paid": "paid"}, None)[n % 3 == 0]
            if n % 5 == 0:
                tx = engine.transaction()
                tx.send("t", body, key=key, tag=tag, headers=headers)
                if n % 2:
                    tx.prepare()
                tx.commit()
            else:
                engine.send("t", body, key=key, tag=tag, headers=headers)
            if tag == "paid":
                wanted.append(body)
        with engine.consumer("t", group="g", filter=PAID) as consumer:
            assert polled(consumer, limit=7) == wanted
    check(disk)


def test_a_damaged_head_is_not_passed_over(disk: CrashDisk) -> None:
    """The messages before it are delivered."""
    with opened(disk, segment_bytes=1 << 16) as engine:
        receipts = [engine.send("t", b"%d" % n, tag="open" if n else "paid") for n in range(9)]
        engine.send("t", b"9", tag="paid")
        flip(disk, "00000000000000000000.seg", receipts[5].position + 30)
        with engine.consumer("t", group="g", filter=PAID) as consumer:
            (delivery,) = consumer.poll(limit=1)
            assert delivery.offset == 0
            with pytest.raises(Damaged) as told:
                consumer.poll()
        assert told.value.position == receipts[5].position

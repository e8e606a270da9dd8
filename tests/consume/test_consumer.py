"""A consumer: one member of a group gets each message, again and again until it acks it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

import fmq
from fmq import Batch, Consumer, Delivery, Engine, Message
from fmq.consume.administration import group_changes
from fmq.consume.calls.thread_member import ThreadMember
from fmq.consume.claims.membership import Member
from fmq.errors import BadOption, Closed, LeaseLost, OffsetGone, StorageFull
from fmq.testing import FaultDisk
from fmq.testing.inside import inside
from fmq.tx.ledger.queues import Queue
from fmq.tx.looks.messages import Messages
from tests.small import CrashDisk, FakeClock, check, fill, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[Engine]:
    with opened(disk, clock) as engine:
        engine.send_many("t", [b"0", b"1", b"2", b"3"])
        yield engine
    check(disk)


def seen(deliveries: list[Delivery]) -> list[int]:
    return [delivery.offset for delivery in deliveries]


def test_a_new_group_starts_at_the_earliest(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        assert [delivery.body for delivery in consumer.poll()] == [b"0", b"1", b"2", b"3"]


def test_a_delivery_has_the_properties_of_its_message(engine: Engine) -> None:
    sent = Message(b"body", "key", "tag", {"h": "v"})
    (receipt,) = engine.send_many("u", [sent])
    with engine.consumer("u", group="g") as consumer:
        (delivery,) = consumer.poll()
    assert (delivery.body, delivery.key, delivery.tag) == (b"body", "key", "tag")
    assert delivery.headers == {"h": "v"}
    assert (delivery.topic, delivery.queue, delivery.offset) == ("u", 0, receipt.offset)
    assert delivery.message.position == receipt.position
    assert delivery.time == delivery.message.time


def test_a_message_goes_to_one_member_only(engine: Engine) -> None:
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="g") as other:
        assert seen(one.poll(limit=2)) == [0, 1]
        assert seen(other.poll(limit=1)) == [2]
        assert seen(one.poll()) == [3]
        assert other.poll() == []


def test_groups_do_not_share(engine: Engine) -> None:
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="h") as other:
        assert seen(one.poll()) == seen(other.poll()) == [0, 1, 2, 3]


@pytest.mark.parametrize("killed", [False, True])
def test_only_messages_without_an_ack_are_redelivered(disk: CrashDisk, killed: bool) -> None:
    """Redelivery after a restart leaves gaps: an ack is of one message, not of all before it."""
    with opened(disk) as engine:
        engine.send_many("t", [b"0", b"1", b"2", b"3"])
        with engine.consumer("t", group="g") as consumer:
            deliveries = consumer.poll()
            deliveries[0].ack()
            deliveries[2].ack()
            left = disk.after_power_loss(seed=1) if killed else disk
    with opened(left) as engine, engine.consumer("t", group="g") as consumer:
        assert seen(consumer.poll(limit=4)) + seen(consumer.poll()) == [1, 3]


def test_acks_of_sealed_segments_are_remembered(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        for _ in range(20):
            engine.send("t", b"x" * 500)
        with engine.consumer("t", group="g") as consumer:
            while (deliveries := consumer.poll(limit=1)) and deliveries[0].offset < 15:
                deliveries[0].ack()
        fill(engine)
    with opened(disk) as engine, engine.consumer("t", group="g") as consumer:
        found = [*consumer.poll(), *consumer.poll(), *consumer.poll()]
        assert seen(found) == [16, 17, 18, 19, 15]  # what was tried before goes by its time
    check(disk)


def test_a_batch_is_acked_whole(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        batch = consumer.poll_batch(limit=3)
        assert batch is not None
        assert (batch.bodies, batch.offset, len(batch)) == ((b"0", b"1", b"2"), 0, 3)
        assert [message.offset for message in batch.messages] == [0, 1, 2]
        batch.ack()
        assert seen(consumer.poll()) == [3]
        with pytest.raises(LeaseLost):
            batch.ack()


@pytest.mark.parametrize("limit", [1, 3, 100, 256, 300])
def test_equal_polls_get_as_many_messages_as_they_ask_for(engine: Engine, limit: int) -> None:
    """Reading ahead never makes a poll return fewer."""
    engine.send_many("u", [b"x"] * 900)
    with engine.consumer("u", group="g") as consumer:
        for _ in range(3):
            batch = consumer.poll_batch(limit=limit)
            assert batch is not None
            assert len(batch) == limit


def test_a_message_is_redelivered_after_its_lease_ends(engine: Engine, clock: FakeClock) -> None:
    with (
        engine.consumer("t", group="g", lease_seconds=10) as one,
        engine.consumer("t", group="g") as other,
    ):
        late = one.poll(limit=3)
        clock.advance(9.9)
        assert seen(other.poll()) == [3]
        late[0].ack()
        clock.advance(0.2)
        assert seen(other.poll(limit=1)) == [1]
        with pytest.raises(LeaseLost, match="t/0 offset 1"):
            late[1].ack()
        with pytest.raises(LeaseLost):
            late[1].release()
        assert seen(other.poll()) == [2]


def test_a_waiting_poll_gets_a_message_when_its_lease_ends(
    engine: Engine, clock: FakeClock
) -> None:
    with (
        engine.consumer("t", group="g", lease_seconds=10) as one,
        engine.consumer("t", group="g") as other,
    ):
        one.poll()
        before = clock.monotonic()
        assert seen(other.poll(timeout=60)) == [0, 1, 2, 3]
        assert clock.monotonic() - before == pytest.approx(10)


def test_a_released_message_is_redelivered_at_once(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        deliveries = consumer.poll()
        deliveries[1].release()
        assert seen(consumer.poll()) == [1]


def test_batches_and_deliveries_are_read_only(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        [delivery] = consumer.poll(limit=1)
        batch = engine.read_batch("t")
        assert batch is not None
        changes: list[tuple[object, str]] = [(delivery, "message"), (delivery, "body")]
        changes += [(batch, name) for name in ("topic", "queue", "offset", "bodies", "next")]
        for what, name in changes:
            with pytest.raises(AttributeError):
                setattr(what, name, 7)


def test_a_changed_list_of_messages_changes_no_redelivery(engine: Engine) -> None:
    """A handler takes messages out of its list and fails.

    They are redelivered, each at its offset.
    """
    with engine.consumer("t", group="g") as consumer:
        batch = consumer.poll_batch()
        assert batch is not None
        assert isinstance(batch.bodies, tuple)
        batch.messages.clear()
        batch.release()
        again = consumer.poll_batch()
        assert again is not None
        assert (again.offset, again.bodies) == (0, (b"0", b"1", b"2", b"3"))
        assert [(each.offset, each.body) for each in again.messages] == [*enumerate(again.bodies)]
        again.ack()
    [of_group] = engine.groups("g")
    assert of_group.unread == 0


@pytest.mark.parametrize("limit", [1, 3])
def test_changed_headers_change_no_redelivery(engine: Engine, limit: int) -> None:
    """Types forbid to change headers. A redelivered message has the headers that were sent."""
    engine.send_many("u", [Message(b"%d" % n, headers={"n": str(n)}) for n in range(3)])
    with engine.consumer("u", group="g") as consumer:
        for _ in range(6):
            for delivery in consumer.poll(limit=limit):
                assert delivery.headers == {"n": delivery.body.decode()}
                delivery.headers.pop("n")  # type: ignore[attr-defined]
                delivery.release()


def test_a_release_after_close_raises_closed(engine: Engine) -> None:
    """LeaseLost would mislead: the close has given back all that the consumer held."""
    engine.send_many("orders", [b"1", b"2"])
    for closing in ("consumer", "engine"):
        consumer = engine.consumer("orders", group="g")
        (delivery,) = consumer.poll(limit=1)
        (consumer if closing == "consumer" else engine).close()
        with pytest.raises(Closed, match=f"the {closing} is closed"):
            delivery.release()


def test_a_close_redelivers_the_messages_of_the_consumer(engine: Engine) -> None:
    with engine.consumer("t", group="g") as other:
        with engine.consumer("t", group="g") as one:
            delivery = one.poll()[0]
        for call in (delivery.ack, one.poll, one.poll_batch):
            with pytest.raises(Closed, match="the consumer is closed"):
                call()
        assert seen(other.poll()) == [0, 1, 2, 3]


def test_a_second_ack_raises_lease_lost(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        (delivery, *_) = consumer.poll()
        delivery.ack()
        with pytest.raises(LeaseLost):
            delivery.ack()


def test_an_ack_without_sync_is_durable_with_the_next_one(engine: Engine, disk: CrashDisk) -> None:
    with engine.consumer("t", group="g") as consumer:
        (delivery, *_) = consumer.poll()
        delivery.ack(sync=False)
        engine.sync()
        with opened(disk.after_power_loss(1)) as after, after.consumer("t", group="g") as again:
            assert seen(again.poll())[0] == 1


@pytest.mark.parametrize("ends", ["the consumer closes", "its lease ends"])
def test_a_message_is_not_redelivered_while_its_ack_is_on_its_way(
    disk: CrashDisk, ends: str
) -> None:
    """Only a crash may take back an ack that did not wait for its sync.

    Method: an engine with a thread of its own, which does nothing while the clock stands still.
    """
    clock = FakeClock()
    options = fmq.Options(segment_bytes=4096, lease_seconds=0.5, checkpoint_idle_seconds=60)
    with fmq.open("data", options, disk=disk, clock=clock) as engine:
        engine.send_many("t", [b"0", b"1"])
        with engine.consumer("t", group="g") as consumer:
            deliveries = consumer.poll()
            deliveries[0].ack(sync=False)
            with pytest.raises(LeaseLost):
                deliveries[0].release()
            if ends == "its lease ends":
                clock.advance(0.6)
                assert seen(consumer.poll()) == [1]
        with engine.consumer("t", group="g") as consumer:
            assert seen(consumer.poll()) == [1]
    check(disk)


def test_a_refused_ack_leaves_the_delivery_with_its_consumer(clock: FakeClock) -> None:
    crash = CrashDisk()
    faults = FaultDisk(crash)
    with opened(faults, clock) as engine, engine.consumer("t", group="g" * 250) as consumer:
        engine.send("t", b"0")
        (delivery,) = consumer.poll()
        faults.fail("allocate", error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            while True:
                engine.send("fill", b"f" * 100)
        with pytest.raises(StorageFull):
            delivery.ack()
        faults.heal()
        delivery.ack()
        clock.advance(100)
        assert consumer.poll() == []
    check(crash)


def test_several_topics_and_queues_are_served_in_turn(disk: CrashDisk) -> None:
    with opened(disk, queues=2) as engine:
        for topic in ("t", "u"):
            for queue in range(2):
                engine.send_many(topic, [b"0", b"1"], queue=queue)
        with engine.consumer(["t", "u"], group="g") as consumer:
            lanes = [
                (delivery.topic, delivery.queue)
                for _ in range(4)
                for delivery in consumer.poll(limit=1)
            ]
            assert len(set(lanes)) == 4
            rest = [delivery for _ in range(4) for delivery in consumer.poll()]
            assert [delivery.offset for delivery in rest] == [1, 1, 1, 1]


def test_a_poll_can_wait_for_a_topic_that_does_not_exist(engine: Engine, clock: FakeClock) -> None:
    with engine.consumer("later", group="g") as consumer:
        before = clock.monotonic()
        assert consumer.poll(timeout=5) == []
        assert clock.monotonic() - before == 5
        engine.send("later", b"1")
        assert seen(consumer.poll(timeout=5)) == [0]


def test_a_poll_without_a_timeout_does_not_wait(engine: Engine, clock: FakeClock) -> None:
    with engine.consumer("nothing", group="g") as consumer:
        assert consumer.poll() == []
        assert consumer.poll_batch() is None
        assert clock.monotonic() == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(engine: Engine, limit: int) -> None:
    with engine.consumer("t", group="g") as consumer:
        with pytest.raises(BadOption):
            consumer.poll(limit=limit)
        with pytest.raises(BadOption):
            consumer.poll_batch(limit=limit)


def test_a_group_continues_with_the_messages_that_retention_left(disk: CrashDisk) -> None:
    """Retention drops unread messages only if the options allow it. Holds are not changed."""
    with opened(disk, retain_bytes=8192, keep_unread=False) as engine:
        engine.send("t", b"x" * 500)
        with engine.consumer("t", group="g") as consumer:
            (held,) = consumer.poll()
            for _ in range(40):
                engine.send("t", b"x" * 500)
            (info,) = engine.queues("t")
            assert info.first > 1
            assert seen(consumer.poll(limit=1)) == [info.first]
            held.ack()
            with pytest.raises(OffsetGone):
                engine.read("t", offset=0)
    check(disk)


class MessagesWithEvent:
    """The messages of an engine. `happen` is called once, between a claim and its read."""

    def __init__(self, messages: Messages, happen: Callable[[], None]) -> None:
        self._messages = messages
        self._happen: Callable[[], None] | None = happen

    def batch_of(self, queue: Queue, offset: int, limit: int) -> Batch:
        happen, self._happen = self._happen, None
        if happen is not None:
            happen()
        return self._messages.batch_of(queue, offset, limit)

    def __getattr__(self, name: str) -> object:
        return getattr(self._messages, name)


def test_a_poll_skips_messages_that_retention_drops_after_the_claim(
    disk: CrashDisk,
) -> None:
    """The poll raises nothing and returns the messages that are left, as a later poll would."""
    with opened(disk, retain_bytes=8192, keep_unread=False) as engine:
        engine.send("t", b"x" * 500)
        parts = inside(engine)

        def drop() -> None:
            for _ in range(40):
                engine.send("t", b"x" * 500)

        messages = MessagesWithEvent(parts.messages, drop)
        parts.changes.write(group_changes.join, "g", ("t",))
        member = ThreadMember(
            messages,
            parts.groups,
            parts.writer,
            lambda: None,
            Member("m", ("t",)),
            "g",
            30.0,
            lambda: None,
            parts.burying,
        )
        with Consumer(member) as consumer:
            got = seen(consumer.poll(limit=1))
            (info,) = engine.queues("t")
            assert info.first > 1
            assert got == [info.first]
    check(disk)


def test_a_redelivery_to_the_same_consumer_voids_the_first_delivery(
    engine: Engine, clock: FakeClock
) -> None:
    with engine.consumer("t", group="g", lease_seconds=10) as consumer:
        late, *_ = consumer.poll()
        clock.advance(11)
        again, *_ = consumer.poll()
        assert again.offset == late.offset
        for step in (late.release, late.ack):
            with pytest.raises(LeaseLost):
                step()
        again.ack()


@pytest.mark.parametrize("limit", [2.5, "3", None])
def test_a_refused_limit_holds_nothing(engine: Engine, limit: object) -> None:
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="g") as other:
        for poll in (one.poll, one.poll_batch):
            with pytest.raises(TypeError, match="limit"):
                poll(limit=limit)  # type: ignore[arg-type]
        assert seen(other.poll()) == [0, 1, 2, 3]


def test_a_consumer_without_topics_or_lease_is_refused(engine: Engine) -> None:
    with pytest.raises(BadOption, match="topics"):
        engine.consumer([], group="g")
    for seconds in (0, -1, float("nan")):
        with pytest.raises(BadOption, match="lease_seconds"):
            engine.consumer("t", group="g", lease_seconds=seconds)


def test_a_poll_that_fails_after_its_lease_takes_nothing_from_the_next_owner() -> None:
    """The disk fails a read that took longer than the lease."""
    disk, clock = FaultDisk(CrashDisk()), FakeClock()
    got: list[Delivery] = []
    with opened(disk, clock) as engine:
        engine.send_many("t", [b"0", b"1", b"2", b"3"])
        one = engine.consumer("t", group="g", lease_seconds=1)
        other = engine.consumer("t", group="g")

        def read_late() -> None:
            clock.advance(2)
            got.extend(other.poll())
            disk.fail("read", names="*.seg", persistently=True)
            raise OSError(errno.EIO, "late")

        disk.before("read", read_late, names="*.seg")
        with pytest.raises(OSError, match=r"seg: late\."):
            one.poll()
        disk.heal()
        assert seen(got) == [0, 1, 2, 3]
        assert one.poll() == []
        for delivery in got:
            delivery.ack()

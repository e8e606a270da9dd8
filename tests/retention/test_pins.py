"""What keeps a segment that retention would drop, and that stats name it."""

from __future__ import annotations

from tests.retention.sending import KEEP, UNREAD_GOES, acks, first_of, send
from tests.small import (
    CrashDisk,
    bodies,
    check,
    opened,
    segments,
)


def test_an_undecided_transaction_keeps_its_segment_and_stats_name_it() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"kept")
        tx.prepare()
        send(engine, 60)
        kept = engine.stats().kept
        assert kept is not None
        assert (kept.segment, kept.by) == (0, "undecided transaction 'T'")
        engine.decide("T", "commit")
        send(engine, 10)
        assert engine.stats().kept is None
        assert engine.stats().segments == 3
    check(disk)


def test_messages_that_a_group_has_not_acked_are_kept_and_stats_name_it() -> None:
    disk = CrashDisk()
    with (
        opened(disk, retain_bytes=KEEP) as engine,
        engine.consumer("t", group="billing") as consumer,
    ):
        send(engine, 60)
        first = first_of(engine)
        (delivery, *_) = consumer.poll(limit=1)
        send(engine, 60)
        kept = engine.stats().kept
        assert kept is not None
        assert "'billing'" in kept.by
        assert "t/0" in kept.by
        assert first_of(engine) == first == delivery.offset == 0
        delivery.ack()
        while deliveries := consumer.poll():
            for delivery in deliveries:
                delivery.ack()
        send(engine, 1)
        assert engine.stats().segments == 3
    with opened(disk) as engine, engine.consumer("t", group="billing") as consumer:
        assert len(consumer.poll()) == 1
    check(disk)


def test_all_that_keeps_a_segment_is_listed() -> None:
    """Not only what is met first: each goes away by itself, and the others stay."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        for name in ("T1", "T2"):
            tx = engine.transaction(tx_id=name)
            tx.send("t", b"kept")
            tx.prepare()
        for group in ("billing", "mail"):
            engine.create_group(group, "t")
        send(engine, 60)
        transactions = [f"undecided transaction {name!r}" for name in ("T1", "T2")]
        said = engine.stats().kept_by
        assert [each for each in said if "transaction" in each] == transactions
        groups = [each for each in said if each.startswith("group")]
        assert len(groups) == 2 and "'billing'" in groups[0] and "'mail'" in groups[1]
        engine.decide("T1", "rollback")
        engine.group("mail").delete()
        send(engine, 1)
        said = engine.stats().kept_by
        assert transactions[0] not in said and transactions[1] in said
        assert "'mail'" not in "".join(said) and "'billing'" in "".join(said)
        engine.decide("T2", "rollback")
        engine.group("billing").delete()
        send(engine, 10)
        assert engine.stats().kept_by == ()
    check(disk)


def test_unacked_messages_are_kept_in_each_queue_of_a_groups_topic() -> None:
    """This holds after a crash too, when it is lost that a group polled without an ack."""
    disk = CrashDisk()
    with (
        opened(disk, queues=2, checkpoint_bytes=1_000_000) as engine,
        engine.consumer("t", group="billing") as consumer,
    ):
        engine.send("t", b"unread", queue=1)
        for _ in range(60):
            engine.send("t", b"x" * 500, queue=0)
        while deliveries := consumer.poll():
            for delivery in deliveries:
                if delivery.queue == 0:
                    delivery.ack()
        killed = disk.after_kill()
    with opened(killed, queues=2, retain_bytes=KEEP) as engine:
        engine.send("t", b"x" * 500, queue=0)
        with engine.consumer("t", group="billing") as consumer:
            found = consumer.poll() + consumer.poll()
        assert (1, b"unread") in [(each.queue, each.body) for each in found]
    check(killed)


def test_a_group_without_acks_keeps_its_messages_until_it_is_deleted() -> None:
    """Such is a group whose name was misspelt once."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 1)
        with engine.consumer("t", group="biling") as consumer:
            [delivery] = consumer.poll()
            send(engine, 60)
            kept = engine.stats().kept
            assert kept is not None
            assert "'biling'" in kept.by
            delivery.release()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 60)
        assert first_of(engine) == 0
        engine.group("biling").delete()
        send(engine, 60)
        assert engine.stats().kept is None
        assert engine.stats().segments == 3
    with opened(disk, retain_bytes=KEEP) as engine:
        assert engine.groups("biling") == []
    check(disk)


def test_with_keep_unread_false_unread_messages_are_dropped() -> None:
    with (
        opened(CrashDisk(), retain_bytes=KEEP, keep_unread=False) as engine,
        engine.consumer("t", group="billing") as consumer,
    ):
        send(engine, 1)
        consumer.poll()
        send(engine, 60)
        assert first_of(engine) > 0


def test_a_pinned_segment_is_kept_and_stats_name_the_export() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=KEEP) as engine:
        send(engine, 10)
        export = disk.directory("data", make=False).open(segments(disk)[0])
        assert export.pin(exclusive=False)
        send(engine, 60)
        kept = engine.stats().kept
        assert kept is not None
        assert (kept.segment, kept.by) == (0, "an export or backup that is running")
        assert bodies(engine, "t", offset=0)[:1] == [b"x" * 500]
        export.close()
        send(engine, 3)
        assert engine.stats().segments == 3
        assert engine.stats().kept is None
    check(disk)


def test_the_segment_that_a_checkpoint_replays_from_is_kept() -> None:
    """A crash at any moment finds every segment that its checkpoint names."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192, checkpoint_bytes=1 << 20) as engine:
        for number in range(40):
            engine.send("t", b"x" * 500)
            left = disk.after_power_loss(number)
            with opened(left) as after:
                assert after.queues("t")[0].next == number + 1
            check(left)


def test_a_group_of_dropped_messages_keeps_no_segment() -> None:
    """A group that acked dropped messages still keeps those that it has not acked."""
    disk = CrashDisk()
    with opened(disk, **UNREAD_GOES) as engine:
        send(engine, 1)
        with (
            engine.consumer("t", group="acks") as acking,
            engine.consumer("t", group="looks") as looking,
        ):
            acking.poll()[0].ack()
            looking.poll()
        send(engine, 60)
        assert first_of(engine) > 0
        assert [group for group, *_ in acks(engine)] == ["acks"]
        left = disk.after_kill()
    for each in (disk, left):
        with opened(each, retain_bytes=KEEP, keep_unread=True) as engine:
            engine.group("looks").delete()
            send(engine, 60)
            kept = engine.stats().kept
            assert kept is not None and "'acks'" in kept.by
            first = first_of(engine)
            with engine.consumer("t", group="acks") as consumer:
                while deliveries := consumer.poll():
                    for delivery in deliveries:
                        delivery.ack()
            send(engine, 1)
            assert first_of(engine) > first
        check(each)

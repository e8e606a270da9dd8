"""Damage: sound messages before it are delivered, and each poll that begins with it raises."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

import fmq
from fmq import Consumer, Message
from fmq.consume.calls.consumer import member_of
from fmq.errors import Damaged, Unreadable
from fmq.machine.disk import Directory, File
from tests.small import CrashDisk, content, flip, opened, segments

SINGLES = [[Message(b"%03d" % i)] for i in range(100)]
RUNS = [[Message(b"%03d" % (10 * i + j), key=f"{j}") for j in range(10)] for i in range(10)]
SORTS = pytest.mark.parametrize(("sent", "bad"), [(SINGLES, 50), (SINGLES, 1), (RUNS, 50)])


def stored(sent: list[list[Message]], bad: int) -> tuple[CrashDisk, str, int]:
    """Return a closed disk with 100 messages, their only segment, and the place of the record
    of `bad`.
    """
    disk = CrashDisk()
    with opened(disk, segment_bytes=1 << 16) as engine:
        for messages in sent:
            engine.send_many("t", messages)
        position = engine.read("t", offset=bad, limit=1)[0].position
    assert position is not None
    (name,) = segments(disk)
    return disk, name, position


def damaged(sent: list[list[Message]], bad: int, at: int = -1) -> CrashDisk:
    """Return a copy of the disk with the byte `at` of the record of `bad` changed."""
    disk, name, position = stored(sent, bad)
    size = int.from_bytes(content(disk)[name][position + 8 : position + 12], "little")
    flip(disk, name, position + at % size)
    return disk


def polled(consumer: Consumer, limit: int) -> list[bytes]:
    return [delivery.body for delivery in consumer.poll(limit=limit)]


def poll_batch(consumer: Consumer, limit: int) -> list[bytes]:
    batch = consumer.poll_batch(limit=limit)
    assert batch is not None
    assert [message.body for message in batch.messages] == [*batch.bodies]
    return [*batch.bodies]


@SORTS
@pytest.mark.parametrize("take", [polled, poll_batch])
@pytest.mark.parametrize("limit", [1, 7, 100, 1000])
@pytest.mark.parametrize("at", [-1, 5, 9, 30])
def test_a_consumer_gets_all_sound_messages_before_the_damage(
    sent: list[list[Message]], bad: int, take: Any, limit: int, at: int
) -> None:
    """This holds for every limit and every byte of the record. Each later poll raises Damaged."""
    with (
        opened(damaged(sent, bad, at), segment_bytes=1 << 16) as engine,
        engine.consumer("t", group="g") as consumer,
    ):
        got: list[bytes] = []
        while len(got) < bad:
            got += take(consumer, limit)
        assert got == [b"%03d" % i for i in range(bad)]
        for _ in range(3):
            with pytest.raises(Damaged):
                take(consumer, limit)


@SORTS
@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_raises_at_damage_and_a_batch_ends_before_it(
    sent: list[list[Message]], bad: int, read_only: bool
) -> None:
    """A list that is shorter than its limit would mean that there are no more messages yet."""
    disk = damaged(sent, bad)
    options = fmq.Options(segment_bytes=1 << 16)
    with fmq.open("data", options, disk=disk, read_only=read_only, background=False) as engine:
        for first in (0, bad - 1):
            batch = engine.read_batch("t", offset=first, limit=100)
            assert batch is not None
            expected = [b"%03d" % i for i in range(first, bad)]
            assert [message.body for message in batch.sound().messages] == expected
            found = engine.read("t", offset=first, limit=bad - first)
            assert [message.body for message in found] == expected
            with pytest.raises(Damaged):
                engine.read("t", offset=first, limit=bad - first + 1)
        with pytest.raises(Damaged):
            engine.read_batch("t", offset=bad)
        after = bad + len(sent[-1])
        assert len(engine.read("t", offset=after)) == 100 - after


def test_messages_after_the_damage_are_not_delivered_first() -> None:
    """Messages that were claimed beyond the damage are redelivered in their order.

    None is skipped.
    """
    with opened(damaged(SINGLES, 50), segment_bytes=1 << 16) as engine:
        with engine.consumer("t", group="g") as consumer:
            batch = consumer.poll_batch(limit=80)
            assert batch is not None
            assert (batch.offset, len(batch)) == (0, 50)
            with pytest.raises(Damaged):
                consumer.poll(limit=80)
            batch.ack()
            with pytest.raises(Damaged):
                consumer.poll(limit=80)
        (group,) = engine.groups("g")
        assert (group.acked_below, group.unread) == (50, 50)


def test_a_poll_ends_before_messages_that_cannot_be_made() -> None:
    """Bodies are verified at once, keys and headers only when messages are made of them.

    Method: change what was read ahead in memory before messages are made of it.
    """
    disk = CrashDisk()
    with (
        opened(disk, segment_bytes=1 << 16) as engine,
        engine.consumer("t", group="g") as consumer,
    ):
        for messages in RUNS:
            engine.send_many("t", messages)
        assert poll_batch(consumer, 5) == [b"%03d" % i for i in range(5)]
        ((ahead, *_),) = member_of(consumer).reader.ahead.batches.values()
        stretches: Any = ahead._runs
        window = stretches[5].window
        at = stretches[5].places[0] - window.start + 20
        window.data = window.data[:at] + b"!" + window.data[at + 1 :]
        assert polled(consumer, 1) == [b"005"]
        assert polled(consumer, 100) == [b"%03d" % i for i in range(6, 50)]


class BadSector:
    """A disk on which one byte cannot be read. A read that includes the byte fails as a whole."""

    def __init__(self, disk: CrashDisk, name: str, at: int) -> None:
        self._disk, self._name, self._at = disk, name, at
        self.random = disk.random

    def directory(self, path: str, *, make: bool) -> Directory:
        return _Around(self._disk.directory(path, make=make), self)

    def around(self, name: str, file: File) -> File:
        return _AroundFile(file, self._at) if name == self._name else file


class _Around:
    def __init__(self, directory: Directory, disk: BadSector) -> None:
        self._directory, self._disk = directory, disk

    def open(self, name: str, *, write: bool = False) -> File:
        return self._disk.around(name, self._directory.open(name, write=write))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)


class _AroundFile:
    def __init__(self, file: File, at: int) -> None:
        self._file, self._at = file, at

    def read(self, offset: int, size: int) -> bytes:
        if offset <= self._at < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return self._file.read(offset, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def bad_sector() -> Iterator[fmq.Engine]:
    """Return an engine over 100 messages, of which the 51st cannot be read."""
    disk, name, position = stored(SINGLES, 50)
    with opened(BadSector(disk, name, position + 8), segment_bytes=1 << 16) as engine:
        yield engine


def test_messages_before_a_bad_sector_are_delivered(bad_sector: fmq.Engine) -> None:
    """A read ahead over the sector fails as a whole. The records before it can still be read."""
    with bad_sector.consumer("t", group="g") as consumer:
        got: list[bytes] = []
        while len(got) < 50:
            got += polled(consumer, 7)
        assert got == [b"%03d" % i for i in range(50)]
        for _ in range(2):
            with pytest.raises(Unreadable):
                consumer.poll(limit=7)
    assert len(bad_sector.read("t", limit=50)) == 50
    for first in (0, 50):
        with pytest.raises(Unreadable):
            bad_sector.read("t", offset=first)
    assert len(bad_sector.read("t", offset=51)) == 49


@pytest.mark.parametrize(("sent", "bad", "count"), [(SINGLES, 50, 1), (RUNS, 50, 10)])
def test_a_group_can_skip_the_damage_and_go_on(
    sent: list[list[Message]], bad: int, count: int
) -> None:
    """The error says how. What was passed over is counted."""
    with opened(damaged(sent, bad), segment_bytes=1 << 16) as engine:
        with engine.consumer("t", group="g") as consumer:
            assert len(polled(consumer, 100)) == bad
            with pytest.raises(Damaged) as stopped:
                consumer.poll()
            many = f", count={count}" if count > 1 else ""
            call = f"engine.group('g').skip('t', 0, {bad}{many})"
            assert str(stopped.value).count(call) == 1
            eval(call, {"engine": engine})
            assert len(polled(consumer, 100)) == 100 - bad - count
        assert engine.groups("g")[0].skipped == count
        with engine.consumer("t", group="sought") as consumer:
            assert len(polled(consumer, 100)) == bad
            engine.group("sought").seek("t", offset=bad + count)
            assert len(polled(consumer, 100)) == 100 - bad - count
        # Nothing was acked before the seek.
        assert engine.groups("sought")[0].skipped == bad + count
        with engine.consumer("t", group="h") as consumer:
            engine.group("h").seek("t", offset=bad + count)
            assert len(polled(consumer, 100)) == 100 - bad - count


@pytest.mark.parametrize("together", [1, 3])
def test_dead_letters_are_shown_without_those_that_are_damaged(
    together: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A record holds the letters of one `reject`, of a message or of a batch."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=1 << 16) as engine:
        engine.send_many("t", [b"%d" % number for number in range(9)])
        with engine.consumer("t", group="g") as consumer:
            for _ in range(9 // together):
                batch = consumer.poll_batch(limit=together)
                assert batch is not None
                batch.reject("bad")
        letters = engine.dead_letters("g")
        whole = letters.list()
        assert len(whole) == 9
        (name,) = segments(disk)
        data = content(disk)[name]
        each = [at for at in range(len(data)) if data.startswith(b"bad", at)]
        at = each[-1 - together]  # in the last record but one
        flip(disk, name, at)
        lost = range(9 - 2 * together, 9 - together)
        left = [letter for letter in whole if letter.number - whole[0].number not in lost]
        assert letters.list() == left
        assert [*letters] == left
        assert letters.list(limit=len(left) - together + 1) == left[: len(left) - together + 1]
        assert letters.count() == 9
        assert f"{together} dead letters of the group 'g' from number" in caplog.text
        with pytest.raises(Damaged):
            letters.replay()


def test_delayed_messages_are_shown_without_those_that_are_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = CrashDisk()
    with opened(disk, segment_bytes=1 << 16) as engine:
        receipts = [engine.send("t", b"%d" % n, delay=60 + n) for n in range(5)]
        assert engine.delayed() == receipts
        (name,) = segments(disk)
        flip(disk, name, receipts[2].position + 44)
        assert engine.delayed() == [*receipts[:2], *receipts[3:]]
        assert engine.delayed("t", limit=3) == [*receipts[:2], receipts[3]]
        assert "a delayed message is left out" in caplog.text


def skipping(engine: fmq.Engine, **named: Any) -> Consumer:
    """Return a consumer of "t" in the group "g" that skips damage and goes on after it."""
    return engine.consumer("t", group="g", damaged="skip", **named)


def by_loop(consumer: Consumer) -> Iterator[bytes]:
    for delivery in consumer:
        delivery.ack()
        yield delivery.body


def by_batches(consumer: Consumer) -> Iterator[bytes]:
    for deliveries in consumer.batches(7, 0.0):
        deliveries.ack()
        yield from [each.body for each in deliveries]


def by_polls(consumer: Consumer) -> Iterator[bytes]:
    while deliveries := consumer.poll(limit=7):
        for delivery in deliveries:
            delivery.ack()
            yield delivery.body


def by_batch_polls(consumer: Consumer) -> Iterator[bytes]:
    while batch := consumer.poll_batch(limit=7):
        batch.ack()
        yield from batch.bodies


def by_takes(consumer: Consumer) -> Iterator[bytes]:
    while messages := consumer.take(limit=7):
        yield from [each.body for each in messages]


WAYS = [by_loop, by_batches, by_polls, by_batch_polls, by_takes]


@pytest.mark.parametrize(("sent", "bad", "count"), [(SINGLES, 50, 1), (RUNS, 50, 10)])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [-1, 9, 30])
@pytest.mark.parametrize("how", [{}, {"ordered": True}, {"filter": fmq.filters.sql("x IS NULL")}])
def test_consumers_that_skip_damage_pass_over_it_and_go_on(
    sent: list[list[Message]],
    bad: int,
    count: int,
    at: int,
    way: Any,
    how: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is skipped is counted and logged once, with its place."""
    disk = damaged(sent, bad, at)
    with opened(disk, segment_bytes=1 << 16) as engine:
        left = [b"%03d" % i for i in range(100) if not bad <= i < bad + count]
        got: list[bytes] = []
        with skipping(engine, **how) as consumer:
            for body in way(consumer):
                got.append(body)
                if len(got) == len(left):
                    break
        assert sorted(got) == left
        (info,) = engine.groups("g")
        assert (info.skipped, info.unread) == (count, 0)
        (said,) = [each.getMessage() for each in caplog.records if "skipped" in each.getMessage()]
        assert f"skipped {count} damaged messages, t/0 from offset {bad} on: " in said
        assert f"{segments(disk)[0]}, position " in said
    with opened(disk, segment_bytes=1 << 16) as again:
        assert again.groups("g")[0].skipped == count


@pytest.mark.parametrize(("sent", "bad", "count"), [(SINGLES, 50, 1), (RUNS, 50, 10)])
def test_run_skips_damage_and_goes_on(sent: list[list[Message]], bad: int, count: int) -> None:
    """The clock is the machine's: a thread that extends leases would move another one."""
    disk, options = damaged(sent, bad), fmq.Options(segment_bytes=1 << 16)
    got: list[bytes] = []
    with (
        fmq.open("data", options, disk=disk, background=False) as engine,
        skipping(engine) as consumer,
    ):

        def handle(delivery: fmq.Delivery) -> None:
            got.append(delivery.body)
            if delivery.body == b"099":
                consumer.drain()

        consumer.run(handle)
        (info,) = engine.groups("g")
        assert (info.skipped, info.unread) == (count, 0)
    assert got == [b"%03d" % i for i in range(100) if not bad <= i < bad + count]


def test_an_undecided_ack_of_other_messages_hinders_no_skip() -> None:
    with (
        opened(damaged(SINGLES, 1), segment_bytes=1 << 16) as engine,
        skipping(engine) as consumer,
    ):
        (delivery,) = consumer.poll(limit=1)
        tx = engine.transaction(tx_id="pay-1")
        tx.ack(delivery)
        tx.prepare()
        assert polled(consumer, 1) == [b"002"]
        tx.commit()
        (info,) = engine.groups("g")
        assert (info.skipped, info.acked_below) == (1, 2)


def test_a_group_of_one_broadcast_member_skips_too() -> None:
    disk = CrashDisk()
    with (
        opened(disk, segment_bytes=1 << 16) as engine,
        skipping(engine, broadcast=True) as consumer,
    ):
        engine.send("t", b"lost")
        engine.send("t", b"1")
        (name,) = segments(disk)
        flip(disk, name, content(disk)[name].index(b"lost"))
        assert polled(consumer, 9) == [b"1"]


@pytest.mark.parametrize("limit", [60, 100])
@pytest.mark.parametrize("at", [-1, 30])
def test_a_filtered_group_gets_the_messages_before_the_damage(at: int, limit: int) -> None:
    """The error at the damage says how to go on. The heads are damaged, or a body."""
    wanted = fmq.filters.sql("x IS NULL")
    with (
        opened(damaged(RUNS, 50, at), segment_bytes=1 << 16) as engine,
        engine.consumer("t", group="g", filter=wanted) as consumer,
    ):
        got = polled(consumer, limit)
        assert sorted(got) == [b"%03d" % i for i in range(50)]
        with pytest.raises(Damaged, match=r"skip\('t', 0, 50, count=10\)"):
            polled(consumer, limit)


@pytest.mark.parametrize("take", [polled, poll_batch])
def test_a_bad_sector_is_not_skipped(take: Any) -> None:
    """The disk may give the bytes the next time."""
    disk, name, position = stored(SINGLES, 50)
    bad = BadSector(disk, name, position + 8)
    with opened(bad, segment_bytes=1 << 16) as engine, skipping(engine) as consumer:
        got: list[bytes] = []
        while len(got) < 50:
            got += take(consumer, 7)
        for _ in range(2):
            with pytest.raises(Unreadable):
                take(consumer, 7)
        assert engine.groups("g")[0].skipped == 0


def test_a_segment_that_is_missing_is_not_skipped() -> None:
    """Only records are, whose bytes are wrong: the file may come back."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for _ in range(3):
            engine.send("t", b"x" * 3000)
    with opened(disk) as engine, skipping(engine) as consumer:
        disk.directory("data", make=False).remove(segments(disk)[0])
        for _ in range(2):
            with pytest.raises(Damaged, match="the segment is missing"):
                consumer.poll()


def test_unknown_answers_to_damage_are_refused() -> None:
    with opened(CrashDisk()) as engine:
        for answer in ("drop", None, [1]):
            with pytest.raises(fmq.errors.BadOption, match="damaged="):
                engine.consumer("t", group="g", damaged=answer)  # type: ignore[arg-type]

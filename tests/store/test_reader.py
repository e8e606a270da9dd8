"""Reading: whatever the read-ahead, the records and the limit, the right bodies or Damaged."""

from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from fmq.basics.message import Message
from fmq.errors import Damaged, NewerFormat
from fmq.store.bytes.content import encode_bodies, encode_messages
from fmq.store.bytes.kinds import Kind, Record, Run
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.files import Files
from fmq.store.journal.segment import segment_name
from fmq.store.reading.batch import Batch
from fmq.store.reading.reader import RECORD_READ_BYTES, Reader, entries_of
from fmq.testing import CrashDisk, FaultDisk
from tests.store.journals import directory_of, make_journal, plan
from tests.store.samples import SEED, run_at, run_of

CAPACITY = 1 << 18
KEY = ("orders", 0)
AHEADS = [1, 100, RECORD_READ_BYTES, RECORD_READ_BYTES + 1, 10_000, 1 << 20]


@dataclass
class Stored:
    """A segment of messages of orders/0 and of others, with its index, and what was sent."""

    disk: CrashDisk = field(default_factory=CrashDisk)
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = make_journal(self.disk, CAPACITY)
        self.index = SegmentIndex(0)
        self.prepared: list[tuple[Run, list[Message]]] = []
        self.first = 7

    def publish(self, messages: list[Message], *, compress: int | None = None) -> Run:
        """Append the messages as one MESSAGE."""
        run = self._run(Kind.MESSAGE, encode_messages(messages, compress))
        self._append(run)
        self._visible(run, messages)
        return run

    def other(self, size: int) -> None:
        """Append something that is of another queue."""
        run = encode_bodies([b"-" * size], None)
        run.topic = "other"
        self._append(run)

    def prepare(self, messages: list[Message], *, compress: int | None = None) -> None:
        """Append the messages as a PRE_MESSAGE, to be published by a reference later."""
        run = self._run(Kind.PRE_MESSAGE, encode_messages(messages, compress))
        run.tx, run.tx_id, run.producer = 64, "order-42", "checkout"
        self._append(run)
        self.prepared.append((run, messages))

    def refer(self, number: int = 0) -> None:
        """Publish a prepared run by a reference."""
        held, messages = self.prepared.pop(number)
        run = self._run(Kind.REF_MESSAGE, run_of(Kind.MESSAGE, "", 0, 0, len(messages), 0))
        run.tx, run.tx_id, run.producer = held.tx, held.tx_id, held.producer
        run.body_position = held.position
        self._append(run)
        self._visible(run, messages)

    def _run(self, kind: Kind, run: Run) -> Run:
        offset = self.first + len(self.sent)
        return run_at(run, kind, *KEY, offset, 1_000 + offset)

    def _append(self, run: Run) -> None:
        records: list[Record] = [run]
        plan(self.journal, records)
        assert len(self.journal.segments) == 1, "the tests here need one segment only"

    def _visible(self, run: Run, messages: list[Message]) -> None:
        self.index.add(run)
        self.sent += messages

    def reader(self, read_ahead_bytes: int) -> Reader:
        self.journal.write(self.journal.take_pending(), sync=True)
        return Reader(Files(directory_of(self.disk)), SEED, read_ahead_bytes)

    def batch(self, reader: Reader, offset: int, limit: int) -> Batch:
        lane = self.index.lanes[KEY]
        limit = min(limit, lane.next - offset)
        entries = entries_of(0, lane, offset, limit)
        return reader.batch(*KEY, entries, offset, limit, self.journal.position)

    def expected(self, offset: int, limit: int) -> list[Any]:
        low = offset - self.first
        return [
            (m.body, m.key, m.tag, m.headers or None, self.first + i)
            for i, m in enumerate(self.sent)
        ][low : low + limit]


def seen(batch: Batch) -> list[Any]:
    assert [message.body for message in batch.messages] == [*batch.bodies]
    return [(m.body, m.key, m.tag, m.headers, m.offset) for m in batch.messages]


def some_messages(random: Random) -> list[Message]:
    """One or several, plain or not, of equal or mixed length."""
    count = random.choice([1, 1, 1, 2, 7, 40])
    size = random.choice([None, 0, 20, 300])
    messages = []
    for _ in range(count):
        length = random.randrange(100) if size is None else size
        body = random.randbytes(length // 2) + b"z" * (length - length // 2)
        rich = random.random() < 0.3
        messages.append(
            Message(
                body,
                random.choice([None, "", "ключ"]) if rich else None,
                random.choice([None, "t"]) if rich else None,
                random.choice([None, {"a": "1", "ä": ""}]) if rich else None,
            )
        )
    return messages


def of_all_sorts(seed: int, steps: int = 120) -> Stored:
    """Messages published in all the ways there are, references out of order among them."""
    random = Random(seed)
    stored = Stored()
    for _ in range(steps):
        compress = random.choice([None, 0, 200])
        act = random.random()
        if act < 0.6:
            stored.publish(some_messages(random), compress=compress)
        elif act < 0.7:
            stored.other(random.choice([1, 100, 3000]))
        elif act < 0.85:
            stored.prepare(some_messages(random), compress=compress)
        elif stored.prepared:
            stored.refer(random.randrange(len(stored.prepared)))
    while stored.prepared:
        stored.refer(-1)
    return stored


@pytest.mark.parametrize("read_ahead_bytes", AHEADS)
@pytest.mark.parametrize("seed", range(3))
def test_every_batch_holds_the_messages_that_were_sent(seed: int, read_ahead_bytes: int) -> None:
    """Read from any offset with any limit. A batch has at least one message and at most `limit`."""
    stored = of_all_sorts(seed)
    reader = stored.reader(read_ahead_bytes)
    random = Random(seed)
    lane = stored.index.lanes[KEY]
    for _ in range(150):
        offset = random.randrange(lane.first, lane.next)
        limit = random.choice([1, 2, 10, 1000])
        batch = stored.batch(reader, offset, limit)
        assert 1 <= len(batch) <= limit, (seed, offset, limit)
        assert (batch.offset, batch.next) == (offset, offset + len(batch))
        assert (batch.topic, batch.queue) == KEY
        assert seen(batch) == stored.expected(offset, len(batch)), (seed, offset, limit)


@pytest.mark.parametrize("read_ahead_bytes", AHEADS)
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_consecutive_batches_return_the_whole_queue(limit: int, read_ahead_bytes: int) -> None:
    stored = of_all_sorts(9)
    reader = stored.reader(read_ahead_bytes)
    lane = stored.index.lanes[KEY]
    offset, found = lane.first, []
    while offset < lane.next:
        batch = stored.batch(reader, offset, limit)
        found += seen(batch)
        offset = batch.next
    assert found == stored.expected(lane.first, len(stored.sent))


def test_two_alternating_reads_do_not_disturb_each_other() -> None:
    """They share one Reader, and so its window."""
    stored = of_all_sorts(4)
    reader = stored.reader(5000)
    lane = stored.index.lanes[KEY]
    middle = (lane.first + lane.next) // 2
    for step in range(lane.next - middle - 1):
        for offset in (lane.first + step, middle + step):
            batch = stored.batch(reader, offset, 2)
            assert seen(batch) == stored.expected(offset, len(batch))


def test_a_referenced_message_has_the_origin_of_its_publication() -> None:
    stored = Stored()
    stored.prepare([Message(b"a", key="k"), Message(b"b")])
    stored.other(5000)
    stored.refer()
    batch = stored.batch(stored.reader(100), stored.first, 10)
    position = stored.index.lanes[KEY].records[0]
    for message in batch.messages:
        assert (message.position, message.tx_id, message.producer) == (
            position,
            "order-42",
            "checkout",
        )
    assert [message.key for message in batch] == ["k", None]


def test_a_record_larger_than_the_read_ahead_is_read_whole() -> None:
    for compress in (None, 0):
        stored = Stored()
        large = Random(1).randbytes(60_000) + bytes(60_000)
        stored.publish([Message(b"small")])
        stored.publish([Message(large)], compress=compress)
        stored.publish([Message(b"small again")])
        for read_ahead_bytes in AHEADS:
            reader = stored.reader(read_ahead_bytes)
            found: list[bytes] = []
            while len(found) < 3:
                found += stored.batch(reader, stored.first + len(found), 3).bodies
            assert found == [b"small", large, b"small again"]


def test_bytes_after_the_visible_end_are_read_again_once_visible() -> None:
    """A read-ahead may have got them as zeros or in part."""
    stored = Stored()
    stored.publish([Message(b"first")])
    reader = stored.reader(1 << 20)
    assert stored.batch(reader, stored.first, 10).bodies == (b"first",)
    for number in range(30):
        stored.publish([Message(b"%d" % number * 50)])
        stored.journal.write(stored.journal.take_pending(), sync=True)
        batch = stored.batch(reader, stored.first + 1 + number, 10)
        assert batch.bodies == (b"%d" % number * 50,)


def test_a_window_serves_many_batches_with_one_read() -> None:
    """The disk counts one read for 200 batches of one message each."""
    stored = Stored()
    for number in range(200):
        stored.publish([Message(b"%d" % number)])
    stored.reader(1)
    counting = FaultDisk(stored.disk)
    reader = Reader(Files(directory_of(counting)), SEED, 1 << 20)
    for number in range(200):
        assert stored.batch(reader, stored.first + number, 1).bodies == (b"%d" % number,)
    assert counting.count("read") == 1


def test_reading_references_in_reverse_order_takes_little_memory() -> None:
    """Each body lies before the last one: decisions are in the reverse order of the prepares."""
    stored = Stored()
    for number in range(30):
        stored.prepare([Message(b"%d" % number * 1000)])
    while stored.prepared:
        stored.refer(-1)
    reader = stored.reader(1 << 20)
    tracemalloc.start()
    try:
        batch = stored.batch(reader, stored.first, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen(batch) == stored.expected(stored.first, 30)
    assert peak < 2 * CAPACITY


@pytest.mark.parametrize("count", [1, 2])
def test_a_sound_run_at_a_wrong_position_is_damaged(count: int) -> None:
    """A disk that writes a block to the wrong place leaves this."""
    stored = Stored()
    runs = [
        stored.publish([Message(b"a" * 8)] * count),
        stored.publish([Message(b"b" * 8)] * count),
    ]
    reader = stored.reader(1)
    file = directory_of(stored.disk).open(segment_name(0), write=True)
    file.write(runs[0].position, (file.read(runs[1].position, runs[1].size),), sync=True)
    with pytest.raises(Damaged, match=f"belongs at {runs[1].position}"):
        stored.batch(reader, stored.first, count)


def records_of(stored: Stored, number: int) -> list[Run]:
    """The records that entry `number` of the index needs: where it is published, and its bodies."""
    lane = stored.index.lanes[KEY]
    reader = stored.reader(1)
    places = dict.fromkeys((lane.records[number], lane.bodies[number]))
    return [reader.run_with_bytes(0, place)[0] for place in places]


def kinds_of_entries() -> dict[str, Stored]:
    """Three runs each, of which the one in the middle will be damaged."""
    sorts: dict[str, Stored] = {}
    for name, messages, compress in [
        ("one", [Message(b"damage me")], None),
        ("several of equal length", [Message(b"damage"), Message(b"me too")], None),
        ("several of mixed length", [Message(b"damage"), Message(b"me")], None),
        ("with keys", [Message(b"x", key="k", headers={"a": "b"}), Message(b"yy")], None),
        ("compressed", [Message(b"damage" * 30)], 0),
    ]:
        for referred in (False, True):
            stored = Stored()
            stored.publish([Message(b"before")])
            if referred:
                stored.prepare(messages, compress=compress)
                stored.refer()
            else:
                stored.publish(messages, compress=compress)
            stored.publish([Message(b"behind")])
            sorts[f"{name}, referred to" if referred else name] = stored
    return sorts


@pytest.mark.parametrize("name", kinds_of_entries())
@pytest.mark.parametrize("read_ahead_bytes", [1, 1 << 20])
def test_a_flipped_bit_in_a_run_raises_damaged(name: str, read_ahead_bytes: int) -> None:
    """Damaged names the file and a position of the record. Runs before and after stay readable."""
    stored = kinds_of_entries()[name]
    stored.reader(1)
    file = directory_of(stored.disk).open(segment_name(0), write=True)
    lane = stored.index.lanes[KEY]
    victim = stored.first + 1
    for run in records_of(stored, 1):
        for bit in range(0, 8 * run.size, 3):
            at = run.position + bit // 8
            (sound,) = file.read(at, 1)
            file.write(at, (bytes([sound ^ 1 << bit % 8]),), sync=True)
            reader = stored.reader(read_ahead_bytes)
            try:
                assert stored.batch(reader, stored.first, 1).bodies == (b"before",)
                with pytest.raises(Damaged) as caught:
                    stored.batch(reader, victim, lane.counts[1])
                assert caught.value.file == segment_name(0)
                assert caught.value.position in (lane.records[1], lane.bodies[1])
                assert stored.batch(reader, lane.next - 1, 1).bodies == (b"behind",)
            finally:
                file.write(at, (bytes([sound]),), sync=True)
    assert seen(stored.batch(stored.reader(1), victim, lane.counts[1]))


@pytest.mark.parametrize("name", kinds_of_entries())
@pytest.mark.parametrize("read_ahead_bytes", [1, 1 << 20])
def test_sound_messages_before_a_damaged_run_are_returned(name: str, read_ahead_bytes: int) -> None:
    """Whichever bit is damaged, the batch has exactly the messages before the run."""
    stored = kinds_of_entries()[name]
    stored.reader(1)
    file = directory_of(stored.disk).open(segment_name(0), write=True)
    for run in records_of(stored, 1):
        for bit in range(0, 8 * run.size, 3):
            at = run.position + bit // 8
            (sound,) = file.read(at, 1)
            file.write(at, (bytes([sound ^ 1 << bit % 8]),), sync=True)
            try:
                batch = stored.batch(stored.reader(read_ahead_bytes), stored.first, 100)
                assert seen(batch) == stored.expected(stored.first, 1)
            finally:
                file.write(at, (bytes([sound]),), sync=True)


def test_a_batch_that_begins_in_a_damaged_run_raises_damaged() -> None:
    """Messages skipped at the beginning of a batch do not count as sound ones."""
    stored = Stored()
    first = stored.first
    stored.publish([Message(b"a"), Message(b"b"), Message(b"c")])
    bad = stored.publish([Message(b"d"), Message(b"e")])
    stored.reader(1)
    file = directory_of(stored.disk).open(segment_name(0), write=True)
    file.write(bad.position + bad.size - 1, (b"!",), sync=True)
    reader = stored.reader(1 << 20)
    assert stored.batch(reader, first + 1, 100).bodies == (b"b", b"c")
    for offset in (first + 3, first + 4):
        with pytest.raises(Damaged) as caught:
            stored.batch(reader, offset, 100)
        assert caught.value.position == bad.position


def test_batch_sound_returns_the_messages_before_the_damage() -> None:
    """A batch decodes its heads only when its messages are asked for, so it may find damage after
    the poll.

    Method: change the head in the window that the batch was cut from.
    """
    stored = Stored()
    for body in (b"a", b"b", b"c", b"d"):
        bad = stored.publish([Message(body, key="k"), Message(body)])
    batch = stored.batch(stored.reader(1 << 20), stored.first, 100)
    window = batch._runs[0].window  # type: ignore[attr-defined]
    at = bad.position - window.start + 20
    window.data = window.data[:at] + b"!" + window.data[at + 1 :]
    with pytest.raises(Damaged):
        _ = batch.messages
    assert seen(batch.sound()) == stored.expected(stored.first, 6)
    assert seen(batch.part(stored.first + 3, 100).sound()) == stored.expected(stored.first + 3, 3)
    with pytest.raises(Damaged) as caught:
        batch.part(stored.first + 6, 100).sound()
    assert caught.value.position == bad.position


@pytest.mark.parametrize("name", kinds_of_entries())
def test_reading_a_segment_that_was_cut_short_raises_damaged(name: str) -> None:
    stored = kinds_of_entries()[name]
    stored.reader(1)
    file = directory_of(stored.disk).open(segment_name(0))
    whole = file.read(0, stored.journal.position)
    lane = stored.index.lanes[KEY]
    last = max(run.position + run.size for run in records_of(stored, 1))
    for size in range(lane.bodies[1], last, 5):
        disk = CrashDisk()
        directory_of(disk).create(segment_name(0)).write(0, (whole[:size],), sync=True)
        for read_ahead_bytes in (1, 1 << 20):
            reader = Reader(Files(directory_of(disk)), SEED, read_ahead_bytes)
            entries = entries_of(0, lane, stored.first + 1, lane.counts[1])
            with pytest.raises(Damaged):
                reader.batch(*KEY, entries, stored.first + 1, 100, stored.journal.position)


def change_kind(stored: Stored, place: int, kind: int) -> None:
    """Make another kind of the record at `place`, with a checksum that is right."""
    file = directory_of(stored.disk).open(segment_name(0), write=True)
    head = bytearray(file.read(place, int.from_bytes(file.read(place + 12, 4), "little")))
    head[32] = kind
    head[4:8] = zlib.crc32(head[8:], SEED).to_bytes(4, "little")
    file.write(place, (bytes(head),), sync=True)


@pytest.mark.parametrize("kind", [0, *Kind, 77])
@pytest.mark.parametrize("name", kinds_of_entries())
@pytest.mark.parametrize("read_ahead_bytes", [1, 1 << 20])
def test_a_record_of_another_kind_gives_no_messages(
    name: str, kind: int, read_ahead_bytes: int
) -> None:
    """Raise NewerFormat for a kind or a shape that this fmq does not know, else Damaged. Runs
    before and after stay readable.
    """
    stored = kinds_of_entries()[name]
    stored.reader(1)
    lane = stored.index.lanes[KEY]
    victim = stored.first + 1
    for run in records_of(stored, 1):
        if run.kind == kind:
            continue
        change_kind(stored, run.position, kind)
        reader = stored.reader(read_ahead_bytes)
        both = {Kind.MESSAGE, Kind.TX_MESSAGE} == {run.kind, kind}
        expected = (Damaged, NewerFormat) if kind in set(Kind) else NewerFormat
        with pytest.raises(expected) as caught:
            batch = stored.batch(reader, victim, lane.counts[1])
            assert both, batch.bodies  # a body may be had of either, and messages of the one alone
            batch.messages  # noqa: B018
        assert isinstance(caught.value, (Damaged, NewerFormat))
        assert caught.value.position == run.position
        assert stored.batch(reader, stored.first, 1).bodies == (b"before",)
        assert stored.batch(reader, lane.next - 1, 1).bodies == (b"behind",)
        change_kind(stored, run.position, run.kind)
    assert seen(stored.batch(stored.reader(1), victim, lane.counts[1]))


@pytest.mark.parametrize("counts", [(3, 2), (2, 4), (4, 2), (6, 1)])
def test_a_run_whose_count_differs_from_the_index_is_damaged(counts: tuple[int, int]) -> None:
    """Every checksum is right, and the bodies could be cut into that many."""
    stored = Stored()
    for count in counts:
        stored.publish([Message(b"x" * (12 // count))] * count)
    reader = stored.reader(1 << 20)
    lane = stored.index.lanes[KEY]
    lane.records[0] = lane.bodies[0] = lane.records[1]
    with pytest.raises(Damaged):
        stored.batch(reader, stored.first, counts[0])


@pytest.mark.parametrize("count", [1, 3])
def test_an_index_entry_that_points_at_no_run_is_damaged(count: int) -> None:
    for shift in (-8, 8, 1 << 20):
        stored = Stored()
        stored.publish([Message(b"first")])
        stored.publish([Message(b"x")] * count)
        reader = stored.reader(1 << 20)
        lane = stored.index.lanes[KEY]
        lane.records[1] = lane.bodies[1] = lane.records[1] + shift
        with pytest.raises(Damaged):
            stored.batch(reader, stored.first + 1, count)


def test_reading_one_record_returns_it_or_raises_damaged() -> None:
    stored = Stored()
    run = stored.publish([Message(b"x", key="k")])
    reader = stored.reader(100)
    again = reader.record(0, run.position)
    assert (again.kind, again.position, again.size) == (run.kind, run.position, run.size)
    found, data, at = reader.run_with_bytes(0, run.position)
    assert (found.topic, found.count) == ("orders", 1)
    assert data[at : at + 4] == b"fmq\2"
    with pytest.raises(Damaged) as caught:
        reader.record(0, run.position + 8)
    assert (caught.value.file, caught.value.position) == (segment_name(0), run.position + 8)

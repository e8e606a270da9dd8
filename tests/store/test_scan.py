"""A scan reads whole appends, and says what stopped it and where; it concludes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import pytest

from fmq.machine.disk import File
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.kinds import AckRange, Acks, Record
from fmq.store.bytes.record import COMMON, FIRST, LAST, MAGIC, PREFIX
from fmq.store.journal.scan import (
    BLOCK_BYTES,
    Finding,
    Scan,
    ScanEnd,
    durable_beyond,
    last_byte,
    zeros_from,
)
from fmq.store.journal.segment import HEADER_BYTES
from fmq.testing import CrashDisk
from tests.store.journals import chain_over, directory_of, end_of, note, text_of
from tests.store.samples import SEED, encoded, place
from tests.store.test_record_damage import KIND_AT, changed, resealed

BASE = 1 << 20
START = BASE + HEADER_BYTES
FIRST_CHAIN = 7


class Bytes:
    """The bytes of a segment at BASE, built record by record."""

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.data = bytearray(HEADER_BYTES)
        self.appends: list[list[Record]] = []

    @property
    def position(self) -> int:
        return BASE + len(self.data)

    def append(self, *texts: str, size: int = 0, durable_to: int = 0) -> list[Record]:
        """One append of a note for each text."""
        records = [
            self.add(
                note(text, size),
                (FIRST if i == 0 else 0) | (LAST if i == len(texts) - 1 else 0),
                durable_to,
            )
            for i, text in enumerate(texts)
        ]
        self.appends.append(records)
        return records

    def add(self, record: Record, flags: int, durable_to: int = 0) -> Record:
        place(record, self.position, flags)
        self.data += encoded(record, durable_to)
        return record

    def file(self, *, whole: bool = True) -> File:
        """A file of these bytes, with the zeros that fill a segment or without."""
        file = directory_of(CrashDisk()).create("a.seg")
        if whole:
            file.allocate(self.capacity)
        file.write(0, (bytes(self.data),), sync=False)
        return file

    def scan(self, *, whole: bool = True, limit: int = 0, position: int = START) -> Scanned:
        scan = Scan(
            self.file(whole=whole),
            BASE,
            limit or BASE + self.capacity,
            position,
            SEED,
            FIRST_CHAIN,
            START,
        )
        appends = list(scan)
        assert scan.ending is not None
        texts = [[text_of(record) for record in append] for append in appends]
        return Scanned(texts, appends, scan.ending, scan.chain, scan.durable_to)


@dataclass
class Scanned:
    texts: list[list[str]]
    appends: list[list[Record]]
    ending: ScanEnd
    chain: int | None
    durable_to: int


def two_appends(capacity: int = 4096) -> Bytes:
    data = Bytes(capacity)
    data.append("a", "b")
    data.append("c")
    return data


TWO = [["a", "b"], ["c"]]


def test_appends_are_read_whole_and_in_order() -> None:
    data = two_appends()
    scanned = data.scan()
    assert scanned.texts == TWO
    for found, written in zip(scanned.appends, data.appends, strict=True):
        assert [record.position for record in found] == [record.position for record in written]


def test_a_rest_of_zeros_is_reported_as_zeros() -> None:
    data = two_appends()
    ending = data.scan().ending
    assert (ending.finding, ending.position) == (Finding.ZEROS, data.position)
    assert ending.append_start == data.position


def test_a_file_that_is_too_short_is_reported_as_short() -> None:
    data = two_appends()
    for zeros in (0, 1, 8, 100):
        data.data += bytes(zeros)
        scanned = data.scan(whole=False)
        assert scanned.texts == TWO
        assert scanned.ending.finding is Finding.SHORT


def test_a_scan_that_reaches_its_limit_reports_end() -> None:
    data = two_appends()
    scanned = data.scan(limit=data.position)
    assert (scanned.texts, scanned.ending.finding) == (TWO, Finding.END)
    empty = Bytes().scan(limit=START)
    assert (empty.texts, empty.ending.finding) == ([], Finding.END)


def test_a_segment_filled_to_its_last_byte_reports_end() -> None:
    data = two_appends()
    data.capacity = len(data.data)
    scanned = data.scan()
    assert (scanned.texts, scanned.ending.finding) == (TWO, Finding.END)


@pytest.mark.parametrize("room", range(8, 48, 8))
def test_a_rest_too_small_for_a_record_is_zeros_or_bad(room: int) -> None:
    data = two_appends()
    data.capacity = len(data.data) + room
    assert data.scan().ending.finding is Finding.ZEROS
    data.data += b"x" * room
    assert data.scan().ending.finding is Finding.BAD


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_wrong_byte_in_the_last_record_is_reported_as_bad(at: int) -> None:
    data = two_appends()
    (last,) = data.appends[-1]
    place_in_file = last.position - BASE
    wrong = bytearray(data.data)
    wrong[place_in_file + at % last.size] ^= 0x40
    data.data = wrong
    scanned = data.scan()
    assert scanned.texts == TWO[:1]
    assert scanned.ending.finding is Finding.BAD
    assert scanned.ending.position == scanned.ending.append_start == last.position


def test_a_nonzero_byte_far_after_the_end_is_reported_as_bad() -> None:
    for capacity in (4096, BLOCK_BYTES + 4096, 3 * BLOCK_BYTES):
        data = two_appends(capacity)
        end = data.position
        data.data += bytes(capacity - len(data.data) - 1) + b"\1"
        ending = data.scan().ending
        assert (ending.finding, ending.position) == (Finding.BAD, end), capacity


def test_a_record_of_another_place_is_reported_as_misplaced() -> None:
    data = two_appends()
    end = data.position
    data.data += encoded(place(note("x"), BASE + 8 * 100))
    scanned = data.scan()
    assert scanned.texts == TWO
    assert (scanned.ending.finding, scanned.ending.position) == (Finding.MISPLACED, end)
    assert str(BASE + 800) in scanned.ending.reason


def test_a_record_of_another_store_is_reported_as_bad() -> None:
    data = two_appends()
    data.data += encoded(place(note("x"), data.position), seed=SEED ^ 1)
    assert data.scan().ending.finding is Finding.BAD


def test_a_record_of_an_unknown_kind_is_reported_as_newer() -> None:
    data = two_appends()
    data.data += resealed(changed(encoded(place(note("x"), data.position)), KIND_AT, 1, 99))
    scanned = data.scan()
    assert (scanned.texts, scanned.ending.finding) == (TWO, Finding.NEWER)


def test_a_sound_record_of_a_newer_version_is_reported_as_newer() -> None:
    data = two_appends()
    end = data.position
    data.data += b"fmq\4" + encoded(place(note("x"), data.position))[4:]
    scanned = data.scan()
    assert (scanned.texts, scanned.ending.finding) == (TWO, Finding.NEWER)
    assert scanned.ending.position == end
    data.data[end - BASE + 20] ^= 1
    assert data.scan().ending.finding is Finding.BAD


def test_a_record_across_the_end_of_its_segment_is_not_returned() -> None:
    """The limit cuts the record itself, or only its padding."""
    data = two_appends()
    record = data.add(note("x" * 101), FIRST | LAST)
    inside = record.position + record.size - 8
    scanned = data.scan(limit=inside)
    assert scanned.texts == TWO
    assert scanned.ending.finding is Finding.BAD
    assert record.size % 8, "with its padding it reaches further"
    scanned = data.scan(limit=record.position + record.size)
    assert (scanned.texts, scanned.ending.finding) == (TWO, Finding.MISPLACED)


@pytest.mark.parametrize("records", [1, 2, 3])
def test_no_record_of_an_unfinished_append_is_returned(records: int) -> None:
    data = two_appends()
    start = data.position
    for i in range(records):
        data.add(note(f"{i}"), FIRST if i == 0 else 0)
    for whole, finding in [(True, Finding.ZEROS), (False, Finding.SHORT)]:
        scanned = data.scan(whole=whole)
        assert scanned.texts == TWO
        assert scanned.ending.finding is finding
        assert (scanned.ending.append_start, scanned.ending.position) == (start, data.position)
    limited = data.scan(limit=data.position)
    assert limited.ending.finding is Finding.END
    assert limited.ending.append_start == start


def test_no_record_of_a_torn_append_is_returned() -> None:
    """Tear it at every byte. An append that lacks only padding or zeros is whole."""
    data = two_appends()
    start = data.position
    last = data.append("d", "e" * 50)[-1]
    whole = bytes(data.data)
    for size in range(start - BASE, len(whole)):
        torn = Bytes()
        torn.data = bytearray(whole[:size])
        only_padding = size >= last.position + last.size - BASE
        for filled in (True, False):
            scanned = torn.scan(whole=filled)
            if only_padding or (filled and not any(whole[size:])):
                assert scanned.texts == [*TWO, ["d", "e" * 50]], size
                continue
            assert scanned.texts == TWO, size
            assert scanned.ending.append_start == start
            assert scanned.ending.finding in (Finding.BAD, Finding.ZEROS, Finding.SHORT)


def test_an_append_within_another_is_reported_as_misplaced() -> None:
    data = two_appends()
    start = data.position
    data.add(note("open"), FIRST)
    inner = data.add(note("x"), FIRST | LAST)
    scanned = data.scan()
    assert scanned.texts == TWO
    assert scanned.ending.finding is Finding.MISPLACED
    assert (scanned.ending.append_start, scanned.ending.position) == (start, inner.position)


def test_an_append_without_its_first_record_is_reported_as_misplaced() -> None:
    data = two_appends()
    record = data.add(note("x"), LAST)
    scanned = data.scan()
    assert scanned.texts == TWO
    assert (scanned.ending.finding, scanned.ending.position) == (
        Finding.MISPLACED,
        record.position,
    )


@pytest.mark.parametrize("extra", [-1, 0, 1, 8, 9])
@pytest.mark.parametrize("blocks", [1, 2])
def test_records_larger_than_a_block_are_read(blocks: int, extra: int) -> None:
    large = note(b"x" * (blocks * BLOCK_BYTES + extra - size_of(note(""))))
    data = Bytes(capacity=4 * BLOCK_BYTES)
    data.append("before")
    data.appends.append([data.add(large, FIRST | LAST)])
    data.append("behind")
    scanned = data.scan()
    assert [len(text) for (text,) in scanned.texts] == [6, len(large.json), 6]
    assert scanned.ending.finding is Finding.ZEROS


def test_records_across_the_end_of_a_block_are_read() -> None:
    """The end of a block cuts heads and bodies at every alignment. A scan that begins elsewhere
    cuts its blocks elsewhere.
    """
    data = Bytes(capacity=2 * BLOCK_BYTES)
    size = size_of(note("")) + 4
    filler = BLOCK_BYTES - 600
    data.append("filler", size=filler)
    while len(data.data) < BLOCK_BYTES + 600:
        data.append(f"{len(data.appends):04d}", size=len(data.appends) % 9)
    for skipped in range(3):
        position = data.appends[skipped][0].position
        scanned = data.scan(position=position)
        assert len(scanned.appends) == len(data.appends) - skipped > 15
        assert scanned.ending.finding is Finding.ZEROS
    # The same with a filler that shifts everything by one alignment after the other.
    for shift in range(0, size + 40, 8):
        shifted = Bytes(capacity=2 * BLOCK_BYTES)
        shifted.append("filler", size=BLOCK_BYTES - 200 + shift)
        for i in range(12):
            shifted.append(f"{i}")
        scanned = shifted.scan()
        assert [text[0] for text in scanned.texts[1:]] == [f"{i}" for i in range(12)], shift


def test_a_record_with_a_false_size_is_reported_as_bad() -> None:
    data = two_appends()
    end = data.position
    data.data += changed(encoded(place(note("x"), end)), 8, 4, (1 << 32) - 1)
    assert data.scan().ending.finding is Finding.BAD


def test_durable_to_is_the_largest_that_a_record_states() -> None:
    data = Bytes()
    data.append("a", durable_to=START - 8)
    data.append("b", "c", durable_to=START)
    data.append("d", durable_to=START - 16)
    assert data.scan().durable_to == START


def test_a_scan_may_begin_at_any_append() -> None:
    data = two_appends()
    (last,) = data.appends[-1]
    scanned = data.scan(position=last.position)
    assert scanned.texts == TWO[1:]


def test_the_chain_covers_every_whole_append_and_no_other() -> None:
    data = two_appends()
    chain = FIRST_CHAIN
    for append in data.appends:
        chain = chain_over(bytes(data.data), append, BASE, chain)
    assert data.scan().chain == chain
    data.add(note("unfinished"), FIRST)
    assert data.scan().chain == chain
    assert data.scan(position=data.appends[1][0].position).chain is None, "never at chain_at"
    assert Bytes().scan().chain == FIRST_CHAIN


def test_the_chain_continues_from_a_known_position() -> None:
    """A checkpoint knows the chain in the middle of a segment."""
    data = two_appends()
    middle = end_of(data.appends[0])
    known = data.scan(limit=middle).chain
    assert known is not None
    scan = Scan(data.file(), BASE, BASE + data.capacity, START, SEED, known, middle)
    list(scan)
    assert scan.chain == data.scan().chain


def test_two_orders_of_the_same_records_have_different_chains() -> None:
    one, other = Bytes(), Bytes()
    for text in "ab":
        one.append(text)
    for text in "ba":
        other.append(text)
    assert one.scan().chain != other.scan().chain


def test_a_sound_record_after_damage_proves_what_was_durable() -> None:
    data = two_appends()
    damaged = data.position
    data.data += b"garbage!" * 5
    assert durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED) == 0
    data.append("behind", durable_to=damaged + 16)
    data.append("further behind", durable_to=damaged + 8)
    assert durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED) == damaged + 16


@pytest.mark.parametrize("at", ["version", "kind"])
def test_a_newer_record_after_damage_proves_what_was_durable(at: str) -> None:
    data = two_appends()
    damaged = data.position
    data.data += b"garbage!" * 5
    sound = encoded(place(note("x"), data.position), damaged + 16)
    newer = b"fmq\4" + sound[4:] if at == "version" else resealed(changed(sound, KIND_AT, 1, 99))
    before = len(data.data)
    data.data += newer
    assert durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED) == damaged + 16
    data.data[before + 30] ^= 1
    assert durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED) == 0


def test_bytes_that_only_look_like_a_record_prove_nothing_durable() -> None:
    """They lie in a body, are not aligned, or belong to another store or another place."""
    data = Bytes()
    damaged = data.position
    data.data += b"garbage!"
    position = data.position
    liar = encoded(place(note("x"), position + 8), durable_to=position)
    data.data += b"fmq\2" * 2 + b"fmq\2abc" + liar
    data.data += bytes(-len(data.data) % 8)
    data.data += encoded(place(note("y"), data.position), position, seed=SEED ^ 1)
    data.data += encoded(place(note("z"), data.position + 8), position)
    data.data += b"abcd"
    data.data += encoded(place(note("not aligned"), data.position), position)
    assert durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED) == 0


@pytest.mark.parametrize("in_place", [False, True])
def test_a_scan_of_many_false_heads_is_fast(in_place: bool) -> None:
    """A body may hold bytes that look like heads, each of a record up to the end of the segment.
    To hash each to its end would take quadratic time.
    """
    data = Bytes(capacity=16 << 20)
    damaged = data.position
    data.data += b"garbage!"
    for _ in range(1500):
        left = BASE + data.capacity - data.position
        says = data.position if in_place else 0
        data.data += PREFIX.pack(MAGIC, 0) + COMMON.pack(left, left, says, 0, 0, 1, 0, 0)
        data.data += bytes(-len(data.data) % 8)
    data.append("behind", durable_to=damaged + 8)
    began = process_time()
    found = durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED)
    assert process_time() - began < 3
    if not in_place:
        assert found == damaged + 8


@pytest.mark.parametrize("before", range(-48, 9, 8))
def test_durable_beyond_finds_a_record_across_the_end_of_a_block(before: int) -> None:
    data = Bytes(capacity=3 * BLOCK_BYTES)
    damaged = data.position
    data.data += b"g" * (BLOCK_BYTES + before)
    data.append("behind", durable_to=damaged + 8)
    limit = BASE + data.capacity
    assert durable_beyond(data.file(), BASE, limit, damaged, SEED) == damaged + 8


@pytest.mark.parametrize("sound", [True, False])
def test_a_head_larger_than_a_block_is_found_if_it_is_sound(sound: bool) -> None:
    data = Bytes(capacity=4 * BLOCK_BYTES)
    damaged = data.position
    data.data += b"garbage!"
    acks = Acks(tuple(AckRange("g" * 250, "t" * 250, 0, i, i + 1) for i in range(3000)), 1)
    data.add(acks, FIRST | LAST, damaged + 8)
    assert len(data.data) > BLOCK_BYTES
    if not sound:
        data.data[-100] ^= 1
    found = durable_beyond(data.file(), BASE, BASE + data.capacity, damaged, SEED)
    assert found == (damaged + 8 if sound else 0)


def test_zeros_are_checked_up_to_the_given_end_or_the_files_end() -> None:
    file = directory_of(CrashDisk()).create("a")
    file.write(0, (b"x" + bytes(2 * BLOCK_BYTES) + b"y",), sync=False)
    end = 2 * BLOCK_BYTES + 1
    assert zeros_from(file, 1, end)
    assert not zeros_from(file, 1, end + 1)
    assert not zeros_from(file, 0, 1)
    assert zeros_from(file, 5, 5)
    assert zeros_from(file, end + 1, end + 100)
    assert [last_byte(file, *between) for between in ((0, end), (1, end), (0, end + 9))] == [
        1,
        1,
        end + 1,
    ]
    assert last_byte(file, 5, 5) == 5

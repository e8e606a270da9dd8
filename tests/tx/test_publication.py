"""By reference or by copy: a commit publishes what was prepared, and a segment needs no other."""

from __future__ import annotations

import uuid
import zlib

import pytest

from fmq import Engine, Message
from fmq.store.kinds import Kind, Run
from fmq.store.scan import Scan
from fmq.store.segment import HEADER_BYTES, base_of, decode_header
from tests.small import CrashDisk, check, content, fill, opened, segments

LARGE, SMALL = b"L" * 300, b"S" * 20


def kinds_of(disk: CrashDisk, tx_id: str) -> list[tuple[str, int]]:
    """What the journal holds of a transaction: kind, and number of the segment."""
    found = []
    directory = disk.directory("data", make=False)
    for number, name in enumerate(segments(disk)):
        header = decode_header(content(disk)[name], name)
        start, seed = base_of(name) + HEADER_BYTES, zlib.crc32(header.store)
        limit = header.base + header.capacity
        for append in Scan(directory.open(name), header.base, limit, start, seed):
            for record in append:
                if isinstance(record, Run) and record.tx_id == tx_id:
                    found.append((Kind(record.kind).name, number))
    return found


def prepared(engine: Engine, *sent: bytes) -> None:
    tx = engine.transaction(tx_id="T")
    for number, body in enumerate(sent):
        tx.send(f"t{number}", body, key="k", headers={"h": str(number)})
    tx.prepare()


def read(engine: Engine, sent: tuple[bytes, ...]) -> None:
    """Everything sent is there, keys and headers too."""
    for number, body in enumerate(sent):
        (message,) = engine.read(f"t{number}")
        assert (message.body, message.key, message.headers) == (body, "k", {"h": str(number)})


@pytest.mark.parametrize("restart", [False, True])
def test_a_large_body_of_the_same_segment_is_referred_to_and_a_small_one_copied(
    restart: bool,
) -> None:
    disk = CrashDisk()
    engine = opened(disk, reference_bytes_min=100)
    prepared(engine, LARGE, SMALL)
    if restart:
        engine.close()
        engine = opened(disk, reference_bytes_min=100)
    with engine:
        engine.decide("T", "commit")
        read(engine, (LARGE, SMALL))
    assert kinds_of(disk, "T")[2:] == [("REF_MESSAGE", 0), ("TX_MESSAGE", 0)]
    with opened(disk) as engine:
        read(engine, (LARGE, SMALL))
    check(disk)


@pytest.mark.parametrize("restart", [False, True])
def test_bodies_of_another_segment_are_copied(restart: bool) -> None:
    disk = CrashDisk()
    engine = opened(disk, reference_bytes_min=100)
    prepared(engine, LARGE, SMALL)
    fill(engine)
    if restart:
        engine.close()
        engine = opened(disk, reference_bytes_min=100)
    with engine:
        engine.decide("T", "commit")
        read(engine, (LARGE, SMALL))
    assert kinds_of(disk, "T")[2:] == [("TX_MESSAGE", 1), ("TX_MESSAGE", 1)]
    check(disk)


def test_a_commit_that_makes_the_journal_roll_copies_instead_of_referring() -> None:
    """What was chosen for the old segment is chosen again for the new one.

    Method: leave less room behind the prepare than even the references need.
    """
    disk = CrashDisk()
    with opened(disk, reference_bytes_min=100) as engine:
        prepared(engine, LARGE, LARGE, LARGE)
        room = 4096 - engine.stats().position
        engine.send("fill", b"f" * (room - 400))
        assert 4096 - engine.stats().position < 400
        engine.decide("T", "commit")
        read(engine, (LARGE, LARGE, LARGE))
    assert kinds_of(disk, "T")[3:] == [("TX_MESSAGE", 1)] * 3
    check(disk)


def test_every_segment_can_be_read_without_the_ones_before_it() -> None:
    """Drop all but the last two files' worth: what is visible there has its bodies there."""
    disk = CrashDisk()
    with opened(disk, reference_bytes_min=100, retain_bytes=8192) as engine:
        for number in range(30):
            tx = engine.transaction(tx_id=str(number))
            tx.send("t", LARGE + str(number).encode())
            tx.prepare()
            if number >= 3:
                engine.decide(str(number - 3), "commit")
        (info,) = engine.queues("t")
        assert 0 < info.first < info.next == 27
        for message in engine.read("t", offset=info.first):
            assert message.body == LARGE + str(message.offset).encode()
    check(disk)


@pytest.mark.parametrize("compress_bytes_min", [None, 50])
@pytest.mark.parametrize("rolls", [False, True])
def test_a_reference_and_a_copy_show_the_same_messages(
    compress_bytes_min: int | None, rolls: bool
) -> None:
    disk = CrashDisk()
    sent = [Message(b"x" * 200 + bytes([n]), f"k{n}", None, {"n": str(n)}) for n in range(5)]
    with opened(disk, reference_bytes_min=100, compress_bytes_min=compress_bytes_min) as engine:
        tx = engine.transaction(tx_id=str(uuid.UUID(int=1)), producer="p")
        tx.send_many("t", sent)
        tx.prepare()
        if rolls:
            fill(engine)
        tx.commit()
        for number, message in enumerate(engine.read("t")):
            expected = sent[number]
            assert (message.body, message.key, message.tag, message.headers) == (
                expected.body,
                expected.key,
                None,
                expected.headers,
            )
            assert (message.tx_id, message.producer) == (tx.tx_id, "p")
        assert engine.read("t", offset=3, limit=1)[0].body == sent[3].body
    check(disk)


@pytest.mark.parametrize("end", ["commit", "rollback", "decide"])
def test_what_is_decided_makes_room_in_memory_for_the_next(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmq.tx.kept.KEPT_BYTES_MAX", 400)
    with opened(CrashDisk()) as engine:
        undecided = engine._parts.writer.ledger.by_tx_id
        for number in range(5):
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("t", SMALL)
            tx.prepare()
            assert undecided[tx.tx_id].kept is not None
            if end == "decide":
                engine.decide(tx.tx_id, "commit")
            else:
                getattr(tx, end)()
        assert len(engine.read("t")) == (0 if end == "rollback" else 5)


def test_what_does_not_fit_in_memory_is_read_again() -> None:
    with opened(CrashDisk(), reference_bytes_min=100) as engine:
        prepared(engine, SMALL, LARGE)
        entry = engine._parts.writer.ledger.by_tx_id["T"]
        assert entry.kept is None
        assert [run.content for run in entry.runs] == [None, None]
        engine.decide("T", "commit")
        read(engine, (SMALL, LARGE))

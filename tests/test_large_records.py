"""Records of many messages: a new one holds at most 65,536, and of any only what is asked is built.

The large ones are written by hand as docs/format.md says: a journal of an earlier version may hold
16,777,216 messages in one record.
"""

from __future__ import annotations

import io
import tracemalloc
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

import fmq
from fmq.errors import TooLarge
from fmq.table.read import read
from fmq.testing import World, crash

MESSAGES_MAX = 65_536
FORMAT_MAX = 16_777_216
MEMORY_BYTES_MAX = 64 << 20
FRONT = Struct("<IIQIIBBH")  # from the size of the record to its queue, as docs/format.md says
PLACE = Struct("<QqIBBB")
LENGTHS, KEYS, TAGS, HEADERS = 8, 16, 32, 64


def record(
    seed: int, position: int, count: int, flags: int, columns: bytes, bodies: bytes
) -> bytes:
    """A MESSAGE of topic t, queue 0, from the offset 1 on."""
    rest = PLACE.pack(1, 1_700_000_000_000_000, count, 1, 0, 0) + b"t" + columns
    size = 8 + FRONT.size + len(rest)
    crc = zlib.crc32(bodies)
    head = FRONT.pack(size + len(bodies), size, position, 0, crc, 1, flags | 3, 0) + rest
    data = b"fmq\x01" + zlib.crc32(head, seed).to_bytes(4, "little") + head + bodies
    return data + bytes(-len(data) % 8)


def plant(path: Path, count: int, flags: int = 0, columns: bytes = b"", bodies: bytes = b"") -> int:
    """Make a directory with one message, and after it a record of `count` messages. Return the size
    of that record.
    """
    options = fmq.Options(first_segment_bytes=16 << 20)
    with fmq.open(path, options, background=False) as engine:
        engine.send("t", b"first")
        end = engine.stats().position
    for checkpoint in path.glob("checkpoint.*"):
        checkpoint.unlink()
    (segment,) = path.glob("*.seg")
    with segment.open("r+b") as file:
        seed = zlib.crc32(file.read(64)[16:32])  # of the store's id
        data = record(seed, end, count, flags, columns, bodies)
        file.seek(end)
        file.write(data)
    fmq.open(path, background=False).close()
    return len(data)


@contextmanager
def measured(most: int = MEMORY_BYTES_MAX) -> Iterator[None]:
    """The block takes at most so much memory at any time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= most, f"it took {peak:,} bytes of memory"


def texts(count: int, text: bytes) -> bytes:
    """A column of `count` texts, all the same."""
    lengths = array("H", [len(text)]) * count
    return len(text * count).to_bytes(4, "little") + lengths.tobytes() + text * count


SOME = 1_000_003
SHAPES: dict[str, tuple[int, int, bytes, bytes]] = {
    "empty bodies": (FORMAT_MAX, 0, b"", b""),
    "bodies of one size": (SOME, 0, b"", b"x" * SOME),
    "lengths": (SOME, LENGTHS, (array("I", [1]) * SOME).tobytes(), b"x" * SOME),
    "keys": (SOME, KEYS, texts(SOME, b"k"), b""),
    "keys and tags": (SOME, KEYS | TAGS, texts(SOME, b"k") + texts(SOME, b"t"), b""),
    "headers": (
        SOME,
        HEADERS,
        (array("H", [1]) * SOME).tobytes() + texts(SOME, b"n") + texts(SOME, b"v"),
        b"",
    ),
}
CALLS: dict[str, Callable[[fmq.Engine | fmq.ReadOnlyEngine, int], Any]] = {
    "read": lambda engine, offset: engine.read("t", offset=offset, limit=1),
    "read_batch": lambda engine, offset: messages_of(
        engine.read_batch("t", offset=offset, limit=1)
    ),
}


def messages_of(batch: fmq.Batch | None) -> list[fmq.Message]:
    assert batch is not None
    return batch.messages


@pytest.fixture(scope="module", params=SHAPES)
def large(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, int]:
    """A directory with a large record, and how many messages that holds. No test writes another."""
    count, flags, columns, bodies = SHAPES[request.param]
    path = tmp_path_factory.mktemp("large") / "d"
    plant(path, count, flags, columns, bodies)
    return path, count


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_of_one_message_builds_no_others_of_its_record(
    large: tuple[Path, int], call: str, read_only: bool
) -> None:
    """This holds in the middle of the largest record of a journal, and at its end."""
    path, count = large
    with measured(), fmq.open(path, background=False, read_only=read_only) as engine:
        for offset in (1, count // 2, count, 1):
            (message,) = CALLS[call](engine, offset)
            assert message.offset == offset


def test_a_poll_builds_no_more_of_a_record_than_it_reads_ahead(large: tuple[Path, int]) -> None:
    """Poll one message at a time or several, as deliveries or as a batch, with acks in between."""
    path, count = large
    with measured(), fmq.open(path, background=False) as engine:
        with engine.consumer("t", group="g") as consumer:
            for _ in range(3):
                (delivery,) = consumer.poll(limit=1)
                delivery.ack()
            batch = consumer.poll_batch(limit=1000)
            assert batch is not None
            assert batch.offset == 3
            assert [message.offset for message in batch.messages] == [*range(3, 3 + len(batch))]
            batch.ack()
        (left,) = engine.groups("g")
        assert left.unread == count + 1 - 3 - len(batch)


def test_a_check_of_a_large_record_needs_little_memory(large: tuple[Path, int]) -> None:
    """fmq.check and `fmq records` read all of it without building all of it."""
    from fmq.cli.main import main  # here: bugs are planted in a copy that has no command

    path, count = large
    with measured():
        assert fmq.check(path).problems == ()
    with measured(), redirect_stdout(io.StringIO()) as out:
        assert main(["records", str(path), "--format", "json"]) == 0
    assert str(count) in out.getvalue()


def test_a_large_record_is_split_into_batches_of_a_table(large: tuple[Path, int]) -> None:
    """No batch is larger than usual, and together they have every message once."""
    path, count = large
    columns = ["offset", "key", "tag", "headers", "body"]
    with measured():
        at = 0
        for batch in read(str(path), columns=columns):
            offsets = batch.column("offset")
            assert len(offsets) <= MESSAGES_MAX
            assert (offsets[0].as_py(), offsets[-1].as_py()) == (at, at + len(offsets) - 1)
            at += len(offsets)
    assert at == count + 1


def test_any_cut_of_a_large_record_gives_the_same_messages(tmp_path: Path) -> None:
    """Keys, tags and bodies have different lengths or are missing. Read in order, backwards, many
    and few.
    """
    sent = [
        fmq.Message(
            b"b" * (n % 3),
            None if n % 5 == 0 else f"k{n % 7}",
            None if n % 4 == 0 else "t" * (n % 6),
            {f"h{i}": str(n) for i in range(n % 3)} or None,
        )
        for n in range(2000)
    ]
    with fmq.open(tmp_path / "d", background=False) as engine:
        engine.send_many("t", sent)
        whole = engine.read("t", limit=2000)
        assert [(m.body, m.key, m.tag, m.headers) for m in whole] == [
            (m.body, m.key, m.tag, m.headers) for m in sent
        ]
        for limit in (1, 7, 300, 1999):
            for offset in (*range(0, 2000, limit), *range(1999, 0, -limit * 3)):
                assert engine.read("t", offset=offset, limit=limit) == whole[offset:][:limit]


# --- what is written ------------------------------------------------------------------------------


def test_a_new_record_holds_at_most_65536_messages(tmp_path: Path) -> None:
    """A send_many of more writes several records, which one sync makes durable."""
    sent = [b"%d" % n for n in range(2 * MESSAGES_MAX + 1)]
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"first")
        syncs = engine.stats().syncs
        receipts = engine.send_many("t", sent)
        assert engine.stats().syncs == syncs + 1
        assert [(each.offset, each.count) for each in receipts] == [
            (1, MESSAGES_MAX),
            (1 + MESSAGES_MAX, MESSAGES_MAX),
            (1 + 2 * MESSAGES_MAX, 1),
        ]
        found = read_all(engine, 1)
        assert [message.body for message in found] == sent
        assert sizes_of_records(found) == [MESSAGES_MAX, MESSAGES_MAX, 1]
        assert [each.position for each in receipts] == list(dict.fromkeys(positions(found)))
    assert fmq.check(tmp_path / "d").problems == ()


def read_all(engine: fmq.Engine | fmq.ReadOnlyEngine, offset: int = 0) -> list[fmq.Message]:
    return engine.read("t", offset=offset, limit=1_000_000)


def positions(messages: list[fmq.Message]) -> list[int]:
    return [message.position for message in messages if message.position is not None]


def sizes_of_records(messages: list[fmq.Message]) -> list[int]:
    """Return how many of the messages each record holds, in order."""
    found = positions(messages)
    return [found.count(position) for position in dict.fromkeys(found)]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_record_of_a_transaction_holds_at_most_65536_messages(
    tmp_path: Path, keyed: bool, prepared: bool
) -> None:
    """The commit publishes all and returns where, and so does the outcome after a restart."""
    sent: list[Any] = [fmq.Message(b"", str(n)) if keyed else b"" for n in range(MESSAGES_MAX + 2)]
    with fmq.open(tmp_path / "d") as engine:
        tx = engine.transaction(tx_id="T")
        tx.send_many("t", sent[:5])
        tx.send_many("t", sent[5:])
        if prepared:
            tx.prepare()
            assert engine.queues("t")[0].next == 0
        receipts = tx.commit()
        assert [(each.offset, each.count) for each in receipts] == [
            (0, MESSAGES_MAX),
            (MESSAGES_MAX, 2),
        ]
        assert sizes_of_records(read_all(engine)) == [MESSAGES_MAX, 2]
    with fmq.open(tmp_path / "d") as engine:
        assert list(engine.outcome("T").receipts) == receipts
        assert [m.key for m in read_all(engine)] == [getattr(each, "key", None) for each in sent]
    assert fmq.check(tmp_path / "d").problems == ()


def test_an_undecided_transaction_of_several_records_is_committed_whole(tmp_path: Path) -> None:
    """The next engine does not have the messages in memory, and publishes them all."""
    with fmq.open(tmp_path / "d") as engine:
        tx = engine.transaction(tx_id="T")
        tx.send_many("t", [b"x" * (n % 3) for n in range(MESSAGES_MAX + 2)])
        tx.prepare()
    with fmq.open(tmp_path / "d") as engine:
        assert engine.undecided()[0].messages == MESSAGES_MAX + 2
        outcome = engine.decide("T", "commit")
        assert outcome.messages == MESSAGES_MAX + 2
        assert sizes_of_records(read_all(engine)) == [MESSAGES_MAX, 2]


def test_a_send_of_several_records_is_whole_or_absent_after_a_crash() -> None:

    def send(engine: fmq.Engine, world: World) -> None:
        engine.send_many("t", [b""] * (MESSAGES_MAX + 1))

    def check(engine: fmq.Engine, world: World) -> None:
        found = sum(queue.next for queue in engine.queues("t"))
        assert found in (0, MESSAGES_MAX + 1)

    crash(send, check)


def test_a_transaction_counts_the_heads_of_all_its_records(tmp_path: Path) -> None:
    """What send_many accepted fits an empty segment, however many records it takes."""
    options = fmq.Options(
        segment_bytes=1 << 20, transaction_messages_max=10_000_000, message_bytes_max=1 << 19
    )
    with fmq.open(tmp_path / "d", options) as engine:
        tx = engine.transaction(tx_id="T" * 255, producer="p" * 255)
        one = [b""] * (MESSAGES_MAX - 1) + [fmq.Message(b"", "k", "t", {"n": "v"})]
        with pytest.raises(TooLarge, match="segment_bytes"):
            while True:
                tx.send_many("t" * 255, one)
        tx.prepare()
        tx.commit()

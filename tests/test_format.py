"""The numbers on disk, for ever: kinds, magics, flags, sizes and places of fields.

Nothing here may be changed to make a test pass. A new format gets a number of its own, and the
old one keeps its reader.
"""

from __future__ import annotations

import json
from pathlib import Path
from struct import Struct, unpack
from zlib import crc32

import pytest

from fmq.recovery import checkpoint, layout, mend
from fmq.recovery.checkpoint import Checkpoint
from fmq.store.bytes import columns, extension, extras, pieces, record
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.forms import FORMS
from fmq.store.bytes.kinds import AckRange, Kind, Prepare
from fmq.store.index import catalog, index_blocks
from fmq.store.journal import segment, spares
from fmq.tx.ledger import seal
from fmq.tx.ledger.carryover import carried_of
from fmq.tx.ledger.ledger import Ledger
from tests.store.samples import encoded, run_at, run_of


def test_the_numbers_of_the_kinds_have_not_changed() -> None:
    assert {kind.name: kind.value for kind in Kind} == {
        "MESSAGE": 1,
        "PREPARE": 2,
        "PRE_MESSAGE": 3,
        "REF_MESSAGE": 4,
        "TX_MESSAGE": 5,
        "COMMIT": 6,
        "ROLLBACK": 7,
        "ACK": 8,
        "STATE": 9,
        "TOPIC": 10,
        "MARK": 11,
        "CHANGE": 12,
        "TRIED": 13,
        "TIMER": 14,
        "IDS": 16,
        "HOLE": 17,
        "ERASE": 18,
        "JOINT": 19,
    }


def test_the_magics_and_versions_have_not_changed() -> None:
    assert (record.MAGIC, record.FORMAT) == (b"fmq\x02", 2)
    assert (segment.MAGIC, segment.FORMAT) == (b"fmqS", 2)
    assert (index_blocks.MAGIC, index_blocks.FORMAT) == (b"fmqI", 2)
    assert (checkpoint.MAGIC, checkpoint.FORMAT) == (b"fmqC", 1)


def test_the_names_of_the_files_have_not_changed() -> None:
    assert segment.segment_name(4096) == "00000000000000004096.seg"
    assert (segment.SUFFIX, catalog.SUFFIX, checkpoint.PART) == (".seg", ".idx", ".part")
    assert checkpoint.SLOTS == ("checkpoint.0", "checkpoint.1")
    assert (spares.SUFFIX, catalog.TEMPORARY, mend.COPY) == (".spare", ".idx.new", ".copy")
    assert (layout.LOCK, layout.QUARANTINE) == ("LOCK", "quarantine")


def test_the_bits_of_the_flags_have_not_changed() -> None:
    flags = {
        "FIRST": record.FIRST,
        "LAST": record.LAST,
        "COMPRESSED": columns.COMPRESSED,
        "LENGTHS": columns.LENGTHS,
        "KEYS": columns.KEYS,
        "TAGS": columns.TAGS,
        "HEADERS": columns.HEADERS,
        "EXTENDED": record.EXTENDED,
    }
    assert flags == {
        "FIRST": 1,
        "LAST": 2,
        "COMPRESSED": 4,
        "LENGTHS": 8,
        "KEYS": 16,
        "TAGS": 32,
        "HEADERS": 64,
        "EXTENDED": 128,
    }
    assert record.BOUND == columns.HEADERS  # of a PREPARE, which has no columns
    assert (index_blocks.ELSEWHERE, segment.REQUIRED_KNOWN) == (1, 0)


STRUCTS = {
    "record.PREFIX": (record.PREFIX, "<4sI", 8),
    "record.COMMON": (record.COMMON, "<IIQIIBBH", 28),
    "record.PLACE": (record.PLACE, "<QqIBBB", 23),
    "record.MESSAGE_HEAD": (record.MESSAGE_HEAD, "<IIQIIBBHQqIBBB", 51),
    "record.TX_HEAD": (record.TX_HEAD, "<IIQIIBBHQQqIBBB", 59),
    "record.PREPARE_HEAD": (record.PREPARE_HEAD, "<QqqQIIQ16sqIBB", 78),
    "record.DECISION_HEAD": (record.DECISION_HEAD, "<QqqQIIQ16sIBBBH", 73),
    "record.ACK_RANGE": (record.ACK_RANGE, "<QQ", 16),
    "record.QUEUE_FRONT": (record.QUEUE_FRONT, "<BBH", 4),
    "record.TRIED_RANGE": (record.TRIED_RANGE, "<QQIq", 28),
    "record.CHANGE_PLACE": (record.CHANGE_PLACE, "<HQ", 10),
    "record.PREPARE_FRONT": (record.PREPARE_FRONT, "<IIQIIBBHQqqQIIQ16sq", 100),
    "record.DECISION_FRONT": (record.DECISION_FRONT, "<IIQIIBBHQqqQIIQ16sI", 96),
    "record.MARK_FRONT": (record.MARK_FRONT, "<BQBB", 11),
    "record.U64": (record.U64, "<Q", 8),
    "record.U32": (record.U32, "<I", 4),
    "record.U16": (record.U16, "<H", 2),
    "extension.COLUMN": (extension.COLUMN, "<BI", 5),
    "extension.SIZE": (extension.SIZE, "<I", 4),
    "pieces.U32": (pieces.U32, "<I", 4),
    "segment.HEADER": (segment.HEADER, "<4sIHHI16sQQQII", 64),
    "index_blocks.HEAD": (index_blocks.HEAD, "<4sIIIIIII16sQQII", 72),
    "index_blocks.HEAD_1": (index_blocks.HEAD_1, "<4sIIIIIII16sQQ", 64),
    "index_blocks.LANE": (index_blocks.LANE, "<QQqqIHBB", 40),
    "checkpoint.HEAD": (checkpoint.HEAD, "<4sIIIQ", 24),
    "seal.SEALED": (seal.SEALED, "<HIII", 14),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_the_layouts_of_the_structs_have_not_changed(name: str) -> None:
    struct, layout, size = STRUCTS[name]
    assert isinstance(struct, Struct)
    assert (struct.format, struct.size) == (layout, size)


ROWS = {
    "ACK": ("Qq", "I"),
    "TRIED": ("8xq", "I"),
    "MARK": ("Qq", "I"),
    "CHANGE": ("8xqBQ", "BBHI"),
    "TOPIC": ("8xqH", "B"),
    "STATE": ("8xq", ""),
    "IDS": ("8xq", ""),
    "HOLE": ("8xq", ""),
    "ERASE": ("8xqQ", "II"),
    "JOINT": ("8xqB", "BI"),
}


def test_the_rows_of_the_kinds_have_not_changed() -> None:
    """Their numbers, and the counts of their parts, after the head of all kinds."""
    common = "<IIQIIBB2x"
    found = {
        kind.name: (form.front.format.removeprefix(common), form.counts.format[1:])
        for kind, form in FORMS.items()
    }
    assert found == ROWS
    assert all(form.front.format.startswith(common) for form in FORMS.values())


def test_the_limits_that_readers_rely_on_have_not_changed() -> None:
    assert record.ALIGNMENT == 8
    assert record.HEAD_BYTES_MIN == 36
    assert record.LAG_UNKNOWN == (1 << 32) - 1
    assert record.RECORD_BYTES_MAX == 1 << 31
    assert pieces.NONE == 0xFFFF
    assert columns.COUNT_MAX == 1 << 24
    assert (extras.MESSAGE_IDS, extras.PRIORITIES, extras.EXPIRIES) == (2, 3, 4)
    assert extras.IDS_TAKEN == 7
    assert (extras.NO_PRIORITY, extras.NEVER) == (0xFF, (1 << 63) - 1)
    assert (segment.STORE_BYTES, seal.SEAL_BYTES) == (16, 16)
    assert (segment.CRC_END, index_blocks.CRC_END, checkpoint.CRC_END) == (8, 8, 8)


MESSAGE_BYTES = (
    "666d7102 cfb1b0e5 3e000000 3c000000 40000000 00000000 00000000 ac2a93d8 "
    "01030000 00000000 00000000 40420f00 00000000 01000000 01000074 68690000"
)


def test_the_bytes_of_a_message_have_not_changed() -> None:
    """One small record: MESSAGE of b"hi" at 64, durable up to 64."""
    run = run_at(encode_one(b"hi", None), Kind.MESSAGE, "t", time_us=1_000_000)
    run.position, run.flags = 64, record.FIRST | record.LAST
    run.size = size_of(run)
    data = encoded(run, 64, 0x12345678)
    assert data.hex(" ", -4) == MESSAGE_BYTES


PREPARE_BYTES = (
    "666d7102 5c21acab 8a000000 8a000000 40000000 00000000 00000000 00000000 "
    "02410000 40000000 00000000 40420f00 00000000 40420f00 00000000 00000000 "
    "00000000 01000000 02000000 03000000 00000000 00010203 04050607 08090a0b "
    "0c0d0e0f ffffffff ffffffff 01000000 01017054 01010000 67740100 00000000 "
    "00000200 00000000 00000000 00000000"
)


FIRST_PREPARE_FRONT = bytes.fromhex(
    "666d7101 a133b835 8a000000 8a000000 40000000 00000000 00000000 00000000 02810000"
)


def test_the_bytes_of_a_bound_prepare_have_not_changed() -> None:
    """PREPARE with the flag BOUND, a seal and an ack range, at 64 and durable up to 64."""
    acks = [AckRange("g", "t", 0, 1, 2)]
    prepare = Prepare("T", "p", 1_000_000, 1, 2, 3, bytes(range(16)), acks, tx=64)
    prepare.position, prepare.flags, prepare.bound = 64, record.FIRST, True
    prepare.size = size_of(prepare)
    data = encoded(prepare, 64, 0x12345678)
    assert data.hex(" ", -4) == PREPARE_BYTES
    first = FIRST_PREPARE_FRONT + data[36:]  # as the first fmq wrote it, with another bit
    for each in (data, first):
        found = decode(each, 0, 64, 0x12345678)
        assert isinstance(found, Prepare)
        assert (found.bound, found.extension, found.flags) == (True, b"", 65)


EXTENDED_BYTES = (
    "666d7102 d3bf5d8e 4a000000 48000000 40000000 00000000 00000000 ac2a93d8 "
    "01830000 00000000 00000000 40420f00 00000000 01000000 01000074 07030000 "
    "00616263 0c000000 68690000 00000000"
)


def test_an_extended_message_has_the_bytes_it_had() -> None:
    """The message above with column 7 of an extension."""
    run = run_at(encode_one(b"hi", None), Kind.MESSAGE, "t", time_us=1_000_000)
    run.extension = extension.encode_extension({7: b"abc"})
    run.position, run.flags = 64, record.FIRST | record.LAST
    run.size = size_of(run)
    data = encoded(run, 64, 0x12345678)
    assert data.hex(" ", -4) == EXTENDED_BYTES
    found = decode(data, 0, 64, 0x12345678)
    assert extension.decode_extension(found.extension) == {7: b"abc"}


def test_the_bytes_of_a_seal_have_not_changed() -> None:
    """A program may name a transaction by its seal years later."""
    runs = [run_of(Kind.PRE_MESSAGE, topic, 1, 0, 2, 0) for topic in ("orders", "käse")]
    for run in runs:
        run.bodies_crc, run.columns_crc = 0x01234567, 0x89ABCDEF
    assert seal.seal_of(runs).hex() == "353bb02e66761298dcb7ddc3a717ac59"


def test_the_document_has_each_key_of_a_state() -> None:
    page = (Path(__file__).parent.parent / "docs/format.md").read_text()
    assert [key for key in carried_of(Ledger(0)) if f"| `{key}` |" not in page] == []


def test_the_head_of_a_checkpoint_has_not_changed() -> None:
    """Magic, checksum of all after it, size of the JSON, format and generation, then the JSON."""
    segments = [[0, 4096, 64, 0]]
    data = checkpoint.encode(Checkpoint("00" * 16, 64, 64, 0, 0, segments, {}, generation=7))
    found = unpack("<4sIIIQ", data[:24])
    assert found == (b"fmqC", crc32(data[8:]), len(data) - 24, 1, 7)
    assert json.loads(data[24:])["segments"] == segments

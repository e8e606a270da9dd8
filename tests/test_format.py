"""The numbers on disk, for ever: kinds, magics, flags, sizes and places of fields.

Nothing here may be changed to make a test pass. A new format gets a number of its own, and the
old one keeps its reader.
"""

from __future__ import annotations

from struct import Struct

import pytest

from fmq.store import columns, index, record, segment
from fmq.store.content import encode_one
from fmq.store.encoding import encode, size_of
from fmq.store.kinds import Kind, Run


def test_the_numbers_of_the_kinds_are_what_they_were() -> None:
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
    }


def test_the_magics_and_versions_are_what_they_were() -> None:
    assert (record.MAGIC, record.FORMAT) == (b"fmq\x01", 1)
    assert (segment.MAGIC, segment.FORMAT) == (b"fmqS", 1)
    assert (index.MAGIC, index.FORMAT) == (b"fmqI", 1)


def test_the_flags_are_what_they_were_and_each_has_a_bit_of_its_own() -> None:
    flags = {
        "FIRST": record.FIRST,
        "LAST": record.LAST,
        "COMPRESSED": columns.COMPRESSED,
        "LENGTHS": columns.LENGTHS,
        "KEYS": columns.KEYS,
        "TAGS": columns.TAGS,
        "HEADERS": columns.HEADERS,
    }
    assert flags == {
        "FIRST": 1,
        "LAST": 2,
        "COMPRESSED": 4,
        "LENGTHS": 8,
        "KEYS": 16,
        "TAGS": 32,
        "HEADERS": 64,
    }
    assert (index.ELSEWHERE, segment.REQUIRED_KNOWN) == (1, 0)


STRUCTS = {
    "record.PREFIX": (record.PREFIX, "<4sI", 8),
    "record.COMMON": (record.COMMON, "<IIQIIBBH", 28),
    "record.PLACE": (record.PLACE, "<QqIBBB", 23),
    "record.MESSAGE_HEAD": (record.MESSAGE_HEAD, "<IIQIIBBHQqIBBB", 51),
    "record.TX_HEAD": (record.TX_HEAD, "<IIQIIBBHQQqIBBB", 59),
    "record.PREPARE_HEAD": (record.PREPARE_HEAD, "<QqqQIIQ16sqIBB", 78),
    "record.DECISION_HEAD": (record.DECISION_HEAD, "<QqqQIIQ16sIBBBH", 73),
    "record.TIME_HEAD": (record.TIME_HEAD, "<Qq", 16),
    "record.ACK_RANGE": (record.ACK_RANGE, "<QQ", 16),
    "segment.HEADER": (segment.HEADER, "<4sIHHI16sQQQI4x", 64),
    "index.HEAD": (index.HEAD, "<4sIIIIIII16sQQ", 64),
    "index.LANE": (index.LANE, "<QQqqIHBB", 40),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_the_fields_lie_where_they_lay(name: str) -> None:
    struct, layout, size = STRUCTS[name]
    assert isinstance(struct, Struct)
    assert (struct.format, struct.size) == (layout, size)


def test_the_limits_that_readers_rely_on_are_what_they_were() -> None:
    assert record.ALIGNMENT == 8
    assert record.HEAD_BYTES_MIN == 36
    assert record.LAG_UNKNOWN == (1 << 32) - 1
    assert record.RECORD_BYTES_MAX == 1 << 31
    assert columns.NONE == 0xFFFF
    assert columns.COUNT_MAX == 1 << 24
    assert segment.segment_name(4096) == "00000000000000004096.seg"


MESSAGE_BYTES = (
    "666d7101 cfb1b0e5 3e000000 3c000000 40000000 00000000 00000000 ac2a93d8 "
    "01030000 00000000 00000000 40420f00 00000000 01000000 01000074 68690000"
)


def test_a_message_has_the_bytes_it_had() -> None:
    """One small record, byte for byte: MESSAGE of b"hi" at 64, durable up to 64."""
    run = Run(Kind.MESSAGE, "t", 0, 0, 1, 1_000_000, content=encode_one(b"hi", None))
    run.position, run.flags = 64, record.FIRST | record.LAST
    run.size = size_of(run)
    data = b"".join(encode(run, 64, 0x12345678))
    assert data.hex(" ", -4) == MESSAGE_BYTES

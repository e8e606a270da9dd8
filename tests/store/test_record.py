"""Records go to bytes and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.basics.message import Message
from fmq.store.bytes.columns import COMPRESSED
from fmq.store.bytes.content import OF_PLACE, encode_messages
from fmq.store.bytes.decoding import DECODERS, columns_of, decode, durable_to_of, with_bodies
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.extension import without_request
from fmq.store.bytes.kinds import Kind, Prepare, Record, Run
from fmq.store.bytes.record import ALIGNMENT, BOUND, FIRST, LAG_UNKNOWN, LAST, aligned
from tests.store.samples import (
    MESSAGES,
    POSITION,
    SEED,
    encoded,
    examples,
    fields,
    place,
    positions,
    records,
    run_at,
)


@given(records, positions, st.sampled_from([0, FIRST, LAST, FIRST | LAST]))
def test_every_record_decodes_to_what_was_encoded(
    record: Record, position: int, flags: int
) -> None:
    place(record, position, flags)
    data = encoded(record, durable_to=position)
    again = decode(data, 0, position, SEED)
    said = fields(record)
    if isinstance(record, Prepare) and record.bound:
        said["flags"] |= BOUND
    if isinstance(record, Run):
        for known_by_reading in ("bodies_crc", "columns_crc", "raw_bytes"):
            said[known_by_reading] = getattr(again, known_by_reading)
        if record.bodies is not None:
            assert isinstance(again, Run)
            assert (again.bodies_crc, again.raw_bytes) == (record.bodies_crc, record.raw_bytes)
            copied = with_bodies(data, 0, again)
            assert copied.extension == without_request(record.extension)
            assert copied.flags == record.flags & ~OF_PLACE
            for name in ("columns", "bodies", "bodies_crc", "count", "raw_bytes"):
                assert getattr(copied, name) == getattr(record, name), name
    assert fields(again) == said


@given(records)
def test_a_record_is_as_large_as_size_of_says(record: Record) -> None:
    place(record)
    data = encoded(record)
    assert len(data) == aligned(size_of(record))
    assert len(data) % ALIGNMENT == 0
    assert not any(data[record.size :]), "padding is zeros"


def test_every_kind_has_an_example() -> None:
    assert {record.kind for record in examples().values()} == set(Kind) == set(DECODERS)


@pytest.mark.parametrize("name", examples())
def test_decoding_reads_no_bytes_around_a_record(name: str) -> None:
    record = place(examples()[name])
    data = encoded(record)
    alone = fields(decode(data, 0, POSITION, SEED))
    among = b"\xff" * 24 + data + b"\xff" * 24
    assert fields(decode(among, 24, POSITION, SEED)) == alone
    assert fields(decode(data[: record.size], 0, POSITION, SEED)) == alone


@pytest.mark.parametrize("name", ["MESSAGE", "PRE_MESSAGE", "TX_MESSAGE"])
def test_messages_of_a_record_decode_to_what_was_encoded(name: str) -> None:
    record = place(examples()[name])
    data = b"\xff" * 8 + encoded(record)
    run = decode(data, 8, POSITION, SEED)
    assert isinstance(run, Run)
    columns = columns_of(data, 8, run)
    assert columns.bodies() == [message.body for message in MESSAGES]
    keys, tags = columns.texts()
    assert keys == [message.key for message in MESSAGES]
    assert tags == [message.tag for message in MESSAGES]
    assert columns.headers() == [message.headers for message in MESSAGES]


def test_a_compressed_record_states_its_uncompressed_size() -> None:
    run = encode_messages([Message(b"x" * 1000)] * 5, 1)
    data = encoded(place(run_at(run, Kind.MESSAGE, "t")))
    again = decode(data, 0, POSITION, SEED)
    assert isinstance(again, Run)
    assert again.flags & COMPRESSED
    assert again.raw_bytes == 5000 > len(data)
    assert columns_of(data, 0, again).bodies() == [b"x" * 1000] * 5


@pytest.mark.parametrize(
    ("position", "durable_to", "told"),
    [
        (POSITION, POSITION, POSITION),
        (POSITION, 0, 0),
        (1 << 40, (1 << 40) - LAG_UNKNOWN + 1, (1 << 40) - LAG_UNKNOWN + 1),
        (1 << 40, (1 << 40) - LAG_UNKNOWN, 0),
        (1 << 40, (1 << 40) - LAG_UNKNOWN - 1, 0),
        (1 << 40, 64, 0),
    ],
)
def test_a_record_states_how_far_the_journal_was_durable(
    position: int, durable_to: int, told: int
) -> None:
    """0 stands for unknown: a distance of 4 GiB or more is not stored."""
    for name, record in examples().items():
        data = encoded(place(record, position), durable_to=durable_to)
        assert durable_to_of(b"-" * 16 + data, 16) == told, name


def test_columns_crc_differs_if_a_key_differs() -> None:
    """The seal of a transaction covers columns_crc."""
    crcs = set()
    for key in "ab":
        run = run_at(encode_messages([Message(b"x", key=key)], None), Kind.PRE_MESSAGE, "t")
        run.tx, run.tx_id = 64, "id"
        again = decode(encoded(place(run)), 0, POSITION, SEED)
        assert isinstance(again, Run)
        crcs.add(again.columns_crc)
    assert len(crcs) == 2

"""A segment's header is believed whole or not at all."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.errors import Damaged, NewerFormat
from fmq.store.journal.segment import (
    CAPACITY_MAX,
    HEADER_BYTES,
    POSITION_MAX,
    Header,
    Segment,
    base_of,
    decode_header,
    is_segment,
    segment_name,
)
from tests.store.samples import STORE, u32, u64

BASE = 1 << 24
NAME = segment_name(BASE)
HEADER = Header(STORE, BASE, 1 << 20, BASE - 100, 0xDEADBEEF, 0xFEEDF00D)


def resealed(data: bytes) -> bytes:
    return data[:4] + zlib.crc32(data[8:HEADER_BYTES]).to_bytes(4, "little") + data[8:]


@given(
    st.builds(
        Header,
        st.binary(min_size=16, max_size=16),
        st.integers(0, (POSITION_MAX - CAPACITY_MAX) // 8).map(lambda n: 8 * n),
        st.integers(HEADER_BYTES + 1, CAPACITY_MAX),
        u64,
        u32,
        u32,
    )
)
def test_a_header_decodes_to_what_was_encoded(header: Header) -> None:
    data = header.encode()
    assert len(data) == HEADER_BYTES
    assert decode_header(data + b"records", segment_name(header.base)) == header


def test_every_flipped_bit_of_a_header_is_refused() -> None:
    data = bytearray(HEADER.encode())
    for bit in range(8 * HEADER_BYTES):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged) as caught:
            decode_header(bytes(data), NAME)
        assert (caught.value.file, caught.value.position) == (NAME, BASE)
        data[bit // 8] ^= 1 << bit % 8
    assert decode_header(bytes(data), NAME) == HEADER


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_header_cut_short_is_refused(size: int) -> None:
    with pytest.raises(Damaged):
        decode_header(HEADER.encode()[:size], NAME)
    with pytest.raises(Damaged):
        decode_header(HEADER.encode()[:size] + bytes(HEADER_BYTES - size - 1), NAME)


@pytest.mark.parametrize(
    ("at", "bit", "what"),
    [(8, 1, "format 3"), (10, 1, "required flags 0x1")],
    ids=["format", "required flag"],
)
def test_a_segment_of_a_newer_fmq_is_refused_as_newer(at: int, bit: int, what: str) -> None:
    data = bytearray(HEADER.encode())
    data[at] ^= bit
    with pytest.raises(NewerFormat, match=what):
        decode_header(resealed(bytes(data)), NAME)


def test_an_unknown_optional_flag_is_ignored() -> None:
    data = bytearray(HEADER.encode())
    data[12] ^= 1
    assert decode_header(resealed(bytes(data)), NAME) == HEADER


def test_a_header_under_the_name_of_another_segment_is_refused() -> None:
    with pytest.raises(Damaged, match=str(BASE)):
        decode_header(HEADER.encode(), segment_name(BASE + 8))


def test_a_segment_without_room_for_records_is_refused() -> None:
    for capacity in (0, HEADER_BYTES):
        with pytest.raises(Damaged, match="capacity"):
            decode_header(Header(STORE, BASE, capacity, 0, 0).encode(), NAME)


def test_zeros_and_other_files_are_refused_as_segments() -> None:
    for data in (bytes(4096), b"#!/bin/sh\n" * 20, b"fmqI" + HEADER.encode()[4:]):
        with pytest.raises(Damaged, match="not a segment"):
            decode_header(data, NAME)


@given(u64, u64)
def test_segment_names_sort_in_the_order_of_the_journal(one: int, other: int) -> None:
    assert (segment_name(one) < segment_name(other)) is (one < other)
    assert base_of(segment_name(one)) == one
    assert is_segment(segment_name(one))


@pytest.mark.parametrize(
    "name", ["", "1.seg", NAME + "x", "x" + NAME[1:], NAME[:-4] + ".idx", NAME[:-4] + ".seg.new"]
)
def test_other_names_are_not_taken_for_segments(name: str) -> None:
    assert not is_segment(name)


def test_a_segment_knows_its_name_and_its_limit() -> None:
    segment = Segment(BASE, 4096, BASE + 64, 0)
    assert (segment.name, segment.limit) == (NAME, BASE + 4096)


def test_format_0_is_reported_as_damage_and_not_as_newer() -> None:
    data = bytearray(HEADER.encode())
    data[8:10] = bytes(2)
    with pytest.raises(Damaged, match="format 0"):
        decode_header(resealed(bytes(data)), NAME)

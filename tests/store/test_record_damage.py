"""Bytes that are no sound record of this place and store are refused, whatever they are."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.store.bytes.decoding import columns_of, decode
from fmq.store.bytes.kinds import Kind, Run
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import COMMON, MAGIC, PREFIX, PREFIX_BYTES, BadRecord, Misplaced, Newer
from tests.store.samples import POSITION, SEED, encoded, examples, place

REFUSALS = (BadRecord, Misplaced, Newer)
SIZE_AT, HEAD_SIZE_AT, POSITION_AT, KIND_AT = 8, 12, 16, 32


def resealed(data: bytes) -> bytes:
    """`data` with the checksum of its head made right again: what malice can do, and chance not."""
    head_size = int.from_bytes(data[HEAD_SIZE_AT : HEAD_SIZE_AT + 4], "little")
    crc = zlib.crc32(data[PREFIX_BYTES:head_size], SEED)
    return PREFIX.pack(MAGIC, crc) + data[PREFIX_BYTES:]


def changed(data: bytes, at: int, size: int, value: int) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


@pytest.mark.parametrize("name", examples())
def test_a_flipped_bit_in_a_record_of_any_kind_is_refused(name: str) -> None:
    record = place(examples()[name])
    data = bytearray(encoded(record))
    for bit in range(8 * record.size):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(REFUSALS):
            decode(bytes(data), 0, POSITION, SEED)
        data[bit // 8] ^= 1 << bit % 8
    decode(bytes(data), 0, POSITION, SEED)


@pytest.mark.parametrize("name", examples())
def test_a_flipped_bit_in_a_head_is_refused_without_reading_bodies(name: str) -> None:
    record = place(examples()[name])
    data = bytearray(encoded(record))
    (_, head_size, *_) = COMMON.unpack_from(data, PREFIX_BYTES)
    for bit in range(8 * head_size):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(REFUSALS):
            decode(bytes(data), 0, POSITION, SEED, bodies=False)
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("name", examples())
def test_a_record_cut_short_at_any_byte_is_refused(name: str) -> None:
    record = place(examples()[name])
    data = encoded(record)
    for size in range(record.size):
        for rest in (b"", bytes(record.size - size)):
            cut = data[:size] + rest
            if cut == data[: record.size]:
                continue  # what was cut were zeros
            with pytest.raises(BadRecord):
                decode(cut, 0, POSITION, SEED)


@pytest.mark.parametrize("name", examples())
def test_a_sound_record_in_the_wrong_place_is_refused(name: str) -> None:
    data = encoded(place(examples()[name]))
    for position in (0, POSITION - 8, POSITION + 8, POSITION + (1 << 32)):
        with pytest.raises(Misplaced, match=f"belongs at {POSITION}"):
            decode(data, 0, position, SEED)


@pytest.mark.parametrize("name", examples())
def test_a_sound_record_of_another_store_is_refused(name: str) -> None:
    data = encoded(place(examples()[name]), seed=zlib.crc32(b"another store..."))
    with pytest.raises(BadRecord):
        decode(data, 0, POSITION, SEED)


@pytest.mark.parametrize("kind", [0, max(Kind) + 1, 255])
def test_a_sound_record_of_an_unknown_kind_raises_newer(kind: int) -> None:
    data = encoded(place(examples()["MESSAGE"]))
    with pytest.raises(Newer, match=str(kind)):
        decode(resealed(changed(data, KIND_AT, 1, kind)), 0, POSITION, SEED)


@pytest.mark.parametrize("name", examples())
def test_a_newer_record_raises_newer_if_sound_and_bad_record_if_torn(name: str) -> None:
    """The checksum of the head decides. Nothing else of the head needs to be known."""
    data = encoded(place(examples()[name]))
    head_size = int.from_bytes(data[12:16], "little")
    for version in (4, 7, 8, 0x80, 0xFE):
        strange = resealed(data[:16] + b"\xff" * (head_size - 16) + data[head_size:])
        newer, strange = (each[:3] + bytes([version]) + each[4:] for each in (data, strange))
        for sound in (newer, strange):
            with pytest.raises(Newer, match=f"version {version}"):
                decode(sound, 0, POSITION, SEED)
            for at in range(PREFIX_BYTES, head_size):
                torn = sound[:at] + bytes(len(sound) - at)
                if torn[:head_size] != sound[:head_size]:
                    with pytest.raises(BadRecord):
                        decode(torn, 0, POSITION, SEED)
            for size in range(0, head_size, 5):
                with pytest.raises(BadRecord):
                    decode(sound[:size], 0, POSITION, SEED)
        with pytest.raises(BadRecord):
            decode(newer, 0, POSITION, SEED ^ 1)
    for bit in range(8):
        flipped = bytes([data[3] ^ 1 << bit])
        with pytest.raises(BadRecord):
            decode(data[:3] + flipped + data[4:], 0, POSITION, SEED)


@pytest.mark.parametrize("name", examples())
@pytest.mark.parametrize("size", [1 << 20, 1 << 30, (1 << 32) - 1])
def test_a_huge_size_is_refused_before_anything_is_allocated(name: str, size: int) -> None:
    """The size is false in the record alone or in the head too, the checksum right or wrong."""
    data = encoded(place(examples()[name]))
    # Empty bodies need no checksum, and a STATE is all bodies: give them something to miss.
    lies = changed(data, SIZE_AT, 4, size)
    both = changed(lies, HEAD_SIZE_AT, 4, size)
    tracemalloc.start()
    try:
        for lie in (lies, both, resealed(lies)):
            with pytest.raises(REFUSALS):
                decode(lie, 0, POSITION, SEED)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 18


def test_a_head_larger_than_its_record_is_refused() -> None:
    data = encoded(place(examples()["MESSAGE"]))
    size = int.from_bytes(data[SIZE_AT : SIZE_AT + 4], "little")
    for head_size in (0, 35, size + 1):
        with pytest.raises(BadRecord):
            decode(changed(data, HEAD_SIZE_AT, 4, head_size), 0, POSITION, SEED)


def test_an_impossible_count_of_messages_raises_newer() -> None:
    data = encoded(place(examples()["one body"]))
    at = COMMON.size + PREFIX_BYTES + 16
    assert data[at : at + 4] == (1).to_bytes(4, "little")
    for count in (0, (1 << 24) + 1, (1 << 32) - 1):
        with pytest.raises(Newer):
            decode(resealed(changed(data, at, 4, count)), 0, POSITION, SEED)


@given(st.sampled_from(sorted(examples())), st.data())
def test_a_forged_head_decodes_or_raises_a_known_error(name: str, data: st.DataObject) -> None:
    """The checksum is right. Reading the record and its columns raises no other exception."""
    record = place(examples()[name])
    mangled = bytearray(encoded(record))
    (_, head_size, *_) = COMMON.unpack_from(mangled, PREFIX_BYTES)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEAD_SIZE_AT, head_size - 1))
        mangled[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    head_says = int.from_bytes(mangled[HEAD_SIZE_AT : HEAD_SIZE_AT + 4], "little")
    if not PREFIX_BYTES + COMMON.size <= head_says <= len(mangled):
        return
    mangled_bytes = resealed(bytes(mangled))
    try:
        found = decode(mangled_bytes, 0, POSITION, SEED)
        if isinstance(found, Run) and found.kind != Kind.REF_MESSAGE:
            columns = columns_of(mangled_bytes, 0, found)
            asks: tuple[Callable[[], object], ...] = (
                columns.bodies,
                columns.texts,
                columns.headers,
            )
            for ask in asks:
                ask()
    except (*REFUSALS, BadColumns):
        pass


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_a_record(data: bytes) -> None:
    with pytest.raises(BadRecord):
        decode(data, 0, POSITION, SEED)
    with pytest.raises(BadRecord):
        decode(MAGIC + data, 0, POSITION, SEED)


def test_a_flipped_bit_in_a_long_body_is_refused() -> None:
    """Flip a bit in every byte of the bodies."""
    run = place(examples()["MESSAGE"])
    assert isinstance(run, Run)
    data = bytearray(encoded(run))
    start = COMMON.unpack_from(data, PREFIX_BYTES)[1]
    for at in range(start, run.size):
        data[at] ^= 0x10
        with pytest.raises(BadRecord, match="bodies"):
            decode(bytes(data), 0, POSITION, SEED)
        data[at] ^= 0x10

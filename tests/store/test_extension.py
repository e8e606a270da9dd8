"""The extension of a record: columns that a reader may skip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.store.bytes.decoding import columns_of, decode, with_bodies
from fmq.store.bytes.extension import decode_extension, encode_extension, extension_before
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.record import BadRecord, Newer
from tests.store.samples import MESSAGES, POSITION, SEED, encoded, examples, place
from tests.store.test_record_damage import resealed

columns = st.dictionaries(st.integers(0, 255), st.binary(max_size=100), max_size=5)


@given(columns)
def test_extension_columns_decode_to_what_was_encoded(columns: dict[int, bytes]) -> None:
    extension = encode_extension(columns)
    assert decode_extension(extension) == columns
    assert bool(extension) == bool(columns)
    if extension:
        data = b"the fields" + extension + b"the bodies"
        assert extension_before(data, 10, 10 + len(extension)) == extension


def test_messages_are_read_from_a_record_with_an_extension() -> None:
    run = place(examples()["extended"])
    data = encoded(run)
    found = decode(data, 0, POSITION, SEED)
    assert isinstance(found, Run)
    assert found.extension == run.extension
    messages = columns_of(data, 0, found)
    assert messages.bodies(0, 3) == [message.body for message in MESSAGES]
    whole = with_bodies(data, 0, found)
    assert isinstance(run, Run)
    assert (whole.columns, whole.bodies) == (run.columns, run.bodies)


@pytest.mark.parametrize("size", [0, 3, 44, 1 << 20, (1 << 32) - 1])
def test_a_size_that_does_not_fit_the_head_is_refused(size: int) -> None:
    data = bytearray(encoded(place(examples()["extended"])))
    end = int.from_bytes(data[12:16], "little")
    data[end - 4 : end] = size.to_bytes(4, "little")
    with pytest.raises((BadRecord, Newer)):
        found = decode(resealed(bytes(data)), 0, POSITION, SEED)
        decode_extension(found.extension)


@pytest.mark.parametrize("cut", [b"\1", b"\1\0\0\0", b"\1\5\0\0\0abc", b"\1\xff\xff\xff\xff"])
def test_a_column_beyond_the_end_of_an_extension_is_refused(cut: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_extension(cut + bytes(4))

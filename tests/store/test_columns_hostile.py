"""Forged columns: they are refused as BadColumns, and nothing large is allocated."""

from __future__ import annotations

import tracemalloc
from array import array

import lz4.block
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fmq.basics.message import Message
from fmq.store.bytes.columns import COMPRESSED, HEADERS, KEYS, LENGTHS, TAGS, Columns
from fmq.store.bytes.compression import RAW_BYTES_MAX
from fmq.store.bytes.content import encode_bodies, encode_messages
from fmq.store.bytes.pieces import BadColumns

LIMIT = 1 << 20


def lengths(*sizes: int) -> bytes:
    return array("I", sizes).tobytes()


def text_column(sizes: list[int], text: bytes, says: int | None = None) -> bytes:
    says = len(text) if says is None else says
    return says.to_bytes(4, "little") + array("H", sizes).tobytes() + text


@pytest.mark.parametrize(
    ("count", "flags", "data", "bodies"),
    [
        pytest.param(2, LENGTHS, lengths(1, 1), b"abc", id="lengths below the bodies"),
        pytest.param(2, LENGTHS, lengths(2, 2), b"abc", id="lengths above the bodies"),
        pytest.param(2, LENGTHS, lengths(1, (1 << 32) - 1), b"abc", id="a huge length"),
        pytest.param(2, LENGTHS, lengths(3), b"abc", id="a length is missing"),
        pytest.param(2, LENGTHS, b"", b"abc", id="all lengths are missing"),
        pytest.param(2, 0, b"", b"abc", id="no equal lengths"),
        pytest.param(1 << 24, LENGTHS, lengths(1), b"a", id="many messages and one length"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(
    count: int, flags: int, data: bytes, bodies: bytes
) -> None:
    columns = Columns(count, flags, data, bodies, len(bodies))
    assert refused_cheaply(columns.bodies)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\1\0\0", id="no whole size"),
        pytest.param(text_column([1], b"a"), id="a length is missing"),
        pytest.param(text_column([1, 1], b"a"), id="text below its lengths"),
        pytest.param(text_column([1, 1], b"abc"), id="text above its lengths"),
        pytest.param(text_column([1, 1], b"ab", says=3), id="size above the text"),
        pytest.param(text_column([1, 1], b"ab", says=1), id="size below the text"),
        pytest.param(text_column([1, 1], b"ab", says=(1 << 32) - 1), id="huge size"),
        pytest.param(text_column([1, 1], b"a\xff"), id="no UTF-8"),
        pytest.param(text_column([1, 1], "ä".encode()), id="a character in two halves"),
        pytest.param(text_column([3, 0xFFFF], b"\xed\xa0\x80"), id="half a surrogate"),
    ],
)
@pytest.mark.parametrize("flag", [KEYS, TAGS])
def test_a_column_of_text_that_does_not_add_up_is_refused(flag: int, column: bytes) -> None:
    assert refused_cheaply(Columns(2, flag, column, b"", 0).texts)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(array("H", [1]).tobytes(), id="a count is missing"),
        pytest.param(array("H", [1, 1]).tobytes(), id="no names"),
        pytest.param(
            array("H", [1, 1]).tobytes() + text_column([1, 1], b"ab"), id="names without values"
        ),
        pytest.param(
            array("H", [0xFFFF, 0xFFFF]).tobytes() + text_column([1, 1], b"ab") * 2,
            id="more headers than names",
        ),
        pytest.param(
            array("H", [1, 0]).tobytes() + text_column([0xFFFF], b"") + text_column([1], b"a"),
            id="a header without a name",
        ),
        pytest.param(
            array("H", [1, 0]).tobytes() + text_column([1], b"a") + text_column([0xFFFF], b""),
            id="a header without a value",
        ),
    ],
)
def test_headers_that_do_not_add_up_are_refused(column: bytes) -> None:
    assert refused_cheaply(Columns(2, HEADERS, column, b"", 0).headers)


def test_headers_after_a_damaged_column_are_refused() -> None:
    good = encode_messages([Message(b"", "k", None, {"a": "b"})], None)
    bad = b"\xff\xff\xff\xff" + good.columns[4:]
    assert refused_cheaply(Columns(1, good.flags, bad, b"", 0).headers)


@pytest.mark.parametrize("raw_bytes", [1 << 26, RAW_BYTES_MAX, RAW_BYTES_MAX + 1, (1 << 32) - 1])
def test_an_impossible_decompressed_size_is_refused_cheaply(raw_bytes: int) -> None:
    """lz4 expands at most 255-fold, so a larger claim is false. Nothing is allocated for it."""
    packed = lz4.block.compress(bytes(1000), store_size=False)
    assert refused_cheaply(Columns(1, COMPRESSED, b"", packed, raw_bytes).bodies)


@pytest.mark.parametrize("raw_bytes", [0, 1, 999, 1001])
def test_bodies_that_decompress_to_another_size_are_refused(raw_bytes: int) -> None:
    packed = lz4.block.compress(bytes(1000), store_size=False)
    assert refused_cheaply(Columns(1, COMPRESSED, b"", packed, raw_bytes).bodies)


def test_the_highest_compression_of_lz4_is_accepted() -> None:
    """The check of the claimed size accepts everything that compression produces."""
    for size in (1, 12, 13, 64, 100, 1000, 255 * 64, 1 << 20, 1 << 22):
        content = encode_bodies([bytes(size)], 0)
        assert Columns.of(content).bodies() == [bytes(size)]


@given(st.binary(max_size=60), st.integers(0, 5000))
@example(b"", 0)
def test_garbage_is_refused_or_decompresses_to_the_stated_size(
    packed: bytes, raw_bytes: int
) -> None:
    columns = Columns(1, COMPRESSED, b"", packed, raw_bytes)
    try:
        (body,) = columns.bodies()
    except BadColumns:
        return
    assert len(body) == raw_bytes


@given(
    st.integers(1, 40) | st.just(1 << 24),
    st.integers(0, 31).map(lambda n: n << 3),
    st.binary(max_size=120),
    st.binary(max_size=40),
)
def test_any_bytes_decode_to_columns_or_raise_bad_columns(
    count: int, flags: int, data: bytes, bodies: bytes
) -> None:
    """Columns that decode have as many values as the record says."""
    columns = Columns(count, flags, data, bodies, len(bodies))
    if bodies or flags & LENGTHS:
        counted(columns.bodies, count)
    counted(columns.headers, count)
    try:
        for texts in columns.texts():
            assert texts is None or len(texts) == count
    except BadColumns:
        pass


def counted(ask, count: int) -> None:
    try:
        found = ask()
    except BadColumns:
        return
    assert found is None or len(found) == count


def test_bodies_too_large_to_decompress_are_not_compressed() -> None:
    """Zeros compress 255-fold, so they would fit a segment and could never be read again."""
    large = bytes(RAW_BYTES_MAX + 1)
    content = encode_bodies([large], 0)
    assert not content.flags & COMPRESSED
    assert content.bodies == large
    assert content.raw_bytes == len(large)


def refused_cheaply(ask) -> bool:
    """Return whether the columns are refused as BadColumns without a large allocation."""
    tracemalloc.start()
    try:
        with pytest.raises(BadColumns):
            ask()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak < LIMIT

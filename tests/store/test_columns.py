"""Messages go into columns and come out as they were sent."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.basics.joined_bodies import JoinedBodies
from fmq.basics.message import Message, Origin
from fmq.errors import BadName, TooLarge
from fmq.store.bytes.columns import COMPRESSED, KEYS, LENGTHS, TAGS, Columns
from fmq.store.bytes.content import (
    HEADERS_MAX,
    TEXT_BYTES_MAX,
    as_bytes,
    encode_bodies,
    encode_joined,
    encode_messages,
    encode_one,
    split_bodies,
)
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.pieces import UNIFORM_COUNT_MAX
from fmq.store.reading.batch import messages_of
from tests.store.samples import fields, messages


def came_back(run: Run) -> list[Message]:
    columns = Columns.of(run)
    columns.check()
    origin = Origin("t", 0, 0, 0, None, None)
    found = messages_of(columns, columns.bodies(), origin, 0, 0)
    return [each._replace(offset=None, origin=None) for each in found]


@given(st.lists(messages, min_size=1, max_size=30), st.none() | st.integers(0, 300))
def test_messages_decode_to_what_was_encoded(sent: list[Message], compress: int | None) -> None:
    """Empty headers decode to no headers."""
    expected = [m._replace(headers=m.headers or None) for m in sent]
    assert came_back(encode_messages(sent, compress)) == expected


@given(st.lists(st.binary(max_size=30), min_size=1), st.none() | st.integers(0, 300))
def test_bodies_decode_to_what_was_encoded(sent: list[bytes], compress: int | None) -> None:
    content = encode_bodies(sent, compress)
    assert Columns.of(content).bodies() == sent
    assert Columns.of(content).texts() == (None, None)
    assert Columns.of(content).headers() is None


@given(
    st.lists(st.binary(max_size=30), min_size=1),
    st.integers(0, 30),
    st.none() | st.integers(0, 300),
)
def test_joined_bodies_are_encoded_as_a_list_of_them(
    sent: list[bytes], first: int, compress: int | None
) -> None:
    joined = JoinedBodies(array("I", map(len, sent)), [b"".join(sent)])
    assert ([*joined], len(joined), joined[-1]) == (sent, len(sent), sent[-1])
    joined.extend(sent)
    joined.extend(joined[first:])
    joined.append(b"last")
    sent = [*sent, *sent]
    sent = [*sent, *sent[first:], b"last"]
    one, other = encode_joined(joined, compress), encode_bodies(sent, compress)
    assert fields(one) == fields(other)
    assert (one.columns, one.bodies) == (other.columns, other.bodies)


def test_joined_bodies_that_state_other_sizes_are_refused() -> None:
    """Nobody could read the record."""
    with pytest.raises(ValueError, match="other sizes than they say"):
        encode_joined(JoinedBodies(array("I", [1, 2]), [b"12"]), None)


@given(st.binary(max_size=300), st.none() | st.integers(0, 300))
def test_a_single_body_is_encoded_as_a_batch_of_one(body: bytes, compress: int | None) -> None:
    """encode_one() returns the same bytes as encode_bodies()."""
    one, batch = encode_one(body, compress), encode_bodies([body], compress)
    assert fields(one) == fields(batch)
    assert (one.columns, one.bodies) == (batch.columns, batch.bodies)


@pytest.mark.parametrize("count", [1, 2, UNIFORM_COUNT_MAX, UNIFORM_COUNT_MAX + 1])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_bodies_of_equal_length_store_no_lengths(count: int, size: int) -> None:
    sent = [bytes([i % 251]) * size for i in range(count)]
    content = encode_bodies(sent, None)
    assert (content.flags, content.columns) == (0, b"")
    assert Columns.of(content).bodies() == sent


@pytest.mark.parametrize(
    "sizes", [[3, 4], [1, 0, 2], [0, 0, 1], [2, 1, 1, 0], [1] * UNIFORM_COUNT_MAX + [2]]
)
def test_bodies_of_different_length_store_each_length(sizes: list[int]) -> None:
    """This also holds where the mean length is that of the first body."""
    sent = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    content = encode_bodies(sent, None)
    assert content.flags == LENGTHS
    assert Columns.of(content).bodies() == sent


def test_an_unused_column_is_not_written() -> None:
    assert encode_messages([Message(b"x"), Message(b"y", headers={})], None).flags == 0
    assert encode_messages([Message(b"x"), Message(b"y", key="")], None).flags == KEYS
    assert encode_messages([Message(b"x", tag="t"), Message(b"yy")], None).flags == LENGTHS | TAGS


def test_only_large_bodies_that_get_smaller_are_compressed() -> None:
    text, noise = b"again " * 50, bytes(range(256))
    for body, compress, packed in [
        (text, None, False),
        (text, len(text) + 1, False),
        (text, len(text), True),
        (noise, 0, False),
    ]:
        content = encode_bodies([body], compress)
        assert bool(content.flags & COMPRESSED) is packed
        assert (len(content.bodies or b"") < len(body)) is packed
        assert content.raw_bytes == len(body)
        assert Columns.of(content).bodies() == [body]


WIDE = array("I", [1, 2, 3])
BYTES_LIKE: dict[str, Any] = {
    "bytes": b"abc",
    "bytearray": bytearray(b"abc"),
    "memoryview": memoryview(b"abc"),
    "memoryview of every second byte": memoryview(b"a-b-c-")[::2],
    "array": array("B", b"abc"),
    "wide array": WIDE,
    "memoryview of a wide array": memoryview(WIDE),
    "table": memoryview(bytes(12)).cast("B", (3, 4)),
    "empty": bytearray(),
}


@pytest.mark.parametrize("name", BYTES_LIKE)
def test_any_bytes_like_object_is_a_body(name: str) -> None:
    """Test each alone, in a batch of its own kind, in a mixed batch, and in a Message."""
    body = BYTES_LIKE[name]
    expected = bytes(memoryview(body))
    for batch in ([body], [body, body], [b"-", body], [body, b"-"]):
        found, plain = split_bodies(batch)
        if plain:
            content = encode_bodies(found, None)
        else:
            content = encode_messages([Message(as_bytes(each)) for each in found], None)
        assert Columns.of(content).bodies() == [bytes(memoryview(each)) for each in batch]
    assert Columns.of(encode_one(body, None)).bodies() == [expected]
    assert came_back(encode_messages([Message(body)], None))[0].body == expected


@pytest.mark.parametrize("body", ["text", 5, None, [1, 2], 1.5, object(), {"a": 1}])
def test_a_body_that_is_not_bytes_like_raises_type_error(body: object) -> None:
    for encode in (
        lambda: encode_one(body, None),  # type: ignore[arg-type]
        lambda: encode_messages([Message(body)], None),  # type: ignore[arg-type]
        lambda: as_bytes(body),
        lambda: split_bodies([b"x", body]),
    ):
        with pytest.raises(TypeError, match="bytes-like"):
            encode()
    assert split_bodies([b"x", body, Message(b"")])[1] is False


def test_changing_a_body_later_does_not_change_what_was_encoded() -> None:
    body = bytearray(b"abc")
    contents = encode_one(body, None), encode_bodies([body, body], None)  # type: ignore[list-item]
    body[:] = b"xyz"
    assert Columns.of(contents[0]).bodies() == [b"abc"]
    assert Columns.of(contents[1]).bodies() == [b"abc", b"abc"]


def test_the_longest_text_decodes_to_what_was_encoded() -> None:
    longest = "x" * TEXT_BYTES_MAX
    sent = [Message(b"", longest, longest, {longest: longest}), Message(b"")]
    assert came_back(encode_messages(sent, None)) == sent


@pytest.mark.parametrize("what", ["key", "tag", "header name", "header"])
def test_text_that_is_too_long_or_not_valid_is_refused(what: str) -> None:
    for text, error in [
        ("ä" * (TEXT_BYTES_MAX // 2 + 1), TooLarge),
        ("\ud800", BadName),
        (b"bytes", TypeError),
        (7, TypeError),
    ]:
        with pytest.raises(error):
            encode_messages([Message(b""), message_with(what, text)], None)


@pytest.mark.parametrize("what", ["header name", "header"])
def test_a_header_without_a_value_is_refused(what: str) -> None:
    with pytest.raises(TypeError):
        encode_messages([message_with(what, None)], None)


def message_with(what: str, text: object) -> Message:
    match what:
        case "key":
            return Message(b"", key=text)  # type: ignore[arg-type]
        case "tag":
            return Message(b"", tag=text)  # type: ignore[arg-type]
        case "header name":
            return Message(b"", headers={text: "x"})  # type: ignore[dict-item]
        case _:
            return Message(b"", headers={"x": text})  # type: ignore[dict-item]


@pytest.mark.parametrize("count", [HEADERS_MAX + 1, 70_000])
def test_too_many_headers_are_refused(count: int) -> None:
    most = {str(i): "" for i in range(HEADERS_MAX)}
    assert came_back(encode_messages([Message(b"", headers=most)], None))[0].headers == most
    with pytest.raises(TooLarge, match=f"{count:,}"):
        encode_messages([Message(b"", headers={str(i): "" for i in range(count)})], None)

"""A search for a turned bit finds each bit of a head, and none where more than one has turned."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fmq.store.journal.turned_bit import TURNED_BYTES_MAX, TurnedBit, turned_bit
from tests.store.samples import POSITION, SEED, encoded, examples, place

HEADS = {
    name: (data := encoded(place(record)))[: int.from_bytes(data[12:16], "little")]
    for name, record in examples().items()
}
VERSION_BITS = (24, 25)  # turned in version 2 they give 3 and 0, which may have been 1 as well


def with_turned(head: bytes, *bits: int) -> bytes:
    """Return the head with these bits turned, counted from its start."""
    data = bytearray(head)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


@pytest.mark.parametrize("name", HEADS)
def test_each_turned_bit_is_found(name: str) -> None:
    head = HEADS[name]
    assert len(head) <= TURNED_BYTES_MAX
    for bit in range(8 * len(head)):
        if bit in VERSION_BITS:
            continue
        # The bytes after a head are its bodies, and the next record.
        data = with_turned(head, bit) + b"fmq" * 300
        assert turned_bit(data, POSITION, SEED) == TurnedBit(bit // 8, head[bit // 8]), bit


@pytest.mark.parametrize("name", HEADS)
def test_nothing_is_found_where_two_or_three_bits_have_turned(name: str) -> None:
    head, chosen = HEADS[name], random.Random(7)
    for _ in range(300):
        bits = chosen.sample(range(8 * len(head)), chosen.choice((2, 3)))
        assert turned_bit(with_turned(head, *bits), POSITION, SEED) is None, bits


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda head: head, id="nothing has turned"),
        pytest.param(lambda head: b"", id="no bytes"),
        pytest.param(lambda head: with_turned(head[:-1], 300), id="the end is missing"),
        pytest.param(lambda head: head[:12] + b"\xff" * 4 + head[16:], id="no size"),
    ],
)
def test_nothing_is_found_where_no_bit_has_turned(other: Callable[[bytes], bytes]) -> None:
    assert turned_bit(other(HEADS["MESSAGE"]), POSITION, SEED) is None


def test_a_record_of_another_place_is_not_turned_back() -> None:
    assert turned_bit(with_turned(HEADS["MESSAGE"], 99), POSITION + 8, SEED) is None

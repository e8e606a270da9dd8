"""A transaction with its messages, as a client has collected it, in the payload of one frame.

It is a u32, the size of the values; the values as JSON; the messages as runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fmq.errors import TooLarge
from fmq.wire.fields import Row, data, flag, list_of, number, optional, seconds, text, u16, u32, u64
from fmq.wire.frames import VALUES_BYTES_MAX
from fmq.wire.values import decode_asked_front, encode_front


class Collected(NamedTuple):
    """The part of a transaction's frame before its messages."""

    sequence: int
    waiting: int
    sync: bool | None
    tx_id: str
    is_named: bool
    producer: str | None
    check_after: float | None
    is_bound: bool
    acks: list[list[int]]
    """For each delivery: the consumer's handle, the claim, and its offsets."""
    marks: list[list[Any]]
    """For each mark: name, value, data, and the value that is expected before."""


_COLLECTED = Row(
    sequence=u64,
    waiting=u16,
    sync=optional(flag),
    tx_id=text,
    is_named=flag,
    producer=optional(text),
    check_after=optional(seconds),
    is_bound=flag,
    acks=list_of(Row(handle=u16, claim=u32, first=u64, end=u64)),
    marks=list_of(Row(name=text, value=number, data=optional(data), expect=optional(number))),
)


def encode_collected(collected: Collected) -> bytes:
    """Return the front of the payload for a transaction. Its messages follow. Raises TooLarge."""
    front = encode_front([*collected], b"")
    if len(front) > VALUES_BYTES_MAX:
        what = "what a transaction acks and marks, in bytes of JSON,"
        instead = "ack and mark less in one transaction"
        raise TooLarge(what, len(front), VALUES_BYTES_MAX, "fixed by the protocol", instead)
    return front


def decode_collected(payload: bytes) -> tuple[Collected, int]:
    """Return the transaction of a payload, and the index at which its messages begin. Raises
    BadFrame, or the error of a refused value.
    """
    values, at = decode_asked_front(payload)
    return Collected(*_COLLECTED("a transaction", values)), at

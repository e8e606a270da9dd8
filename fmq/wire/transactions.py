"""A transaction that a client has collected, as the payload of one frame.

It is a u32, the size of the values; the values as JSON; the messages as runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fmq.wire.frames import BadFrame
from fmq.wire.values import decode_front, encode_front


class Collected(NamedTuple):
    """What a frame says of a transaction, besides its messages."""

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


def encode_collected(collected: Collected, messages: bytes) -> bytes:
    """Return the payload for a transaction and its messages."""
    return encode_front([*collected], messages)


def decode_collected(payload: bytes) -> tuple[Collected, bytes]:
    """Return what a payload says, and its messages. Raises BadFrame."""
    values, at = decode_front(payload)
    if not isinstance(values, list) or len(values) != len(Collected._fields):
        raise BadFrame("a transaction with other fields")
    return Collected(*values), payload[at:]

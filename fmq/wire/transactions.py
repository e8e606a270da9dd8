"""A transaction that a client has collected, as the payload of one frame.

It is a u32, the size of the values; the values as JSON; the messages as runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fmq.errors import TooLarge
from fmq.wire.claims import SYNCS
from fmq.wire.frames import VALUES_BYTES_MAX, BadFrame
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
    """Return the payload for a transaction and its messages. Raises TooLarge."""
    payload = encode_front([*collected], messages)
    if (size := len(payload) - len(messages)) > VALUES_BYTES_MAX:
        what = "what a transaction acks and marks, in bytes of JSON,"
        instead = "ack and mark less in one transaction"
        raise TooLarge(what, size, VALUES_BYTES_MAX, "fixed by the protocol", instead)
    return payload


def decode_collected(payload: bytes) -> tuple[Collected, bytes]:
    """Return what a payload says, and its messages. Raises BadFrame."""
    values, at = decode_front(payload, bytes_max=VALUES_BYTES_MAX)
    if not isinstance(values, list) or len(values) != len(Collected._fields):
        raise BadFrame("a transaction with other fields")
    collected = Collected(*values)
    if not any(collected.sync is each for each in SYNCS):
        raise BadFrame("a transaction whose sync is none")
    return collected, payload[at:]

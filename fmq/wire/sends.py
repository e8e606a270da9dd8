"""The frames of a send: the request, and its receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from fmq.arguments.names import check_producer
from fmq.basics.message import DelayedReceipt, Receipt, made_receipt
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.record import utf8
from fmq.store.bytes.timing import Timing
from fmq.wire.claims import SYNCS
from fmq.wire.runs import encode_runs

# The client's sequence, how many requests wait, sync, and the size of the producer's name.
SEND = Struct("<QHBB")
SENT = Struct("<IQQIq")  # queue, offset, position, count, time at which it is due (0: no delay)


class SendAsked(NamedTuple):
    """The part of a SEND before its messages."""

    sequence: int
    waiting: int
    sync: bool | None
    producer: str


def encode_send(
    sequence: int, waiting: int, sync: bool | None, runs: Sequence[Run]
) -> tuple[bytes, ...]:
    """Return, in parts, the payload of a SEND of runs of one producer."""
    name = utf8(runs[0].producer)
    return SEND.pack(sequence, waiting, SYNCS.index(sync), len(name)), name, *encode_runs(runs)


def decode_send(payload: bytes) -> tuple[SendAsked, int]:
    """Return what a SEND says, and the index of its first message. Raises ValueError or BadName."""
    sequence, waiting, sync, size = SEND.unpack_from(payload)
    end = SEND.size + size
    if sync >= len(SYNCS):
        raise ValueError(f"a SEND with sync {sync}")
    producer = check_producer(payload[SEND.size : end].decode()) if size else ""
    return SendAsked(sequence, waiting, SYNCS[sync], producer), end


def encode_sent(receipts: Iterable[tuple[int, int, int, int, int]]) -> bytes:
    """Return the payload of an answer: queue, offset, position, count and due of each record."""
    return b"".join([SENT.pack(*each) for each in receipts])


def sent_as(receipt: Receipt) -> tuple[int, int, int, int, int]:
    """Return the fields of `receipt` that an answer sends."""
    due_us = receipt.due_us if isinstance(receipt, DelayedReceipt) else 0
    return receipt.queue, receipt.offset or 0, receipt.position, receipt.count, due_us


def decode_sent(topic: str, payload: bytes) -> list[Receipt]:
    """Return the receipts of an answer."""
    return [
        DelayedReceipt(topic, queue, None, position, count, due_us)
        if due_us
        else made_receipt((topic, queue, offset, position, count))
        for queue, offset, position, count, due_us in SENT.iter_unpack(payload)
    ]


RECALL = Struct("<QHxqQ")  # the client's sequence, how many requests wait, unused, due time, number


class RecallAsked(NamedTuple):
    """The content of a RECALL."""

    sequence: int
    waiting: int
    timing: Timing


def encode_recall(sequence: int, waiting: int, timing: Timing) -> tuple[bytes, ...]:
    """Return the payload of a RECALL."""
    return (RECALL.pack(sequence, waiting, *timing),)


def decode_recall(payload: bytes) -> RecallAsked:
    """Return what the payload of a RECALL asks. Raises ValueError or struct.error."""
    sequence, waiting, due_us, number = RECALL.unpack(payload)
    if due_us < 0:
        raise ValueError(f"a RECALL of what is due at {due_us}")
    return RecallAsked(sequence, waiting, Timing(due_us, number))

"""Deliveries in frames. A claim is named by its number, and its messages by their offsets."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from fmq.store.bytes.record import utf8
from fmq.tx.ledger.dead_letters import check_taken

CLAIM = Struct("<I")
# The head of each piece of a poll's answer: claim, attempt, size of the batch.
PIECE = Struct("<III")
# A number of no claim. After it come the queues that the member has lost and gained.
NEWS = 0xFFFF_FFFF
ACK = Struct("<IQQBHB")  # claim, first, end, sync, queue, size of the topic's name
TAKE = Struct("<QHIB")  # the client's sequence, how many requests wait, count of messages, sync
# The head of ADVANCE's answer: True if its ack succeeded. Pieces follow, as in a poll's answer.
ADVANCED = Struct("<?")
SYNCS = None, True, False
"""The argument `sync` of a call, by its number in a frame."""


LIMIT_MAX = (1 << 32) - 1
ACKS_MAX = 8192  # acks in one frame; with the longest names they fill half of a frame


class AckAsked(NamedTuple):
    """The content of an ACK. Topic and queue are for an engine process that does not know the
    claim.
    """

    claim: int
    first: int
    end: int
    sync: bool | None
    topic: str
    queue: int


class TakeAsked(NamedTuple):
    """The content of a TAKE: messages are acked before the client sees them."""

    sequence: int
    waiting: int
    limit: int
    sync: bool | None


def encode_take(sequence: int, waiting: int, limit: int, sync: bool | None) -> tuple[bytes]:
    """Return the payload of a TAKE."""
    return (TAKE.pack(sequence, waiting, min(limit, LIMIT_MAX), SYNCS.index(sync)),)


def decode_take(payload: bytes) -> TakeAsked:
    """Return what the payload of a TAKE asks. Raises ValueError."""
    sequence, waiting, limit, sync = TAKE.unpack(payload)
    if sync >= len(SYNCS) or not limit:
        raise ValueError(f"a TAKE of {limit}, with sync {sync}")
    return TakeAsked(sequence, waiting, limit, SYNCS[sync])


def encode_ack(asked: AckAsked) -> bytes:
    """Return the payload of an ACK."""
    claim, first, end, sync, topic, queue = asked
    name = utf8(topic)
    return ACK.pack(claim, first, end, SYNCS.index(sync), queue, len(name)) + name


def decode_ack(payload: bytes) -> AckAsked:
    """Return what the payload of an ACK asks. Raises ValueError or BadName."""
    return _ack_at(payload, 0)[0]


def decode_acks(payload: bytes) -> list[AckAsked]:
    """Return what the payload of an ACK_ALL asks: ACKs, one after the other. Raises ValueError or
    BadName.
    """
    found, at = [], 0
    while at < len(payload):
        asked, at = _ack_at(payload, at)
        found.append(asked)
    if not 0 < len(found) <= ACKS_MAX or len({each.sync for each in found}) > 1:
        raise ValueError(f"an ACK_ALL of {len(found)} ranges, or with several sorts of sync")
    return found


def _ack_at(payload: bytes, at: int) -> tuple[AckAsked, int]:
    """Return the ack that begins at `at`, and the index after it."""
    claim, first, end, sync, queue, size = ACK.unpack_from(payload, at)
    at += ACK.size
    topic = check_taken(payload[at : at + size].decode())
    if sync >= len(SYNCS) or first >= end:
        raise ValueError(f"an ACK of {first} to {end}, with sync {sync}")
    return AckAsked(claim, first, end, SYNCS[sync], topic, queue), at + size

"""How frames name what a poll has taken: the claim by its number, its messages by offsets."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from fmq.store.record import utf8
from fmq.tx.names import check_name

CLAIM = Struct("<I")
PIECE = Struct("<II")  # of a poll: the claim, and the size of the batch that follows
NEWS = 0xFFFF_FFFF  # no claim: what follows are the queues that the member has lost and gained
ACK = Struct("<IQQBHB")  # claim, first, end, sync, queue, size of the topic's name
SYNCS = None, True, False
"""The argument `sync` of a call, by its number in a frame."""


class AckAsked(NamedTuple):
    """What a client asks to ack. Topic and queue are for a process that does not know the claim."""

    claim: int
    first: int
    end: int
    sync: bool | None
    topic: str
    queue: int


def encode_ack(asked: AckAsked) -> bytes:
    """Return the payload of an ACK."""
    claim, first, end, sync, topic, queue = asked
    name = utf8(topic)
    return ACK.pack(claim, first, end, SYNCS.index(sync), queue, len(name)) + name


def decode_ack(payload: bytes) -> AckAsked:
    """Return what a payload asks. Raises ValueError, or BadName."""
    claim, first, end, sync, queue, size = ACK.unpack_from(payload)
    topic = check_name("topic", payload[ACK.size : ACK.size + size].decode())
    if sync >= len(SYNCS) or first >= end:
        raise ValueError(f"an ACK of {first} to {end}, with sync {sync}")
    return AckAsked(claim, first, end, SYNCS[sync], topic, queue)

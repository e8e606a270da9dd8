"""Looking at what a group has not acked, without taking it."""

from __future__ import annotations

from collections.abc import Callable

from fmq.clock import as_us
from fmq.errors import OffsetGone
from fmq.message import Message, Origin
from fmq.results import DeadLetter

Read = Callable[..., list[Message]]
"""`engine.read`."""


Replayed = Callable[[int, int], list[DeadLetter]]
"""`Burying.replayed` of one group and topic."""


def messages_of(
    ranges: list[list[int]], topic: str, limit: int, read: Read, replayed: Replayed
) -> list[Message]:
    """Return up to `limit` messages of `ranges` and of what was `replayed`, the oldest first. A
    range is a queue, a first offset and an end.
    """
    found: list[Message] = []
    after = -1
    while len(found) < limit and (page := replayed(after, limit - len(found))):
        found += map(_message_of, page)
        after = page[-1].number
    for queue, first, end in ranges:
        while first < end:
            try:
                part = read(topic, queue=queue, offset=first, limit=end - first)
            except OffsetGone as gone:
                first = gone.first  # retention was here meanwhile
                continue
            found += part
            first += len(part) or end - first
    found.sort(key=_place)
    return found[:limit]


def _message_of(letter: DeadLetter) -> Message:
    """Return what was replayed as it was where it failed."""
    where = letter.topic, letter.queue, letter.position, as_us(letter.time)
    return Message(
        *(letter.body, letter.key, letter.tag),
        headers=letter.headers,
        offset=letter.offset,
        origin=Origin(*where, letter.tx_id, letter.producer),
        message_id=letter.message_id,
        priority=letter.priority,
        expires_at=letter.expires_at,
    )


def _place(message: Message) -> tuple[int, int]:
    assert message.position is not None and message.offset is not None, "it was read"
    return message.position, message.offset

"""Looking at what a group has not acked, without taking it."""

from __future__ import annotations

from collections.abc import Callable

from fmq.errors import OffsetGone
from fmq.message import Message

Read = Callable[..., list[Message]]
"""`engine.read`."""


def messages_of(ranges: list[list[int]], topic: str, limit: int, read: Read) -> list[Message]:
    """Return up to `limit` messages of `ranges`, the oldest first. A range is a queue, a first
    offset and an end.
    """
    found: list[Message] = []
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


def _place(message: Message) -> tuple[int, int]:
    assert message.position is not None and message.offset is not None, "it was read"
    return message.position, message.offset

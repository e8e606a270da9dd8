"""Calls that need several looks of a door. One thread makes all looks of a call, even on a loop."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from fmq.basics.clock import as_us
from fmq.basics.message import Appended, Message, Origin
from fmq.basics.results import DeadLetter
from fmq.errors import OffsetGone
from fmq.faces.blocking.door import LookingDoor


def found_messages(door: LookingDoor, topic: str, key: str, limit: int) -> list[Message]:
    """Return up to `limit` messages with `key`. Leave out messages that retention has dropped
    meanwhile, and messages of a topic that was deleted, even if a new topic of the name has another
    message at the place.
    """
    found: list[Message] = []
    for queue, offset in door.look("places_of", topic, key, limit):
        try:
            batch = door.read_batch(topic, queue, offset, 1, 0.0)
        except OffsetGone:
            continue
        if batch is not None:
            found += [each for each in batch.messages if each.key == key]
    return found


def unread_messages(door: LookingDoor, group: str, topic: str, limit: int) -> list[Message]:
    """Return up to `limit` messages that `group` has not acked, the oldest first. Messages that
    were replayed to the group are among them.
    """
    ranges: list[list[int]] = door.look("unacked", group, topic, limit)
    found: list[Message] = []
    after = -1
    while len(found) < limit and (
        page := door.look("replayed", group, topic, after, limit - len(found))
    ):
        found += map(_message_of, page)
        after = page[-1].number
    for queue, first, end in ranges:
        found += _messages_of(door, topic, queue, first, end)
    found.sort(key=_place)
    return found[:limit]


def appended(door: LookingDoor, position: int, topics: list[str] | None, limit: int) -> Appended:
    """Return what whole appends from `position` on have published to `topics`, or to all topics."""
    end, ranges = door.look("appended", position, topics, limit)
    found: list[Message] = []
    for each in ranges:
        run = _messages_of(door, *each)
        # If a topic was deleted meanwhile and made again, its messages are in later appends.
        while run and _position(run[-1]) >= end:
            run.pop()
        found += run
    # Each queue is in order already, and no two queues share a position.
    found.sort(key=_position)
    return Appended(found, end)


def _messages_of(door: LookingDoor, topic: str, queue: int, first: int, end: int) -> list[Message]:
    """Return the messages of a queue from `first` up to `end`, except for those that retention has
    dropped meanwhile.
    """
    found: list[Message] = []
    while first < end:
        try:
            batch = door.read_batch(topic, queue, first, end - first, 0.0)
        except OffsetGone as gone:
            first = gone.first
            continue
        if batch is None:
            break
        found += batch.messages
        first = batch.next
    return found


def _message_of(letter: DeadLetter) -> Message:
    """Return a replayed message with the place where it failed."""
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


_position: Callable[[Message], int] = attrgetter("origin.position")
"""Of a message that was read. A relay asks it for each message, so it runs in C."""


def _place(message: Message) -> tuple[int, int]:
    assert message.position is not None and message.offset is not None, "it was read"
    return message.position, message.offset

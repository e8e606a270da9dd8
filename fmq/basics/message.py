"""The values that callers hand in and get back: messages and receipts. All are named tuples.

A `Message` is both what is sent and what is read. One that was read also has an offset and an
`Origin`, which all messages of its record share. One that was read can be sent on as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import count, repeat
from typing import TYPE_CHECKING, Literal, NamedTuple

from fmq.basics.clock import as_datetime
from fmq.basics.tuples import tuple_maker

ERASED_HEADER = "fmq.erased"
"""The one header of a message that was erased."""

Body = bytes | bytearray | memoryview
MessagePlace = tuple[str, int, int]
"""Topic, queue and offset."""
Decision = Literal["commit", "rollback", "commit_without_lost"]
"""What may become of an undecided transaction. The third commits what is left of one that is
impaired, because messages of it were damaged on the disk.
"""


class Origin(NamedTuple):
    """Where a run of messages lies, and which producer and transaction published it."""

    topic: str
    queue: int
    position: int
    time_us: int
    tx_id: str | None
    producer: str | None

    @property
    def time(self) -> datetime:
        """The time when the record that published the run was written."""
        return as_datetime(self.time_us)


class _MessageFields(NamedTuple):
    body: bytes
    """Always bytes if the message was read, else the object that the caller gave."""
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str] | None = None
    """A dict if the message was read."""
    offset: int | None = None
    origin: Origin | None = None
    message_id: str | None = None
    """The id under which it was sent once."""
    priority: int | None = None
    """From 0 to 9, of which 9 comes first."""
    expires_at: datetime | None = None
    """When no consumer gets it any more."""


class Message(_MessageFields):
    """A body with its optional key, tag, headers, id, priority and expiry. A message that was read
    also has its place.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # The constructor accepts more kinds of body than a reader gets.
        def __new__(
            cls,
            body: Body,
            key: str | None = None,
            tag: str | None = None,
            headers: Mapping[str, str] | None = None,
            offset: int | None = None,
            origin: Origin | None = None,
            message_id: str | None = None,
            priority: int | None = None,
            expires_at: datetime | None = None,
        ) -> Message: ...

    def __hash__(self) -> int:
        """Leave out the headers: they are a dict, which has no hash."""
        return hash((self.body, self.key, self.tag, *self[4:]))

    @property
    def erased(self) -> bool:
        """Return whether the message was erased: it has its offset, and nothing of what it was."""
        return self.headers is not None and ERASED_HEADER in self.headers

    @property
    def topic(self) -> str | None:
        return self.origin.topic if self.origin else None

    @property
    def queue(self) -> int | None:
        return self.origin.queue if self.origin else None

    @property
    def position(self) -> int | None:
        return self.origin.position if self.origin else None

    @property
    def time(self) -> datetime | None:
        """The time of the record that published the message. Within a queue this time never
        decreases.
        """
        return self.origin.time if self.origin else None

    @property
    def tx_id(self) -> str | None:
        return self.origin.tx_id if self.origin else None

    @property
    def producer(self) -> str | None:
        return self.origin.producer if self.origin else None


class Appended(NamedTuple):
    """What whole appends have published, in the order of the journal."""

    messages: list[Message]
    position: int
    """The position behind these appends."""


ABSENT: Iterator[None] = repeat(None)  # stands for a column that a record does not have
_MESSAGE_CLASS = repeat(Message)


def make_messages(
    origin: Origin,
    first: int,
    bodies: Iterable[bytes],
    keys: Iterable[str | None] = ABSENT,
    tags: Iterable[str | None] = ABSENT,
    headers: Iterable[Mapping[str, str] | None] = ABSENT,
    ids: Iterable[str | None] = ABSENT,
    priorities: Iterable[int | None] = ABSENT,
    expiries: Iterable[datetime | None] = ABSENT,
) -> list[Message]:
    """Return the messages of one record, from the offset `first` on.

    A reader makes millions of them, so the loop runs in C: `Message._make` would call Python.
    """
    extras = ids, priorities, expiries
    rows = zip(bodies, keys, tags, headers, count(first), repeat(origin), *extras)
    return [*map(tuple.__new__, _MESSAGE_CLASS, rows)]


class Mark(NamedTuple):
    """A number and a few bytes that a program has noted under a name, in a transaction."""

    value: int
    data: bytes = b""


class Receipt(NamedTuple):
    """Where a run of sent messages lies: `count` messages from `offset` on."""

    topic: str
    queue: int
    offset: int
    position: int
    count: int = 1  # type: ignore[assignment]  # a tuple has a method of this name


made_receipt = tuple_maker(Receipt)


class DelayedReceipt(Receipt):
    """The receipt of messages that wait for their time, with which `engine.recall` ends the wait.

    They have no offset yet, so `offset` is None, whatever its type says.
    """

    __slots__ = ()

    def __new__(
        cls, topic: str, queue: int, offset: None, position: int, count: int, due_us: int
    ) -> DelayedReceipt:
        values = topic, queue, offset, position, count, due_us
        return tuple.__new__(cls, values)

    @property
    def due_us(self) -> int:
        """The time when the messages are due, in microseconds since 1970."""
        return tuple.__getitem__(self, 5)  # type: ignore[return-value]

    @property
    def due(self) -> datetime:
        """The time when the messages are due."""
        return as_datetime(self.due_us)

    def __repr__(self) -> str:
        return (
            f"DelayedReceipt(topic={self.topic!r}, queue={self.queue}, position={self.position}, "
            f"count={self.count}, due={self.due.isoformat()})"
        )

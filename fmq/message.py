"""What users hand in and get back: messages and receipts. All frozen, none with I/O.

A `Message` is both what is sent and what is read. One that was read also has an offset and an
`Origin`, shared by all messages of a record, which says where it stands and who sent it; one
that was read can be sent on as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from fmq.clock import as_datetime

Body = bytes | bytearray | memoryview
Decision = Literal["commit", "rollback"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run of messages stands, and who published it."""

    topic: str
    queue: int
    position: int
    time_us: int
    tx_id: str | None
    producer: str | None

    @property
    def time(self) -> datetime:
        """When the record that published them was written."""
        return as_datetime(self.time_us)


@dataclass(frozen=True, slots=True)
class Message:
    """A body with its optional key, tag and headers; one that was read knows its place, too."""

    body: bytes
    """Of one that was read; one that was made has what it was made of."""
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str] | None = field(default=None, hash=False)  # a dict, as read
    offset: int | None = None
    origin: Origin | None = None

    if TYPE_CHECKING:
        # As the dataclass makes it, but for what a body may be when it is sent.
        def __init__(
            self,
            body: Body,
            key: str | None = None,
            tag: str | None = None,
            headers: Mapping[str, str] | None = None,
            offset: int | None = None,
            origin: Origin | None = None,
        ) -> None: ...

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
        """When the record that published it was written; never goes back within a queue."""
        return self.origin.time if self.origin else None

    @property
    def tx_id(self) -> str | None:
        return self.origin.tx_id if self.origin else None

    @property
    def producer(self) -> str | None:
        return self.origin.producer if self.origin else None


class _Draft:
    """A Message before it is frozen: same slots, plain assignment, a third of the time."""

    __slots__ = Message.__slots__


def messages_read(
    bodies: Iterable[bytes],
    keys: Iterable[str | None],
    tags: Iterable[str | None],
    headers: Iterable[Mapping[str, str] | None],
    first: int,
    origin: Origin,
) -> list[Message]:
    """Messages that were read, from the offset `first` on: made in one loop that calls nothing
    but their class, because reading makes millions of them.
    """
    made = []
    rows = zip(bodies, keys, tags, headers, strict=False)  # a column that is absent has no end
    for offset, (body, key, tag, header) in enumerate(rows, first):
        draft: Any = _Draft()
        draft.body, draft.key, draft.tag, draft.headers = body, key, tag, header
        draft.offset, draft.origin = offset, origin
        draft.__class__ = Message
        made.append(draft)
    return made


def plain_messages_read(bodies: Iterable[bytes], first: int, origin: Origin) -> list[Message]:
    """The same of messages without key, tag and headers."""
    made = []
    for offset, body in enumerate(bodies, first):
        draft: Any = _Draft()
        draft.body, draft.offset, draft.origin = body, offset, origin
        draft.key = draft.tag = draft.headers = None
        draft.__class__ = Message
        made.append(draft)
    return made


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a run of sent messages stands: `count` messages from `offset` on."""

    topic: str
    queue: int
    offset: int
    position: int
    count: int = 1


class _ReceiptDraft:
    """A Receipt before it is frozen, as _Draft is for a Message."""

    __slots__ = Receipt.__slots__


def receipt(topic: str, queue: int, offset: int, position: int, count: int) -> Receipt:
    """A Receipt built the fast way: each call of `send` makes one."""
    draft: Any = _ReceiptDraft()
    draft.topic, draft.queue, draft.count = topic, queue, count
    draft.offset, draft.position = offset, position
    draft.__class__ = Receipt
    return draft  # type: ignore[no-any-return]

# Made of fmq/aio/face/typed_topic.py by tools/make_faces.py: change that file, and run it.
"""A topic whose bodies a codec makes: it sends values, and returns the values of messages.

Each value is encoded by `message`, before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from fmq.arguments.names import check_flag
from fmq.basics.message import Message, Receipt
from fmq.basics.own_process import caller
from fmq.codecs import Codec
from fmq.codecs.codec import decoded, encoded, with_version
from fmq.consume.claims.handed import HandedMessage
from fmq.faces.blocking.door import EngineDoor
from fmq.faces.blocking.handles import ScheduleHandle, TopicHandle
from fmq.tx.commands.sender import made_send_arguments
from fmq.tx.commands.transaction_content import TransactionContent
from fmq.tx.schedules.schedules import check_schedule

T = TypeVar("T")


class TypedTopic(TopicHandle, Generic[T]):
    """A topic with a codec, made by `engine.topic(name, codec=...)`.

    A value that the codec refuses raises BadBody, and nothing is written.
    """

    _door: EngineDoor

    def __init__(self, door: EngineDoor, name: str, codec: Codec[T]) -> None:
        super().__init__(door, name)
        self._codec = codec

    def message(
        self,
        value: T,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
    ) -> Message:
        """Return the message for `value`, which every call that takes Messages can send."""
        body, said = encoded(self._name, self._codec, value), with_version(self._codec, headers)
        return Message(body, key, tag, said, None, None, message_id, priority, expires_at)

    def value(self, message: Message | HandedMessage) -> T:
        """Return the value of a message of the topic that was read or delivered. Raises BadBody."""
        if isinstance(message, HandedMessage):
            message = message.message
        if not isinstance(message, Message):
            raise TypeError(
                f"message={message!r:.80}: is a Message that was read, or a delivery of one. "
                "Nothing was changed."
            )
        return decoded(self._codec, message)

    def send(
        self,
        value: T,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
        producer: str | None = None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        sync: bool | None = None,
    ) -> Receipt:
        """Append one value, as `engine.send` does with a body."""
        body, said = encoded(self._name, self._codec, value), with_version(self._codec, headers)
        how = key, tag, said, queue, producer, message_id, priority, expires_at
        what = self._name, body, made_send_arguments(how)
        return self._door.send(*what, delay, deliver_at, sync)

    def send_many(
        self,
        values: Iterable[T],
        *,
        queue: int | None = None,
        producer: str | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        sync: bool | None = None,
    ) -> list[Receipt]:
        """Append values, as `engine.send_many` does with bodies: all of them or none."""
        if not isinstance(values, Iterable):
            raise TypeError(f"values={values!r:.80}: are several. Nothing was changed.")
        messages = [self.message(each) for each in values]
        how = queue, producer, delay, deliver_at, sync
        return self._door.send_many(self._name, messages, *how)

    def send_in(
        self,
        tx: TransactionContent,
        value: T,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Add a value to the transaction `tx`, as `tx.send` does with a body."""
        if not isinstance(tx, TransactionContent):
            raise TypeError(
                f"tx={tx!r:.80}: is a transaction, of engine.transaction(). Nothing was changed."
            )
        tx.send(
            self._name,
            encoded(self._name, self._codec, value),
            key=key,
            tag=tag,
            headers=with_version(self._codec, headers),
            queue=queue,
            message_id=message_id,
            priority=priority,
            expires_at=expires_at,
            delay=delay,
            deliver_at=deliver_at,
        )

    def schedule(
        self,
        name: str,
        cron: str,
        value: T,
        *,
        timezone: str = "UTC",
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        missed: str = "once",
        replace: bool = False,
        by: str | None = None,
    ) -> ScheduleHandle:
        """Publish a value again and again, as `engine.schedule` does with a body."""
        body, headed = encoded(self._name, self._codec, value), with_version(self._codec, headers)
        what = name, cron, self._name, body, timezone, key, tag, headed, missed, caller(by)
        said, replaces = check_schedule(*what), check_flag("replace", replace)
        self._door.change("schedule", *said.asked(), replaces)
        return ScheduleHandle(self._door, name)

    def __repr__(self) -> str:
        return f"<TypedTopic {self._name!r} by {self._codec!r}>"

"""Encodes what a caller sends, for each queue that gets a part. This needs no lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic, NoReturn, TypeVar

from fmq.arguments.names import check_producer
from fmq.arguments.options import Options
from fmq.basics.message import Body, DelayedReceipt, Message, Receipt
from fmq.errors import TooLarge
from fmq.store.bytes.content import (
    Content,
    add_extras,
    as_bytes,
    encode_bodies,
    encode_messages,
    encode_one,
    in_records,
    split_bodies,
)
from fmq.store.bytes.kinds import MESSAGE, TIMER, Record, Run
from fmq.store.bytes.timing import Timing, timing_in, with_timing
from fmq.store.index.id_table import Key, id_keys_of, keys_of
from fmq.store.journal.journal import Append
from fmq.tx.commands.router import Router

T = TypeVar("T")
Contents = Iterable[tuple[int, Content]]
"""Encoded messages, each with the number of the queue where they go."""


class Sender(Generic[T]):
    """Encodes the bodies and Messages of one call, one content for each queue."""

    def __init__(
        self, router: Router, options: Options, make: Callable[[str, str, Contents], T]
    ) -> None:
        """`make` makes the result of each call from the topic, the producer and the contents."""
        self._router = router
        self._make = make
        self._compress_bytes_min = options.compress_bytes_min
        self._message_bytes_max = options.message_bytes_max

    def one(
        self,
        topic: str,
        body: Body,
        key: str | None,
        tag: str | None,
        headers: Mapping[str, str] | None,
        queue: int | None,
        producer: str | None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        timing: Timing | None = None,
    ) -> T:
        """Encode one message, and return what `make` makes of it."""
        topic, number = self._router.target(topic, key, queue)
        producer = "" if producer is None else check_producer(producer)
        if (key is None and tag is None) and (
            headers is None or (type(headers) is dict and not headers)
        ):
            content = encode_one(body, self._compress_bytes_min)
            if message_id is not None or priority is not None or expires_at is not None:
                add_extras(content, message_id, priority, expires_at)
        else:
            extras = message_id, priority, expires_at
            message = Message(body, key, tag, headers, None, None, *extras)
            content = encode_messages((message,), self._compress_bytes_min)
        if content.raw_bytes > self._message_bytes_max:
            self._refuse_size(content.raw_bytes)
        if timing is not None:
            content.extension = with_timing(content.extension, timing)
        return self._make(topic, producer, ((number, content),))

    def target(
        self, topic: str, key: str | None, queue: int | None, producer: str | None
    ) -> tuple[str, int, str]:
        """Return topic name, queue number and producer for one message, after checking them."""
        topic, number = self._router.target(topic, key, queue)
        return topic, number, "" if producer is None else check_producer(producer)

    def check_size(self, size: int) -> None:
        """Raise TooLarge if a message of `size` bytes exceeds the limit."""
        if size > self._message_bytes_max:
            self._refuse_size(size)

    def joined(self, topic: str, number: int, producer: str, bodies: list[bytes]) -> T:
        """Encode the bodies of several calls as one content, and return what `make` makes of it."""
        content = encode_bodies(bodies, self._compress_bytes_min)
        return self._make(topic, producer, ((number, content),))

    def many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        timing: Timing | None = None,
    ) -> T | None:
        """Encode many messages, in order within each queue, and return what `make` makes of them.
        Return None if there are none.
        """
        topic = self._router.name_of(topic)
        producer = "" if producer is None else check_producer(producer)
        items, plain = split_bodies(bodies)
        if not items:
            self._router.check_target(topic, queue)
            return None
        contents = (self._of_bodies if plain else self._of_items)(topic, items, queue)
        if timing is not None:
            for _, content in contents:
                content.extension = with_timing(content.extension, timing)
        return self._make(topic, producer, contents)

    def _of_bodies(
        self, topic: str, bodies: list[bytes], queue: int | None
    ) -> list[tuple[int, Content]]:
        contents = [encode_bodies(part, self._compress_bytes_min) for part in in_records(bodies)]
        # One bound for all bodies of a record. Look at single bodies only if it is exceeded.
        if any(content.raw_bytes > self._message_bytes_max for content in contents):
            size = max(len(as_bytes(body)) for body in bodies)
            if size > self._message_bytes_max:
                self._refuse_size(size)
        number = self._router.choose_queue(topic, None, queue)
        return [(number, content) for content in contents]

    def _of_items(
        self, topic: str, items: Iterable[object], queue: int | None
    ) -> list[tuple[int, Content]]:
        lanes: dict[int, list[Message]] = {}
        for item in items:
            message = item if isinstance(item, Message) else Message(as_bytes(item))
            size = len(as_bytes(message.body))
            if size > self._message_bytes_max:
                self._refuse_size(size)
            number = self._router.choose_queue(topic, message.key, queue)
            lanes.setdefault(number, []).append(message)
        return [
            (number, encode_messages(part, self._compress_bytes_min))
            for number, messages in lanes.items()
            for part in in_records(messages)
        ]

    def _refuse_size(self, size: int) -> NoReturn:
        raise TooLarge("a message in bytes", size, self._message_bytes_max, "message_bytes_max")


def append_of(topic: str, producer: str, contents: Contents) -> Append:
    """Return an append with a record for each of `contents`: MESSAGE, or TIMER if it has a
    delay.
    """
    runs = []
    for number, content in contents:
        kind = MESSAGE
        if content.extension and timing_in(content.extension) is not None:
            kind = TIMER
        run = Run(kind, topic, number, 0, content.count, 0, 0, "", producer, 0, content)
        if content.ids is not None:
            run.id_keys = keys_of(topic, content.ids)
        runs.append(run)
    return Append(runs)


class FirstSent:
    """The message that has taken an id, as one of its run. The run may not have its place yet."""

    __slots__ = ("key", "run")

    def __init__(self, run: Run, key: Key) -> None:
        self.run = run
        self.key = key

    @property
    def number(self) -> int:
        """The number of the message in its run."""
        keys, numbers = id_keys_of(self.run)
        return numbers[keys.index(self.key)]

    def receipt(self) -> Receipt:
        """Return the receipt of that message."""
        return one_of(receipt_of(self.run), self.number)


LeftOut = Receipt | tuple[int, int]
"""What a prepare has left out: the receipt of the first message, or, if that is part of the same
transaction, the number of its record and its number in that record."""


def with_left_out(receipts: list[Receipt], left_out: Iterable[LeftOut]) -> list[Receipt]:
    """Return the receipts of a commit, followed by those of the messages that its prepare
    left out.
    """
    more = []
    for each in left_out:
        if isinstance(each, Receipt):
            more.append(each)
        else:
            record, number = each
            more.append(one_of(receipts[record], number))
    return receipts + more


def one_of(receipt: Receipt, number: int) -> Receipt:
    """Return the receipt of message `number` among those that `receipt` covers."""
    if isinstance(receipt, DelayedReceipt):
        where = receipt.topic, receipt.queue, None, receipt.position
        return DelayedReceipt(*where, 1, receipt.due_us)
    return Receipt(receipt.topic, receipt.queue, receipt.offset + number, receipt.position)


def receipts_of(published: Iterable[Record | Receipt | FirstSent]) -> list[Receipt]:
    """Return a Receipt for each of `published`. Those read from the journal are Receipts
    already.
    """
    receipts = []
    for each in published:
        if isinstance(each, Run):
            receipts.append(receipt_of(each))
        elif isinstance(each, Receipt):
            receipts.append(each)
        elif isinstance(each, FirstSent):
            receipts.append(each.receipt())
    return receipts


def first_receipt_of(sent: Append) -> Receipt:
    """Return the receipt of an append of one message. If the message was left out, return that of
    the first one with its id.
    """
    return receipt_of(sent.records[-1]) if sent.records else receipts_of(sent.left_out)[0]


def receipt_of(run: Run) -> Receipt:
    """Return the receipt of a run that has its place."""
    if run.kind == TIMER and (timing := timing_in(run.extension)) is not None:
        place = run.topic, run.queue, None, run.position
        return DelayedReceipt(*place, run.count, timing.due_us)
    return new_tuple(Receipt, (run.topic, run.queue, run.offset, run.position, run.count))


# The generated `Receipt.__new__` is a Python function; the tuple's own is faster.
new_tuple = tuple.__new__

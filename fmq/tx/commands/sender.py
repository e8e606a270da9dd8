"""Encodes what a caller sends, for each queue that gets a part. This needs no lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, NoReturn

from fmq.arguments.names import check_producer
from fmq.arguments.options import Options
from fmq.basics.message import Body, Message
from fmq.basics.tuples import tuple_maker
from fmq.errors import TooLarge
from fmq.store.bytes.content import (
    add_extras,
    as_bytes,
    encode_bodies,
    encode_messages,
    encode_one,
    in_records,
    split_bodies,
)
from fmq.store.bytes.kinds import TIMER, Run
from fmq.store.bytes.timing import Timing, with_timing
from fmq.tx.commands.router import Router


class SendArguments(NamedTuple):
    """What a caller gives with a message, besides its topic, its body and its time."""

    key: str | None
    tag: str | None
    headers: Mapping[str, str] | None
    queue: int | None
    producer: str | None
    message_id: str | None
    priority: int | None
    expires_at: datetime | None


made_send_arguments = tuple_maker(SendArguments)


def is_plain(how: SendArguments) -> bool:
    """Return whether the message is a body alone, so that other bodies may share its record."""
    key, tag, headers, _, _, message_id, priority, expires_at = how
    labels = (key is None) and tag is None and not headers
    return labels and message_id is None and priority is None and expires_at is None


class Sender:
    """Encodes the bodies and Messages of one call, as the runs that it appends."""

    def __init__(self, router: Router, options: Options) -> None:
        self._router = router
        self._compress_bytes_min = options.compress_bytes_min
        self.take_over(options)

    def take_over(self, options: Options) -> None:
        """Limit the bodies of the next calls as `options` say."""
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
    ) -> list[Run]:
        """Return one message as a run: a MESSAGE, or a TIMER if it has a `timing`."""
        topic, number = self._router.target(topic, key, queue)
        producer = "" if producer is None else check_producer(producer)
        if (key is None and tag is None) and (
            headers is None or (type(headers) is dict and not headers)
        ):
            run = encode_one(body, self._compress_bytes_min)
            if message_id is not None or priority is not None or expires_at is not None:
                add_extras(run, message_id, priority, expires_at)
        else:
            extras = message_id, priority, expires_at
            message = Message(body, key, tag, headers, None, None, *extras)
            run = encode_messages((message,), self._compress_bytes_min)
        if run.raw_bytes > self._message_bytes_max:
            self._refuse_size(run.raw_bytes)
        if timing is not None:
            wait_until(run, timing)
        run.topic, run.queue, run.producer = topic, number, producer
        return [run]

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

    def joined(self, topic: str, number: int, producer: str, bodies: list[bytes]) -> list[Run]:
        """Return the bodies of several calls as one run."""
        run = encode_bodies(bodies, self._compress_bytes_min)
        run.topic, run.queue, run.producer = topic, number, producer
        return [run]

    def many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        timing: Timing | None = None,
    ) -> list[Run]:
        """Return many messages as runs, in order within each queue."""
        topic = self._router.name_of(topic)
        producer = "" if producer is None else check_producer(producer)
        items, plain = split_bodies(bodies)
        if not items:
            self._router.check_target(topic, queue)
            return []
        runs = (self._of_bodies if plain else self._of_items)(topic, items, queue)
        for run in runs:
            run.topic, run.producer = topic, producer
            if timing is not None:
                wait_until(run, timing)
        return runs

    def _of_bodies(self, topic: str, bodies: list[bytes], queue: int | None) -> list[Run]:
        runs = [encode_bodies(part, self._compress_bytes_min) for part in in_records(bodies)]
        # One bound for all bodies of a record. Look at single bodies only if it is exceeded.
        if any(run.raw_bytes > self._message_bytes_max for run in runs):
            size = max(len(as_bytes(body)) for body in bodies)
            if size > self._message_bytes_max:
                self._refuse_size(size)
        number = self._router.choose_queue(topic, None, queue)
        for run in runs:
            run.queue = number
        return runs

    def _of_items(self, topic: str, items: Iterable[object], queue: int | None) -> list[Run]:
        by_queue: dict[int, list[Message]] = {}
        for item in items:
            message = item if isinstance(item, Message) else Message(as_bytes(item))
            size = len(as_bytes(message.body))
            if size > self._message_bytes_max:
                self._refuse_size(size)
            number = self._router.choose_queue(topic, message.key, queue)
            by_queue.setdefault(number, []).append(message)
        runs = []
        for number, messages in by_queue.items():
            for part in in_records(messages):
                run = encode_messages(part, self._compress_bytes_min)
                run.queue = number
                runs.append(run)
        return runs

    def _refuse_size(self, size: int) -> NoReturn:
        raise TooLarge("a message in bytes", size, self._message_bytes_max, "message_bytes_max")


def wait_until(run: Run, timing: Timing) -> None:
    """Let the messages of `run` wait for their time."""
    run.kind, run.extension = TIMER, with_timing(run.extension, timing)

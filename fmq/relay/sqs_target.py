"""A relay into FIFO queues of Amazon SQS, at least once.

SQS keeps no place, so the place is a mark of the directory: a relay that dies behind a batch and
before the mark sends the batch again. Each message has the same deduplication id then, by which
SQS drops it, if it comes within five minutes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    MetadataRetrievalError,
)

from fmq.errors import BadOption
from fmq.relay.envelope import OURS, Envelope, Enveloped, EnvelopeShape
from fmq.relay.mark_place import MarkPlace
from fmq.relay.relay_errors import MessageRefused, RelayError, Unsure
from fmq.relay.target import RelayBatch, RelayPlace

SQS = "sqs://"
FIFO = ".fifo"
ENTRIES, REQUEST_BYTES = 10, 256 << 10  # of one request. A message that is larger is sent alone
GROUP = re.compile("[!-~]{1,128}")
TEXT = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
"""What SQS takes as a body, and as the value of an attribute."""
ABSENT = "NonExistentQueue", "QueueDoesNotExist"
REFUSED = "InvalidParameterValue", "InvalidMessageContents", "BatchRequestTooLong"
LATER = "Throttl", "OverLimit"
SECONDS = 30  # how long an answer may take until the relay is in doubt
NO_ANSWER = (
    *(ConnectionError, HTTPClientError),
    *(CredentialRetrievalError, MetadataRetrievalError),  # the service of a role is away
)


def create_queues(address: str, topics: Iterable[str], prefix: str = "", **settings: str) -> None:
    """Make a FIFO queue for each topic, if it is not there. `settings` are its attributes, such as
    those of high throughput: {"DeduplicationScope": "messageGroup", "FifoThroughputLimit":
    "perMessageGroupId"}.
    """
    link = SqsLink(address)
    try:
        for queue in {link.queue_of(prefix + topic): None for topic in topics}:
            if not link.has(queue):
                link.create(queue, {"FifoQueue": "true", **settings})
    finally:
        link.close()


class SqsTarget:
    """FIFO queues of SQS, for the relay `name` of `engine`."""

    atomic = False

    def __init__(
        self,
        engine: Any,
        address: str,
        name: str = "relay",
        *,
        by_key: bool = False,
        **shape: Unpack[EnvelopeShape],
    ) -> None:
        """`address` is sqs://REGION, where the topic `orders` becomes the queue `orders.fifo`;
        sqs://REGION/PREFIX, which comes before the names of queues; or sqs://REGION/QUEUE.fifo, one
        queue for all topics. With `by_key`, only the order of a key is kept.
        """
        if shape.get("cloudevents"):
            raise BadOption(
                "no CloudEvents for SQS: a message has at most ten attributes there. Nothing was "
                "changed."
            )
        self._link = SqsLink(address)
        self._place = MarkPlace(engine, name)
        self._envelope = Envelope(**shape)
        self._by_key = by_key
        # What SQS has of a batch that is not there as a whole yet.
        self._taken: set[str] = set()

    def claim(self) -> RelayPlace | None:
        """Raise the mark, and return the place that it has."""
        return self._place.claim()

    def deliver(self, batch: RelayBatch) -> None:
        """Send the messages queue by queue, and then keep the place. Messages that SQS took before
        an error are not sent again by this object.
        """
        queues: dict[str, list[SqsEntry]] = {}
        for enveloped in self._envelope.headers(batch):
            entry = SqsEntry(enveloped, by_key=self._by_key)
            if entry.repeat_id not in self._taken:
                queues.setdefault(self._link.queue_of(enveloped.name), []).append(entry)
        for queue in queues:
            if not self._link.has(queue):
                raise RelayError(
                    f"SQS has no queue {queue!r}. Nothing of the batch was sent. "
                    "`fmq relay --create` or create_queues makes queues."
                )
        for queue, entries in queues.items():
            for request in _requests(entries):
                self._send(queue, request)
        self._place.keep(batch.place)
        self._taken.clear()

    def _send(self, queue: str, entries: list[SqsEntry]) -> None:
        """Send the messages of one request. If SQS refuses it, send each alone, to find which."""
        try:
            failed = self._link.send(queue, entries)
        except SqsRefused as error:
            if len(entries) == 1:
                raise MessageRefused(entries[0].message, f"SQS answered {error}") from error
            for each in entries:
                self._send(queue, [each])
            return
        self._taken.update(each.repeat_id for each in entries if each.repeat_id not in failed)
        for entry in entries:
            if entry.repeat_id in failed:
                code, said = failed[entry.repeat_id]
                if code.endswith(REFUSED):
                    raise MessageRefused(entry.message, f"SQS answered {code} {said}")
                raise Unsure(f"SQS did not take {entry.fmq_id}: {code} {said}")

    def status(self) -> RelayPlace | None:
        """Return the place that the mark has."""
        return self._place.status()

    def close(self) -> None:
        """Close the connections."""
        self._link.close()


class SqsEntry:
    """A message, as a request to SQS has it."""

    def __init__(self, enveloped: Enveloped, *, by_key: bool) -> None:
        self.message = message = enveloped.message
        (_, self.fmq_id), *_ = enveloped.headers
        assert message.origin is not None, "it was read"
        # Of ids alone, new messages would be dropped: a topic that was deleted and made again has
        # the same ids, elsewhere in the journal; a restored directory has them at another time.
        where = f"{message.origin.position} {message.origin.time_us}"
        self.repeat_id = _digest(f"{self.fmq_id} {where}")
        by = message.key if by_key else None
        group = f"{message.topic}/{message.queue}" if by is None else by
        body, encoding = _text(message.body)
        # What a relay says has an attribute each, if SQS takes it as one. One more has the rest.
        ours, rest = dict[str, str](), dict[str, str]()
        for name, text in enveloped.headers:
            (ours if name in OURS and TEXT.fullmatch(text) else rest)[name] = text
        if encoding:
            ours["fmq-encoding"] = encoding
        if rest:
            ours["fmq-headers"] = json.dumps(rest)
        self.size = sum(len(name) + len(text.encode()) + 6 for name, text in ours.items())
        self.size += len(body.encode())
        self.asked = {
            "Id": self.repeat_id,
            "MessageBody": body,
            "MessageGroupId": group if GROUP.fullmatch(group) else _digest(group),
            "MessageDeduplicationId": self.repeat_id,
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": text} for name, text in ours.items()
            },
        }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _text(body: bytes) -> tuple[str, str | None]:
    """Return a body as SQS takes it, and how it is encoded, if it is not as it was."""
    if not body:
        return "empty", "empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if TEXT.fullmatch(text):
        return text, None
    return base64.b64encode(body).decode(), "base64"


def _requests(entries: list[SqsEntry]) -> Iterator[list[SqsEntry]]:
    """Yield the messages in the order that they have, as many in each request as SQS takes."""
    request: list[SqsEntry] = []
    size = 0
    for entry in entries:
        if request and (len(request) == ENTRIES or size + entry.size > REQUEST_BYTES):
            yield request
            request, size = [], 0
        request.append(entry)
        size += entry.size
    if request:
        yield request


class SqsLink:
    """A client of SQS in one region, which repeats nothing by itself. Credentials and endpoint are
    those of the environment, as boto3 finds them.
    """

    def __init__(self, address: str) -> None:
        region, _, self._path = address.removeprefix(SQS).partition("/")
        if not region or "/" in self._path:
            raise BadOption(
                f"{address!r}: SQS is at sqs://REGION, sqs://REGION/PREFIX or "
                f"sqs://REGION/QUEUE{FIFO}. Nothing was changed."
            )
        once = {"mode": "standard", "total_max_attempts": 1}
        config = Config(connect_timeout=5, read_timeout=SECONDS, retries=once)
        with _asking():
            self._client: Any = boto3.client("sqs", region_name=region, config=config)
        self._urls: dict[str, str] = {}

    def queue_of(self, topic: str) -> str:
        """Return the name of the queue for the messages of a topic."""
        return self._path if self._path.endswith(FIFO) else f"{self._path}{topic}{FIFO}"

    def has(self, queue: str) -> bool:
        """Return whether a queue is there."""
        if queue not in self._urls:
            try:
                with _asking():
                    self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
            except SqsAbsent:
                return False
        return True

    def create(self, queue: str, attributes: dict[str, str]) -> None:
        with _asking():
            self._client.create_queue(QueueName=queue, Attributes=attributes)

    def send(self, queue: str, entries: list[SqsEntry]) -> dict[str, tuple[str, str]]:
        """Send messages to a queue that is there. Return code and reason for each that SQS did not
        take, by its id. Raises RelayError, and SqsRefused.
        """
        asked = [each.asked for each in entries]
        with _asking():
            answer = self._client.send_message_batch(QueueUrl=self._urls[queue], Entries=asked)
        return {
            each["Id"]: (each["Code"], each.get("Message", "")) for each in answer.get("Failed", ())
        }

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class SqsRefused(RelayError):
    """SQS will never take this request. Nothing of it is there."""


class SqsAbsent(RelayError):
    """SQS has no such queue."""


@contextmanager
def _asking() -> Iterator[None]:
    """Raise what an error of boto3 means: Unsure, SqsAbsent, SqsRefused or RelayError."""
    try:
        yield
    except NO_ANSWER as error:
        raise Unsure(f"SQS gave no answer: {type(error).__name__} {error}") from error
    except ClientError as error:
        code = str(error.response["Error"].get("Code", ""))
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status >= 500 or any(word in code for word in LATER):
            raise Unsure(f"SQS takes no messages now: {error}") from error
        if code.endswith(ABSENT):
            raise SqsAbsent(f"{error}") from error
        if code.endswith(REFUSED) or status == 413:
            raise SqsRefused(f"{error}") from error
        raise RelayError(f"SQS refuses a relay: {error}. Nothing is lost.") from error
    except BotoCoreError as error:
        raise RelayError(f"a relay cannot ask SQS: {error}. Nothing is lost.") from error

"""A relay into NATS JetStream: a batch and its place are one atomic batch of one stream.

The stream `fmq-relay-NAME` has a subject for each queue, such as `orders.0`, and the subject
`fmq-relay-NAME` for the place. Each batch ends with its place, and states the sequence of the place
before it. So a relay that another one has shut out is refused by the server.

Atomic batches came with NATS 2.12, and have at most 1,000 messages. What one transaction has sent
beyond that comes in several of them: each message once and in order, but not at one instant. Each
of these says how far it is inside of the transaction.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar, Unpack
from uuid import uuid4

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsFailed

from fmq.relay.envelope import Envelope, Enveloped, EnvelopeShape
from fmq.relay.loop_thread import LoopThread
from fmq.relay.relay_errors import MessageRefused, RelayError, RelayTakenOver, Unsure
from fmq.relay.source import place_of
from fmq.relay.target import RelayBatch, RelayPlace

T = TypeVar("T")
SECONDS = 10  # how long an answer may take until the relay is in doubt
MESSAGES_MAX = 999  # an atomic batch has at most 1,000 messages, and the last one is the place
NO_STREAM, NO_MESSAGE, WRONG_LAST = 10059, 10037, (10071, 10164)
"""Codes of errors of the server."""
TOKEN = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
HEADER = re.compile(r"(?!nats-)[!-9;-~]+", re.IGNORECASE)
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
Place3 = tuple[str, int, int]


class PlaceAt(NamedTuple):
    """The last place of a relay in its stream."""

    sequence: int
    """Of the message that has it; 0 if there is none."""
    place: RelayPlace | None
    upto: Place3 | None
    """If the batch behind the place has begun: topic, queue and offset of its last message there.
    """


def stream_of(name: str) -> str:
    """Return the stream of the relay `name`, which is also the subject of its place."""
    if not TOKEN.fullmatch(name) or "." in name or "/" in name or "\\" in name:
        raise RelayError(f"{name!r}: a stream of NATS cannot be named after this relay.")
    return f"fmq-relay-{name}"


def create_stream(
    address: str, name: str, topics: Iterable[str], prefix: str = "", **settings: object
) -> None:
    """Make the stream of the relay `name`, or give it the subjects that it lacks. `settings` are
    further ones of the stream, such as num_replicas.
    """
    stream = stream_of(name)
    subjects = {stream, *(f"{_subject(prefix, topic)}.*" for topic in topics)}
    link = _Link(address)
    try:
        config = link.ask("STREAM.INFO", stream).get("config")
        is_new = config is None
        config = config or {"name": stream, "storage": "file"} | settings
        config |= {
            "allow_atomic": True,
            "subjects": sorted({*config.get("subjects", ()), *subjects}),
        }
        made = link.ask("STREAM.CREATE" if is_new else "STREAM.UPDATE", stream, **config)
    finally:
        link.close()
    if "error" in made:
        raise RelayError(f"NATS makes no stream {stream!r}: {made['error']['description']}.")


class NatsTarget:
    """The stream `fmq-relay-NAME` of a NATS server."""

    atomic = True

    def __init__(self, address: str, name: str = "relay", **shape: Unpack[EnvelopeShape]) -> None:
        """`address` is one that nats-py takes, such as nats://host:4222."""
        self._address = address
        self._stream = stream_of(name)
        self._envelope = Envelope(**shape)
        self._link: _Link | None = None
        self._last = PlaceAt(0, None, None)
        self._bytes_max = 0

    def claim(self) -> RelayPlace | None:
        """Write the place once more, if it is still the last one: no older relay can write behind
        it. Return the place.
        """
        self.close()
        self._link = link = _Link(self._address)
        self._check_stream(link)
        while True:
            last = self._read(link)
            said = link.publish(
                self._stream, _text(last.place, last.upto), {EXPECTED: str(last.sequence)}
            )
            if "error" not in said:
                self._last = last._replace(sequence=said["seq"])
                return last.place
            self._check(said, is_claim=True)

    def _check_stream(self, link: _Link) -> None:
        found = link.ask("STREAM.INFO", self._stream)
        if "error" in found:
            self._check(found)
        if not found["config"].get("allow_atomic"):
            raise RelayError(
                f"the stream {self._stream!r} takes no atomic batches: it needs allow_atomic, and "
                "NATS 2.12 or newer. Nothing was copied. `fmq relay --create` sets it."
            )
        most = found["config"].get("max_msg_size", -1)
        self._bytes_max = min(link.max_payload, most) if most > 0 else link.max_payload

    def deliver(self, batch: RelayBatch) -> None:
        """Store the messages and the place in one atomic batch, or in several if there are more
        than 999 messages.
        """
        link, upto = self._link, self._last.upto
        assert link is not None, "it was claimed"
        messages = batch.messages
        if upto is not None:  # an earlier relay has begun this batch
            places = [place_of(each) for each in messages]
            messages = messages[places.index(upto) + 1 :] if upto in places else messages
        of_batch = batch._replace(messages=messages)
        encoded = [self._encoded(each) for each in self._envelope.headers(of_batch)]
        place = self._last.place
        for at in range(0, max(len(encoded), 1), MESSAGES_MAX):
            part = encoded[at : at + MESSAGES_MAX]
            is_last = at + MESSAGES_MAX >= len(encoded)
            now = batch.place if is_last else place
            begun = None if is_last else place_of(messages[at + MESSAGES_MAX - 1])
            expected = {EXPECTED: str(self._last.sequence)}
            said = link.publish_batch([*part, (self._stream, _text(now, begun), expected)])
            self._check(said)
            self._last = PlaceAt(said["seq"], now, begun)

    def _encoded(self, enveloped: Enveloped) -> tuple[str, bytes, dict[str, str]]:
        message, subject, said = enveloped
        headers = dict(said)
        for name, value in headers.items():
            if not HEADER.fullmatch(name) or value != value.strip() or set("\r\n\0") & {*value}:
                raise MessageRefused(message, f"NATS has no header like {name!r}: {value!r:.80}")
        size = len(message.body) + 12
        size += sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        # The numbers of the batch are further headers of each message.
        if size + 120 > self._bytes_max:
            reason = f"it has {size} bytes with its headers, and the server takes {self._bytes_max}"
            raise MessageRefused(message, reason)
        return f"{_subject('', subject)}.{message.queue}", message.body, headers

    def _check(self, said: dict[str, Any], *, is_claim: bool = False) -> None:
        """Raise an error if the server says one."""
        error = said.get("error")
        if error is None:
            return
        code, text = error.get("err_code"), error.get("description")
        if code in WRONG_LAST:
            if is_claim:
                return  # another relay has claimed the target just now: read again
            raise RelayTakenOver(
                f"another relay of this name has claimed {self._stream!r}: {text}. Nothing of the "
                "last batch of this one is there."
            )
        if code == NO_STREAM:
            raise RelayError(
                f"there is no stream {self._stream!r} in NATS. Nothing was copied. `fmq relay "
                "--create` or create_stream makes it."
            )
        raise Unsure(f"NATS refuses a write: {text}")

    def _read(self, link: _Link) -> PlaceAt:
        found = link.ask("STREAM.MSG.GET", self._stream, last_by_subj=self._stream)
        if found.get("error", {}).get("err_code") == NO_MESSAGE:
            return PlaceAt(0, None, None)
        self._check(found)
        message = found["message"]
        place, upto = json.loads(b64decode(message["data"]))
        return PlaceAt(
            message["seq"],
            None if place is None else RelayPlace.of_text(place),
            None if upto is None else (upto[0], upto[1], upto[2]),
        )

    def status(self) -> RelayPlace | None:
        """Return the place that the stream has now."""
        link = _Link(self._address)
        try:
            return self._read(link).place
        finally:
            link.close()

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _text(place: RelayPlace | None, upto: Place3 | None) -> bytes:
    return json.dumps([None if place is None else place.text(), upto]).encode()


def _subject(prefix: str, topic: str) -> str:
    subject = prefix + topic
    if not TOKEN.fullmatch(subject):
        raise RelayError(f"{subject!r}: NATS has no such subject, so the topic cannot be copied.")
    return subject


class _Link:
    """A connection."""

    def __init__(self, address: str) -> None:
        self._loop = LoopThread("fmq-nats")
        try:
            self._client: Client = self._run(self._connected(address))
        except BaseException:
            self._loop.end()
            raise
        self.max_payload = self._client.max_payload

    async def _connected(self, address: str) -> Client:
        async def ignore(_: Exception) -> None:
            """Each call raises its own errors."""

        once = {"allow_reconnect": False, "max_reconnect_attempts": 1}
        return await nats.connect(address, connect_timeout=SECONDS, error_cb=ignore, **once)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        with _explained():
            return self._loop.run(call, 2 * SECONDS)

    def ask(self, subject: str, stream: str, **what: object) -> dict[str, Any]:
        """Ask the server about a stream, and return its answer."""
        return self.publish(f"$JS.API.{subject}.{stream}", json.dumps(what).encode(), {})

    def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """Publish a message, and return the server's answer."""
        return self._run(self._asked(subject, body, headers))

    def publish_batch(self, messages: list[tuple[str, bytes, dict[str, str]]]) -> dict[str, Any]:
        """Publish an atomic batch. Return the server's answer to its last message."""
        return self._run(self._published(messages))

    async def _published(self, messages: list[tuple[str, bytes, dict[str, str]]]) -> dict[str, Any]:
        *first, last = messages
        batch = uuid4().hex
        for number, (subject, body, headers) in enumerate(first, 1):
            numbered = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number), **headers}
            await self._client.publish(subject, body, headers=numbered)
        subject, body, headers = last
        end = {"Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
        return await self._asked(subject, body, {"Nats-Batch-Id": batch, **end, **headers})

    async def _asked(self, subject: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        answer = await self._client.request(subject, body, timeout=SECONDS, headers=headers or None)
        said: dict[str, Any] = json.loads(answer.data)
        return said

    def close(self) -> None:
        """Close the connection and end the thread."""
        with suppress(Unsure):
            self._run(self._client.close())
        self._loop.end()


@contextmanager
def _explained() -> Iterator[None]:
    """Raise errors of the client as those of a relay."""
    try:
        yield
    except (NatsFailed, OSError, TimeoutError, EOFError, json.JSONDecodeError) as error:
        what = f"{type(error).__name__} {error}".strip()
        raise Unsure(f"NATS gave no answer: {what}") from error

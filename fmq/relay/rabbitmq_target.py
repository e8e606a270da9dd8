"""A relay into a stream of RabbitMQ: a batch and its place are one entry of the stream.

The stream `fmq-relay-NAME` has the messages of all topics. An entry of several messages is stored
as a whole or not at all, and the last one of them has the place, and no body.

RabbitMQ drops an entry whose publishing id is not above the last one of the same publisher. So a
claim writes an entry with an id that no older relay will ever reach: from then on what these write
is dropped. RabbitMQ does not tell them, so each relay asks after each entry whether its id is the
last one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from struct import pack
from typing import Any, NamedTuple, TypeVar, Unpack
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from rstream import amqp_decoder, exceptions, schema
from rstream.client import Client
from rstream.constants import OffsetType

from fmq.errors import BadOption
from fmq.relay.envelope import Envelope, Enveloped, EnvelopeShape
from fmq.relay.loop_thread import LoopThread
from fmq.relay.relay_errors import MessageRefused, RelayError, RelayTakenOver, Unsure
from fmq.relay.source import place_of
from fmq.relay.target import RelayBatch, RelayPlace

T = TypeVar("T")
RABBITMQ = "rabbitmq-stream://"
SECONDS = 10  # how long an answer may take until the relay is in doubt
PLACE, FENCE = "fmq-place", "fmq-fence"
"""Properties: of the last message of an entry, and of what a claim writes first."""
PLACE_BYTES = 4_000  # what a message with a place has at most
UNCOMPRESSED = 0x80  # the kind of an entry of several messages
MESSAGES_MAX = 65_535  # of an entry
FRAME_OVERHEAD = 64
CLAIM_STEP = 1 << 32  # so many entries a relay may write until it has to claim again
PUBLISHER, READER = 1, 1
FAILURES = exceptions.ServerError, exceptions.ClientError, OSError, TimeoutError
Place3 = tuple[str, int, int]


class StreamPlace(NamedTuple):
    """How far a stream is."""

    place: RelayPlace | None
    upto: Place3 | None
    """If the batch behind the place has begun: topic, queue and offset of its last message there.
    """


NOWHERE = StreamPlace(None, None)


def stream_of(name: str) -> str:
    """Return the stream of the relay `name`, which is also the name of its publisher."""
    return f"fmq-relay-{name}"


def create_stream(address: str, name: str, **settings: object) -> None:
    """Make the stream of the relay `name`, if it is not there. `settings` are those of RabbitMQ,
    such as initial-cluster-size.
    """
    link = StreamLink(address, stream_of(name), is_there=False)
    try:
        link.create(settings)
    finally:
        link.close()


class RabbitStreamTarget:
    """The stream `fmq-relay-NAME` of a RabbitMQ server. The subject of a message is the name of its
    topic, a dot and the queue.
    """

    atomic = True

    def __init__(self, address: str, name: str = "relay", **shape: Unpack[EnvelopeShape]) -> None:
        """`address` is rabbitmq-stream://USER:PASSWORD@HOST:PORT/VHOST of the node that leads the
        stream.
        """
        self._address = address
        self._stream = stream_of(name)
        self._envelope = Envelope(**shape)
        self._link: StreamLink | None = None
        self._last = NOWHERE
        self._id = 0

    def claim(self) -> RelayPlace | None:
        """Write an entry that no older relay can write behind, and only then look for the place.
        Write the place again, so that the next claim finds it soon.
        """
        self.close()
        self._link = link = StreamLink(self._address, self._stream)
        link.declare()
        while True:
            fence = uuid4().hex
            self._id = self._fence_id(link)
            link.publish(self._id, [_noted(FENCE, fence)])
            # Of two claims with one id the other one may be there.
            if link.sequence() == self._id and link.last_fence() == fence:
                self._last = link.place()
                self._write([_noted(PLACE, _text(self._last))])
                return self._last.place

    def _fence_id(self, link: StreamLink) -> int:
        """Return an id that no relay that has claimed the stream before reaches."""
        return (link.sequence() // CLAIM_STEP + 1) * CLAIM_STEP

    def _write(self, messages: list[bytes]) -> None:
        """Write an entry. Raises RelayTakenOver if it was dropped because another relay has claimed
        the stream.
        """
        link = self._link
        assert link is not None, "it was claimed"
        self._id += 1
        link.publish(self._id, messages)
        last = link.sequence()
        if last > self._id:
            raise RelayTakenOver(
                f"another relay of this name has claimed {self._stream!r}. Nothing of the last "
                "batch of this one is there."
            )
        if last < self._id:
            raise Unsure("RabbitMQ has lost what it has confirmed")

    def deliver(self, batch: RelayBatch) -> None:
        """Store the messages and the place as one entry; as several if they do not fit into a frame
        of the protocol.
        """
        link, (place, upto) = self._link, self._last
        assert link is not None, "it was claimed"
        messages = batch.messages
        if upto is not None:  # an earlier relay has begun this batch
            places = [place_of(each) for each in messages]
            messages = messages[places.index(upto) + 1 :] if upto in places else messages
        room = link.frame_max - FRAME_OVERHEAD
        part: list[bytes] = []
        size, begun = 0, None
        of_batch = batch._replace(messages=messages)
        for enveloped in self._envelope.headers(of_batch, attributes="cloudEvents_"):
            message, encoded = enveloped.message, _encoded(enveloped)
            # The last message of a part may also have the place.
            needed = len(encoded) + 4
            if needed + PLACE_BYTES > room:
                reason = f"it has {len(encoded)} bytes, and a frame of RabbitMQ {link.frame_max}"
                raise MessageRefused(message, reason)
            if size + needed + PLACE_BYTES > room or len(part) == MESSAGES_MAX - 1:
                self._store(part, StreamPlace(place, begun))
                part, size = [], 0
            part.append(encoded)
            size += needed
            begun = place_of(message)
        self._store(part, StreamPlace(batch.place, None))

    def _store(self, part: list[bytes], place: StreamPlace) -> None:
        self._write([*part, _noted(PLACE, _text(place))])
        self._last = place

    def status(self) -> RelayPlace | None:
        """Return the place that the stream has now."""
        link = StreamLink(self._address, self._stream)
        try:
            return link.place().place if link.sequence() else None
        finally:
            link.close()

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _encoded(enveloped: Enveloped) -> bytes:
    message, name, headers = enveloped
    (_, fmq_id), *_ = headers
    return amqp_message(message.body, dict(headers), fmq_id, f"{name}.{message.queue}")


def _noted(name: str, text: str) -> bytes:
    """Return a message without a body, which readers pass over."""
    return amqp_message(b"", {name: text})


def _text(place: StreamPlace) -> str:
    return json.dumps([None if place.place is None else place.place.text(), place.upto])


def _of_text(text: str) -> StreamPlace:
    place, upto = json.loads(text)
    return StreamPlace(
        None if place is None else RelayPlace.of_text(place),
        None if upto is None else (upto[0], upto[1], upto[2]),
    )


def amqp_message(
    body: bytes, properties: dict[str, str], message_id: str = "", subject: str = ""
) -> bytes:
    """Return a message of AMQP 1.0. By the client's own classes it takes ten times as long."""
    parts = [
        b"\x00\x53\x74",
        _compound(b"\xd1", [_text32(each) for each in chain(*properties.items())]),
    ]
    if message_id:
        named = [_text32(message_id), b"\x40", b"\x40", _text32(subject)]
        parts = [b"\x00\x53\x73", _compound(b"\xd0", named), *parts]
    return b"".join([*parts, b"\x00\x53\x75\xb0", pack(">I", len(body)), body])


def _text32(text: str) -> bytes:
    data = text.encode()
    return b"\xb1" + pack(">I", len(data)) + data


def _compound(kind: bytes, items: list[bytes]) -> bytes:
    """Return a list or a map of items."""
    data = b"".join(items)
    return kind + pack(">II", len(data) + 4, len(items)) + data


class StreamChunk(NamedTuple):
    """What a stream stores at once."""

    first: int
    """The offset of the first message."""
    messages: list[bytes]


class StreamClient(Client):
    """A client that closes its connection also if that is broken."""

    async def close(self) -> None:
        connection = self._conn
        await super().close()
        if connection is not None:
            await connection.close()


class StreamLink:
    """A connection, to the leader of a stream that is there."""

    def __init__(self, address: str, stream: str, *, is_there: bool = True) -> None:
        parts = urlsplit(address)
        if parts.scheme != RABBITMQ.removesuffix("://") or not parts.hostname:
            raise BadOption(f"{address!r}: a stream of RabbitMQ is at {RABBITMQ}HOST:PORT.")
        self._answers: asyncio.Queue[int] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._client: StreamClient
        self._stream = stream
        self._who = (
            unquote(parts.path.removeprefix("/")) or "/",
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
        )
        self._loop = LoopThread("fmq-rabbitmq")
        try:
            open_it = self._open_at_leader if is_there else self._open
            self._run(open_it(parts.hostname, parts.port or 5552))
        except BaseException:
            self.close()
            raise

    async def _open(self, host: str, port: int) -> None:
        self._client = client = StreamClient(
            host,
            port,
            frame_max=1 << 20,
            heartbeat=60,
            connection_closed_handler=lambda _: self._gone.set(),
        )
        await client.start()
        client.add_stream("")  # or it does not tell when the connection is closed
        await client.authenticate(*self._who)
        client.add_handler(schema.PublishConfirm, self._confirmed, "confirm")
        client.add_handler(schema.PublishError, self._failed, "error")

    async def _open_at_leader(self, host: str, port: int) -> None:
        """Connect to the server that leads the stream: only that one takes messages for it."""
        await self._open(host, port)
        ask = schema.Metadata(self._client._corr_id_seq.next(), [self._stream])
        said = await self._client.sync_request(ask, schema.MetadataResponse)
        (found,) = said.metadata
        if found.response_code == exceptions.StreamDoesNotExist.code:
            raise exceptions.StreamDoesNotExist
        leaders = [each for each in said.brokers if each.reference == found.leader_ref]
        if not leaders:
            raise OSError("no server leads the stream now")
        (leader,) = leaders
        if (leader.host, leader.port) != (host, port):
            await self._client.close()
            self._gone.clear()
            await self._open(leader.host, leader.port)

    def _confirmed(self, frame: schema.PublishConfirm) -> None:
        for number in frame.publishing_ids:
            self._answers.put_nowait(number)

    def _failed(self, frame: schema.PublishError) -> None:
        for each in frame.errors:
            self._answers.put_nowait(-each.response_code)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        with _explained():
            return self._loop.run(self._unless_gone(call), SECONDS)

    async def _unless_gone(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what `call` returns. Raises OSError once the server has closed the connection:
        the client would wait for its answer.
        """
        asked, gone = asyncio.ensure_future(call), asyncio.ensure_future(self._gone.wait())
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not asked.done():
            asked.cancel()
            raise OSError("the connection is closed")
        return asked.result()

    @property
    def frame_max(self) -> int:
        return int(self._client.frame_max)

    def create(self, settings: dict[str, object]) -> None:
        """Make the stream, unless it is there."""
        try:
            self._loop.run(self._client.create_stream(self._stream, settings), SECONDS)
        except exceptions.StreamAlreadyExists:
            pass
        except FAILURES as error:
            what = f"{type(error).__name__} {error}".strip()
            raise RelayError(f"RabbitMQ makes no stream {self._stream!r}: {what}") from error

    def declare(self) -> None:
        """Declare the publisher, which has the name of its stream."""
        self._run(self._client.declare_publisher(self._stream, self._stream, PUBLISHER))

    def publish(self, number: int, messages: list[bytes]) -> None:
        """Store messages as one entry. It is confirmed also if it is dropped."""
        data = b"".join([pack(">I", len(each)) + each for each in messages])
        size = len(data)
        said = PUBLISHER, 1, number, UNCOMPRESSED, len(messages), size, size, data
        self._run(self._published(number, schema.PublishSubBatching(*said)))

    async def _published(self, number: int, entry: schema.PublishSubBatching) -> None:
        await self._client.send_frame(entry)
        answer = await self._answers.get()
        if answer != number:
            raise Unsure(f"RabbitMQ does not confirm an entry: {answer}")

    def sequence(self) -> int:
        """Return the last publishing id of the relay; 0 if it has written nothing."""
        return self._run(self._sequence())

    async def _sequence(self) -> int:
        client = self._client
        number = client._corr_id_seq.next()
        ask = schema.QueryPublisherSequence(number, self._stream, self._stream)
        said = await client.sync_request(ask, schema.QueryPublisherSequenceResponse)
        return int(said.sequence)

    def last_fence(self) -> str | None:
        """Return what the last claim has written."""
        return self._run(self._found(FENCE))

    def place(self) -> StreamPlace:
        """Return the last place of the stream."""
        text = self._run(self._found(PLACE))
        return NOWHERE if text is None else _of_text(text)

    async def _found(self, name: str) -> str | None:
        """Return the last value of the property `name`. A chunk is read as a whole, from its last
        message on, and then the one before it.
        """
        chunk = await self._chunk(schema.OffsetSpec(OffsetType.LAST))
        while True:
            for data in reversed(chunk.messages):
                text = _property(data, name)
                if text is not None:
                    return text
            if not chunk.first:
                return None
            before = chunk.first - 1
            where = schema.OffsetSpec.from_params(OffsetType.OFFSET, before)
            chunk = await self._chunk(where)
            if chunk.first > before:
                return None  # retention has dropped it

    async def _chunk(self, where: schema.OffsetSpec) -> StreamChunk:
        client, found = self._client, asyncio.Queue[StreamChunk]()

        async def take(frame: schema.Deliver) -> None:
            found.put_nowait(StreamChunk(frame.chunk_first_offset, frame.get_messages()))

        client.add_handler(schema.Deliver, take, str(READER))
        await client.run_queue_listener_task(READER, take)
        try:
            await client.subscribe(self._stream, READER, where, 1)
            chunk = await found.get()
            await client.unsubscribe(READER)
        finally:
            await client.stop_queue_listener_task(READER)
            client.remove_handler(schema.Deliver, str(READER))
        return chunk

    def close(self) -> None:
        """Close the connection, and end its thread."""
        with suppress(Exception):
            self._loop.run(self._client.close(), SECONDS)
        self._loop.end()


def _property(data: bytes, name: str) -> str | None:
    found = (amqp_decoder(data).application_properties or {}).get(name.encode())
    return None if found is None else str(found.decode() if isinstance(found, bytes) else found)


@contextmanager
def _explained() -> Iterator[None]:
    """Raise errors of the client as those of a relay."""
    try:
        yield
    except exceptions.StreamDoesNotExist as error:
        raise RelayError(
            "there is no stream of this relay in RabbitMQ. Nothing was copied. `fmq relay "
            "--create` or create_stream makes it."
        ) from error
    except (exceptions.AuthenticationFailure, exceptions.VirtualHostAccessFailure) as error:
        raise RelayError(f"RabbitMQ refuses a relay: {type(error).__name__}.") from error
    except FAILURES as error:
        what = f"{type(error).__name__} {error}".strip()
        raise Unsure(f"RabbitMQ gave no answer: {what}") from error

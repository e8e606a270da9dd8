"""A relay into a cluster of RocketMQ 5, through its proxy, at least once.

RocketMQ keeps no place that could be stored with a batch, so the place is a mark of the directory.
A relay that dies behind a batch and before the mark sends the batch again: each message has its
`fmq-id` as a property, and a message id that is made of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any, Unpack
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import grpc

import fmq
from fmq.relay import MessageRefused, RelayBatch, RelayError, RelayPlace, Unsure
from fmq.relay.envelope import Envelope, Enveloped, EnvelopeShape
from fmq.relay.mark_place import MarkPlace
from fmq.relay.target import fmq_id
from fmq_rocketmq import protocol
from fmq_rocketmq.access import authorization
from fmq_rocketmq.messages import OWN, outgoing
from fmq_rocketmq.names import resource_of
from fmq_rocketmq.protocol import Code, MessageType, message

SECONDS = 30.0  # how long an answer may take until the relay is in doubt
MESSAGES_MAX = 32  # of one request, which RocketMQ stores together
BYTES_MAX = 1 << 20
PLAIN, WITH_TLS = "rocketmq", "rocketmqs"
REFUSED = {
    Code.ILLEGAL_MESSAGE_TAG,
    Code.ILLEGAL_MESSAGE_KEY,
    Code.ILLEGAL_MESSAGE_GROUP,
    Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
    Code.MESSAGE_BODY_TOO_LARGE,
    Code.MESSAGE_BODY_EMPTY,
    Code.MESSAGE_PROPERTIES_TOO_LARGE,
}
ENDS = {
    Code.TOPIC_NOT_FOUND: "make the topic there",
    Code.ILLEGAL_TOPIC: "no topic there can have this name",
    Code.UNAUTHORIZED: "give its key as rocketmq://KEY:SECRET@HOST:PORT",
    Code.FORBIDDEN: "the key may not send to this topic",
    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: "a FIFO topic is named in `fifo`, others are NORMAL",
}

Asked = message("SendMessageRequest")
Sent = message("SendMessageResponse")


class RocketMQTarget:
    """The topics of a RocketMQ, for the relay `name` of `engine`."""

    atomic = False

    def __init__(
        self,
        engine: Any,
        address: str,
        name: str = "relay",
        *,
        fifo: Collection[str] = (),
        **shape: Unpack[EnvelopeShape],
    ) -> None:
        """`address` is rocketmq://HOST:PORT of a proxy, or rocketmqs:// with TLS, with KEY:SECRET@
        before the host if it asks for an access key. The topics in `fifo` have the type FIFO there:
        their messages have their key as message group, or their queue if they have none.
        """
        split = urlsplit(address)
        if split.scheme not in (PLAIN, WITH_TLS) or not split.hostname or not split.port:
            shown = f"{split.scheme}://{split.netloc.rpartition('@')[2]}"
            raise fmq.BadOption(f"{shown!r}: is rocketmq://HOST:PORT. Nothing was changed.")
        self._where = f"{split.hostname}:{split.port}"
        self._has_tls = split.scheme == WITH_TLS
        self._key = unquote(split.username or ""), unquote(split.password or "")
        self._envelope, self._fifo = Envelope(**shape), frozenset(fifo)
        self._place = MarkPlace(engine, name)
        self._client = f"fmq-relay-{uuid4().hex}"
        self._channel: Any = None

    def claim(self) -> RelayPlace | None:
        """Connect, raise the mark, and return the place that it has."""
        self.close()
        if self._has_tls:
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.secure_channel(self._where, credentials)
        else:
            self._channel = grpc.insecure_channel(self._where)
        return self._place.claim()

    def deliver(self, batch: RelayBatch) -> None:
        """Send the messages, in order, and keep the place."""
        for part in self._parts(self._envelope.headers(batch)):
            self._send(part, batch.place.store)
        self._place.keep(batch.place)

    def _parts(self, messages: Iterator[Enveloped]) -> Iterator[list[Enveloped]]:
        """Yield neighbours of one topic that go into one request."""
        for _, each in groupby(messages, lambda one: one.name):
            part: list[Enveloped] = []
            size = 0
            for one in each:
                size += len(one.message.body)
                alone = one.message.topic in self._fifo
                if part and (len(part) == MESSAGES_MAX or size > BYTES_MAX or alone):
                    yield part
                    part, size = [], len(one.message.body)
                part.append(one)
            yield part

    def _send(self, part: list[Enveloped], store: str) -> None:
        status = self._ask([self._encoded(each, store) for each in part])
        if status.code == Code.OK:
            return
        said, first = f"{status.code} {status.message}", part[0]
        if status.code in ENDS:
            raise RelayError(
                f"RocketMQ takes nothing for {first.name}: {said}: {ENDS[status.code]}. Other "
                "messages of the last batch may be there."
            )
        if status.code not in REFUSED:
            raise Unsure(f"RocketMQ does not take {fmq_id(first.message, store)} now: {said}")
        if len(part) == 1:
            raise MessageRefused(first.message, said)
        for each in part:  # find the one that is meant
            self._send([each], store)

    def _ask(self, messages: list[Any]) -> Any:
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        said = [
            ("x-mq-client-id", self._client),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.0.0"),
            ("x-mq-protocol", "v2"),
            ("x-mq-date-time", date),
        ]
        if self._key[0]:
            said.append(("authorization", authorization(*self._key, date)))
        call = self._channel.unary_unary(f"/{protocol.SERVICE}/SendMessage")
        data = Asked(messages=messages).SerializeToString()
        try:
            answer = Sent.FromString(call(data, metadata=said, timeout=SECONDS))
        except grpc.RpcError as error:
            raise Unsure(f"RocketMQ gave no answer: {error}") from error
        bad = [each.status for each in answer.entries if each.status.code != Code.OK]
        return bad[0] if bad and answer.status.code == Code.OK else answer.status

    def _encoded(self, enveloped: Enveloped, store: str) -> Any:
        one, name, headers = enveloped
        made = outgoing(one)
        made.topic.CopyFrom(resource_of(name))
        made.user_properties.clear()
        made.user_properties.update({k: v for k, v in headers if not k.startswith(OWN)})
        said = made.system_properties
        said.ClearField("store_timestamp")
        said.ClearField("store_host")
        # As its clients make them: the version 01, and 16 bytes.
        digest = blake2b(fmq_id(one, store).encode(), digest_size=16).hexdigest()
        said.message_id = f"01{digest}".upper()
        said.message_type = MessageType.NORMAL
        if one.topic in self._fifo:
            said.message_type = MessageType.FIFO
            said.message_group = one.key or f"queue-{one.queue}"
        else:
            said.ClearField("message_group")
        keys = [key for key in said.keys if key and not any(each.isspace() for each in key)]
        del said.keys[:]
        said.keys.extend(keys)
        return made

    def status(self) -> RelayPlace | None:
        """Return the place that the mark has."""
        return self._place.status()

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

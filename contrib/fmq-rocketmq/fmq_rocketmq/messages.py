"""A message of RocketMQ as one of fmq, and back.

    RocketMQ                        fmq
    body                            body
    tag                             tag
    message_id                      message_id: a send that a client repeats is stored once
    message_group                   key: the order of a FIFO group is the order of a key
    keys                            key, the first one, if there is no message group
    user properties                 headers, each under its own name
    the rest                        headers whose names begin with "rocketmq."

Filters in SQL see the headers, so they see the user properties.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import fmq
from fmq_rocketmq.names import resource_of
from fmq_rocketmq.protocol import Code, DigestType, Encoding, Message, MessageType
from fmq_rocketmq.refusals import Refused

OWN = "rocketmq."
KEYS, GROUP, BORN_AT, BORN_HOST, TRACE, ENCODING, KIND = (
    OWN + each for each in ("keys", "group", "born_at", "born_host", "trace", "encoding", "type")
)
PROPERTIES_BYTES_MAX = 32 * 1024
PROPERTIES_MAX = 128
MESSAGE_ID_CHARACTERS_MAX = 200

CONFLICTS = {
    # Which properties a message of a type may not have.
    MessageType.NORMAL: ("message_group", "delivery_timestamp"),
    MessageType.FIFO: ("delivery_timestamp",),
    MessageType.DELAY: ("message_group",),
    MessageType.TRANSACTION: ("message_group", "delivery_timestamp"),
}
NEEDS = {MessageType.FIFO: "message_group", MessageType.DELAY: "delivery_timestamp"}
SERVED_TYPES = tuple(CONFLICTS)


class Incoming(NamedTuple):
    """A message that a client sends, as the arguments that `send` of fmq takes."""

    topic: str
    body: bytes
    options: dict[str, Any]
    message_id: str
    kind: int
    deliver_at: datetime | None
    check_after: float | None


def incoming(topic: str, message: Any) -> Incoming:
    """Return what a client sends to `topic`, once all of it is checked. Raises Refused."""
    said = message.system_properties
    kind = said.message_type or MessageType.NORMAL
    _check_type(kind, said)
    _check_body(message.body, said.body_digest)
    keys = [*said.keys]
    if any(not key or key.isspace() or " " in key for key in keys):
        raise Refused(Code.ILLEGAL_MESSAGE_KEY, "a key is empty or has a blank. Nothing was sent.")
    if not 1 <= len(said.message_id) <= MESSAGE_ID_CHARACTERS_MAX or not _is_plain(said.message_id):
        raise Refused(
            Code.ILLEGAL_MESSAGE_ID,
            f"the message id has 1 to {MESSAGE_ID_CHARACTERS_MAX} printable characters of ASCII. "
            "Nothing was sent.",
        )
    options = {
        "key": said.message_group or (keys[0] if keys else None),
        "tag": said.tag or None,
        "headers": _headers(message.user_properties, said, kind, keys) or None,
        "message_id": said.message_id,
    }
    after = None
    if said.HasField("orphaned_transaction_recovery_duration"):
        after = _seconds(said.orphaned_transaction_recovery_duration) or None
    at = None
    if kind == MessageType.DELAY:
        at = _time_of(said.delivery_timestamp)
    return Incoming(topic, message.body, options, said.message_id, kind, at, after)


def _check_type(kind: int, said: Any) -> None:
    if kind not in CONFLICTS:
        known = ", ".join(each.name for each in SERVED_TYPES)
        raise Refused(
            Code.UNSUPPORTED,
            f"messages of the type {kind} are not served, only {known}. Nothing was sent.",
        )
    needed = NEEDS.get(kind)
    wrong = [each for each in CONFLICTS[kind] if said.HasField(each)]
    if wrong or (needed and not said.HasField(needed)):
        what = f"has {wrong[0]}" if wrong else f"has no {needed}"
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of the type {MessageType(kind).name} {what}. Nothing was sent.",
        )


def _check_body(body: bytes, digest: Any) -> None:
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the body is empty. Nothing was sent.")
    if digest.type and digest.checksum:
        made = _DIGESTS.get(digest.type)
        # Clients write a CRC with or without zeros in front.
        if made is None or made(body).lstrip("0") != digest.checksum.upper().lstrip("0"):
            raise Refused(
                Code.MESSAGE_CORRUPTED, "the body is not what its digest says. Nothing was sent."
            )


def _headers(
    properties: Mapping[str, str], said: Any, kind: int, keys: list[str]
) -> dict[str, str]:
    """Return the user properties, and what only RocketMQ knows."""
    for name in properties:
        if not name or name.startswith(OWN):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {name[:40]!r}: a name is not empty, and names that begin with "
                f"{OWN!r} are the server's. Nothing was sent.",
            )
    size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    if len(properties) > PROPERTIES_MAX or size > PROPERTIES_BYTES_MAX:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(properties):,} properties of {size:,} bytes, and the limits are "
            f"{PROPERTIES_MAX:,} and {PROPERTIES_BYTES_MAX:,}. Nothing was sent.",
        )
    own = {
        KEYS: " ".join(keys),
        GROUP: said.message_group,
        BORN_AT: str(said.born_timestamp.seconds * 1000 + said.born_timestamp.nanos // 1_000_000)
        if said.HasField("born_timestamp")
        else "",
        BORN_HOST: said.born_host,
        TRACE: said.trace_context,
        ENCODING: Encoding.GZIP.name if said.body_encoding == Encoding.GZIP else "",
        KIND: "" if kind == MessageType.NORMAL else MessageType(kind).name,
    }
    return dict(properties) | {name: value for name, value in own.items() if value}


def outgoing(message: fmq.Message | fmq.Delivery, **delivered: Any) -> Any:
    """Return a message of fmq as a client gets it. `delivered` are further system properties."""
    headers = dict(message.headers or {})
    own = {name: headers.pop(name) for name in [*headers] if name.startswith(OWN)}
    body = bytes(message.body)
    topic = message.topic or ""
    made = Message(topic=resource_of(topic), user_properties=headers, body=body)
    said = made.system_properties
    # A program of fmq may send without an id. Its place is as good a name.
    place = f"{topic}/{message.queue}/{message.offset}"
    said.message_id = message.message_id or place
    # Any program may have written these headers, so what they say need not be anything known.
    said.message_type = MessageType.__members__.get(own.get(KIND, ""), MessageType.NORMAL)
    said.body_encoding = Encoding.__members__.get(own.get(ENCODING, ""), Encoding.IDENTITY)
    said.body_digest.type, said.body_digest.checksum = DigestType.MD5, _md5(body)
    said.born_host, said.store_host = own.get(BORN_HOST, ""), "fmq"
    said.keys.extend(own[KEYS].split() if KEYS in own else [message.key] if message.key else [])
    if message.tag:
        said.tag = message.tag
    if GROUP in own:
        said.message_group = own[GROUP]
    if TRACE in own:
        said.trace_context = own[TRACE]
    if message.time is not None:
        said.store_timestamp.FromDatetime(message.time)
        said.born_timestamp.FromDatetime(message.time)
    if BORN_AT in own:
        with suppress(ValueError, OverflowError):
            said.born_timestamp.FromMilliseconds(int(own[BORN_AT]))
    for name, value in delivered.items():
        setattr(said, name, value)
    return made


def _seconds(duration: Any) -> float:
    return float(duration.ToNanoseconds() / 1e9)


def _time_of(timestamp: Any) -> datetime:
    try:
        at: datetime = timestamp.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME, "the delivery time is no date. Nothing was sent."
        ) from None
    return at


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


_DIGESTS: dict[int, Callable[[bytes], str]] = {
    DigestType.CRC32: lambda body: f"{zlib.crc32(body):08X}",
    DigestType.MD5: _md5,
    DigestType.SHA1: lambda body: hashlib.sha1(body, usedforsecurity=False).hexdigest().upper(),
}

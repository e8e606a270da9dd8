"""Messages on the command line: how they are shown, and what they are sent from."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import fmq
from fmq.cli.output import Column, Row
from fmq.codecs.body_fields import NOTHING, as_text, is_json, value_in
from fmq.findings.text import exact, laid_out, plain, preview, printable, size

# Fields that `fmq read` prints. A copy of the message gets its own.
OF_THE_OLD_ONE = {"what", "offset", "position", "time", "producer", "tx_id", "value"}
FIELDS_SHOWN_MAX = 8  # more columns than these are harder to read than a body


class Sent(NamedTuple):
    """A message to send, with its topic, its queue and the time of its delivery."""

    topic: str | None
    queue: int | None
    deliver_at: datetime | None
    message: fmq.Message


def row_of(message: fmq.Message, codec: fmq.TopicCodec | None = None) -> Row:
    """Return a message as a row: its place first and its body last, then what `codec`, that of its
    topic, shows of the body.
    """
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "position": message.position,
        "time": message.time,
        "tx_id": message.tx_id,
        "producer": message.producer,
        "key": message.key,
        "tag": message.tag,
        "headers": message.headers,
        "message_id": message.message_id,
        "priority": message.priority,
        "expires_at": message.expires_at,
    }
    row = {name: value for name, value in row.items() if value is not None}
    return row | body_row(message.body) | value_row(message.body, codec)


def body_row(body: bytes) -> dict[str, str]:
    """Return the field of a body: text as it is, other bytes in base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def value_row(body: bytes, codec: fmq.TopicCodec | None) -> dict[str, Any]:
    """Return the field with the value of a body, if `codec` says that it is JSON, and it is."""
    value = value_in(body) if is_json(codec) else NOTHING
    return {} if value is NOTHING else {"value": value}


def columns_of(codec: fmq.TopicCodec | None) -> Sequence[Column]:
    """Return the columns of messages of a topic: a column for each field that its codec knows, if
    they are few, and the body of a message that they do not show in full.
    """
    fields = codec.fields if codec is not None and is_json(codec) else None
    if not fields or len(fields) > FIELDS_SHOWN_MAX:
        return MESSAGES

    def rest(row: Row) -> str:
        value = row.get("value")
        is_shown = isinstance(value, dict) and value.keys() <= fields.keys()
        return "" if is_shown else preview(body_of(row))

    return (
        *MESSAGES[:-1],
        *(Column("", f".{printable(name)}", of_row=_field(name), folds=True) for name in fields),
        Column("", "body", of_row=rest, folds=True),
    )


def _field(name: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        value = row.get("value")
        found = as_text(value.get(name)) if isinstance(value, dict) else None
        return "" if found is None else printable(found)

    return text


def receipt_row(receipt: fmq.Receipt) -> Row:
    """Return a receipt as a row. For messages that wait, the row says until when."""
    row = receipt._asdict()
    return row | {"due": receipt.due} if isinstance(receipt, fmq.DelayedReceipt) else row


def sent_from(line: bytes) -> Sent:
    """Return the message that a line of JSON describes. Raises ValueError, which says what is
    wrong with the line.
    """
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    fields = {name: value for name, value in found.items() if name not in OF_THE_OLD_ONE}
    body = _body(fields)
    times = [
        None if (word := fields.pop(name, None)) is None else datetime.fromisoformat(word)
        for name in ("expires_at", "deliver_at")
    ]
    topic, queue = fields.pop("topic", None), fields.pop("queue", None)
    if strange := fields.keys() - {"key", "tag", "headers", "message_id", "priority"}:
        raise ValueError(f"a message has no {min(strange)!r}")
    return Sent(topic, queue, times[1], fmq.Message(body, **fields, expires_at=times[0]))


def _body(fields: dict[str, Any]) -> bytes:
    """Take the body out of the fields of a line."""
    if ("body" in fields) == ("body_base64" in fields):
        raise ValueError("it needs a 'body', or else a 'body_base64'")
    if "body_base64" in fields:
        return base64.b64decode(fields.pop("body_base64"), validate=True)
    body = fields.pop("body")
    return (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode()


def body_of(row: Row) -> bytes:
    """Return the body of a row as bytes."""
    return row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])


def body_laid_out(row: Row) -> str:
    """Return the whole body of a row, as `laid_out` does."""
    return laid_out(body_of(row))


def place_of(row: Row) -> str:
    """Return where the message of a row lies."""
    return f"{plain(row['topic'])}/{row['queue']}/{row['offset']}"


MESSAGES = (
    Column("", "message", of_row=place_of, style="bold", copied=True),
    Column("time", "sent (UTC)", style="dim"),
    Column("tx_id", "transaction", optional=True),
    Column("key", "key", optional=True),
    Column("tag", "tag", optional=True),
    Column("headers", "headers", optional=True, folds=True),
    Column("", "size", right=True, of_row=lambda row: size(len(body_of(row)))),
    Column("", "body", of_row=lambda row: preview(body_of(row)), folds=True),
)
WHOLE = (
    Column("time", "sent (UTC)"),
    Column("position", "position", show=exact),
    Column("tx_id", "transaction"),
    Column("producer", "producer"),
    Column("key", "key"),
    Column("tag", "tag"),
    Column("headers", "headers"),
    Column("message_id", "id"),
    Column("priority", "priority"),
    Column("expires_at", "expires (UTC)"),
    Column("", "size", of_row=lambda row: size(len(body_of(row)))),
    Column("", "body", of_row=body_laid_out),
)
RECEIPTS = (
    Column("topic", "topic", style="bold"),
    Column("queue", "queue", right=True),
    Column("offset", "first offset", right=True, show=exact),
    Column("count", "messages", right=True),
    Column("position", "position", right=True, show=exact, copied=True),
    Column("due", "due (UTC)", optional=True),
)

"""Which columns rows of Arrow have to have to be messages, and the messages of a batch of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fmq.basics.joined_bodies import JoinedBodies
from fmq.basics.message import Message
from fmq.intake.intake_errors import BadRows

ROWS_AT_ONCE = 10_000
ROW_BYTES = 32
"""What a message takes beside its body, about."""


class ManySent(NamedTuple):
    """Messages that one `send_many` of a transaction takes."""

    topic: str
    messages: list[bytes] | list[Message] | JoinedBodies
    queue: int | None = None
    deliver_at: datetime | None = None
    delay: float | None = None

    def part(self, start: int, end: int | None) -> ManySent:
        return self._replace(messages=self.messages[start:end])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_body(kind: pa.DataType) -> bool:
    return _is_bytes(kind) or _is_text(kind)


def _is_headers(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


COLUMNS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "body": (_is_body, "binary or text"),
    "topic": (_is_text, "text"),
    "queue": (pa.types.is_integer, "a whole number"),
    "key": (_is_text, "text"),
    "tag": (_is_text, "text"),
    "headers": (_is_headers, "a map of texts"),
    "message_id": (_is_text, "text"),
    "priority": (pa.types.is_integer, "a whole number"),
    "expires_at": (_is_time, "a timestamp with a time zone"),
    "deliver_at": (_is_time, "a timestamp with a time zone"),
    "delay": (_is_number, "a number of seconds"),
}
OF_A_MESSAGE = ("key", "tag", "headers", "message_id", "priority", "expires_at")


def check_columns(schema: pa.Schema, topic: str | None) -> None:
    """Raise BadRows unless rows of `schema` are messages. `topic` is that of all rows, if it is
    no column.
    """
    names = schema.names
    wrong = None
    if strange := [name for name in names if name not in COLUMNS]:
        wrong = f"a message has no {', '.join(strange)}; leave out what is not one of them"
    elif len(names) != len({*names}):
        wrong = "two of them have the same name"
    elif "body" not in names:
        wrong = "body is missing"
    elif topic is None and "topic" not in names:
        wrong = "topic is missing, and no topic was given for all rows"
    elif topic is not None and "topic" in names:
        wrong = "there is a topic, and another one was given for all rows"
    elif {"delay", "deliver_at"} <= {*names}:
        wrong = "there are delay and deliver_at; a message has one of them"
    else:
        for field in schema:
            fits, kind = COLUMNS[field.name]
            # A column of nothing but nulls has a type of its own: that of each column of no rows.
            if not fits(field.type) and not pa.types.is_null(field.type):
                wrong = f"{field.name} is {field.type}, and has to be {kind}"
                break
    if wrong is not None:
        raise BadRows(
            f"these rows cannot be written as messages: {wrong}. Nothing was written. Their "
            f"columns are {', '.join(names) or 'none'}; those of messages are {', '.join(COLUMNS)}."
        )


def messages_of(
    batches: Iterable[pa.RecordBatch], topic: str | None
) -> Iterator[tuple[ManySent, int]]:
    """Yield the messages of `batches`, in their order for each topic and queue, and about how many
    bytes they take. Raises BadRows for a row without a body or topic, and for columns that state
    more bytes than they have.
    """
    for whole in batches:
        try:
            whole.validate()
        except pa.ArrowInvalid as error:
            raise BadRows(
                f"a batch of rows is broken: {error}. Nothing of the job is visible."
            ) from None
        for start in range(0, whole.num_rows, ROWS_AT_ONCE):
            batch = whole.slice(start, ROWS_AT_ONCE)
            each = batch.nbytes // batch.num_rows + ROW_BYTES
            for sent in _sent_of(batch, topic):
                yield sent, each * len(sent.messages)


def _joined(bodies: pa.Array) -> JoinedBodies:
    """Return the bodies of a column as they lie in it. They are copied once: the column may be a
    small part of what would be kept, or be filled again by the program that has made it.
    """
    _, places, data = bodies.buffers()
    large = pa.types.is_large_binary(bodies.type)
    ends = memoryview(places).cast("q" if large else "i")[bodies.offset :]
    first, end = ends[0], ends[len(bodies)]
    sizes = array("I")
    sizes.frombytes(pc.binary_length(bodies).cast(pa.uint32()).buffers()[1])
    piece = b"" if data is None else bytes(memoryview(data)[first:end])
    return JoinedBodies(sizes[: len(bodies)], [piece])


def _sent_of(batch: pa.RecordBatch, topic: str | None) -> list[ManySent]:
    column = {name: batch.column(name) for name in batch.schema.names}
    bodies = column["body"]
    for name in ("body", "topic"):
        if name in column and column[name].null_count:
            raise BadRows(f"a row has no {name}: it is null. Nothing of the job is visible.")
    if _is_text(bodies.type):
        bodies = bodies.cast(
            pa.large_binary() if pa.types.is_large_string(bodies.type) else pa.binary()
        )
    if topic is not None and len(column) == 1:
        return [ManySent(topic, _joined(bodies))]
    found: list[Any] = bodies.to_pylist()
    count = len(found)
    nothing = [None] * count
    values = {name: each.to_pylist() for name, each in column.items() if name != "body"}
    if "headers" in values:
        values["headers"] = [None if each is None else dict(each) for each in values["headers"]]
    if any(name in values for name in OF_A_MESSAGE):
        key, tag, headers, message_id, priority, expires_at = (
            values.get(name, nothing) for name in OF_A_MESSAGE
        )
        found = [
            Message(body, *said, None, None, *extras)
            for body, said, extras in zip(
                found,
                zip(key, tag, headers, strict=True),
                zip(message_id, priority, expires_at, strict=True),
                strict=True,
            )
        ]
    places = [values[name] for name in ("queue", "deliver_at", "delay") if name in values]
    if topic is not None and not places:
        return [ManySent(topic, found)]
    groups: dict[Any, list[Any]] = {}
    topics = values.get("topic") or [topic] * count
    queue, deliver_at, delay = (
        values.get(name, nothing) for name in ("queue", "deliver_at", "delay")
    )
    for place, message in zip(
        zip(topics, queue, deliver_at, delay, strict=True), found, strict=True
    ):
        groups.setdefault(place, []).append(message)
    return [ManySent(place[0], messages, *place[1:]) for place, messages in groups.items()]

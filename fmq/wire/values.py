"""Values as JSON: arguments, results and errors of calls that are made seldom.

Texts, numbers, None and lists are as in JSON. Everything else is an object with one member, named
by its kind: {"bytes": "6162"}, {"Receipt": ["orders", 0, 7, 4096, 1]}. Only the kinds below are
known. So nothing that another process sends can make an object of another class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from struct import Struct
from struct import error as StructError
from typing import Any

from fmq import errors
from fmq.arguments.options import Options
from fmq.arguments.stored_options import Setting
from fmq.assembly.stats import Kept, Stats
from fmq.basics.clock import as_datetime, as_us
from fmq.basics.counts import Counts, GroupCounts, Times
from fmq.basics.message import DelayedReceipt, Mark, MessagePlace, Receipt
from fmq.basics.results import (
    ClientInfo,
    DeadLetter,
    Erased,
    FormerMember,
    GroupInfo,
    HeldMessages,
    HomeStats,
    JointDecision,
    Limit,
    MemberInfo,
    Outcome,
    Pause,
    QueueInfo,
    ScheduleInfo,
    TopicCodec,
    UndecidedTransaction,
)
from fmq.errors import FmqError
from fmq.feedback.question import Question
from fmq.recovery.recover import RecoveryReport
from fmq.wire.frames import VALUES_BYTES_MAX, BadFrame

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(
            ClientInfo,
            Counts,
            DeadLetter,
            DelayedReceipt,
            Erased,
            FormerMember,
            GroupCounts,
            GroupInfo,
            HeldMessages,
            HomeStats,
            JointDecision,
            Kept,
            Limit,
            Mark,
            MemberInfo,
            Options,
            Outcome,
            Pause,
            Question,
            QueueInfo,
            Receipt,
            ScheduleInfo,
            Setting,
            Times,
            TopicCodec,
        ),
        *(RecoveryReport, Stats, UndecidedTransaction),
    )
}
ERRORS: dict[str, type[Exception]] = {
    **{
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, FmqError)
    },
    "TypeError": TypeError,
    "ValueError": ValueError,
}

SIZE = Struct("<I")
# Lists and objects in one request. Even 4 MiB of acked ranges have fewer.
PARTS_MAX = 1 << 18


def is_number(value: object, bits: int) -> bool:
    """Return whether `value` is an int that fits `bits` bits without a sign."""
    return type(value) is int and 0 <= value < 1 << bits


def encode_values(value: object) -> bytes:
    """Return `value` as JSON."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def decode_values(data: bytes) -> Any:
    """Return the value that `encode_values` wrote. Raises BadFrame."""
    try:
        return _value(json.loads(data.decode("utf-8", "surrogatepass")))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadFrame(f"values that cannot be read: {error!r:.200}") from None


def decode_places(data: bytes) -> list[MessagePlace]:
    """Return the places that an answer has. Raises BadFrame."""
    return [(topic, queue, offset) for topic, queue, offset in decode_values(data)]


def decode_asked(data: bytes) -> Any:
    """Return the values of a request, which may come from any program. Raises BadFrame.

    Lists and objects take most of the time and memory, so a payload with too many is refused before
    it is read. Brackets inside of texts count, too.
    """
    parts = data.count(b"[") + data.count(b"{")
    if parts > PARTS_MAX:
        raise BadFrame(f"a request of {parts:,} lists and objects, and {PARTS_MAX:,} are the limit")
    return decode_values(data)


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = type(value).__name__
    if type(value) is list:
        return [*map(_plain, value)]
    if type(value) is tuple:
        return {"tuple": [*map(_plain, value)]}
    if isinstance(value, Mapping):
        return {"dict": [[_plain(name), _plain(each)] for name, each in value.items()]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, datetime):
        return {"datetime": as_us(value)}
    if KINDS.get(kind) is not type(value):
        raise TypeError(
            f"{value!r:.100}: {kind} does not go over a connection. Nothing was changed."
        )
    if is_dataclass(value):
        return {kind: [_plain(getattr(value, name)) for name in _said(value)]}
    assert isinstance(value, tuple)
    return {kind: [*map(_plain, value)]}


def _said(kind: Any) -> list[str]:
    """Return the fields of a dataclass that are values. Fields that refer to an engine are left
    out.
    """
    return [each.name for each in fields(kind) if not each.name.startswith("_")]


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [*map(_value, plain)]
    if not isinstance(plain, dict):
        return plain
    ((kind, inside),) = plain.items()
    if kind == "bytes":
        return bytes.fromhex(inside)
    if kind == "datetime":
        return as_datetime(inside)
    if not isinstance(inside, list):
        raise TypeError(f"{kind} is no list")
    if kind == "dict":
        return {_value(name): _value(each) for name, each in inside}
    values = [*map(_value, inside)]
    if kind == "tuple":
        return tuple(values)
    made: Callable[..., Any] = KINDS[kind]
    if is_dataclass(KINDS[kind]):
        return made(**dict(zip(_said(KINDS[kind]), values, strict=True)))
    return made(*values)


def encode_front(value: object, rest: bytes) -> bytes:
    """Return a payload: the size of the values as a u32, then `value` as JSON, then `rest`."""
    values = encode_values(value)
    return b"".join((SIZE.pack(len(values)), values, rest))


def decode_front(payload: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value at `at`, and the index at which the rest of the payload begins. Raises
    BadFrame.
    """
    at, end = _front(payload, at)
    return decode_values(payload[at:end]), end


def decode_asked_front(payload: bytes) -> tuple[Any, int]:
    """Return the value at the front of a request, and the index of the rest. Raises BadFrame."""
    at, end = _front(payload, 0)
    if end - at > VALUES_BYTES_MAX:
        raise BadFrame(f"values of {end - at:,} bytes, and {VALUES_BYTES_MAX:,} are the limit")
    return decode_asked(payload[at:end]), end


def _front(payload: bytes, at: int) -> tuple[int, int]:
    """Return the first and the end index of the values at `at`. Raises BadFrame."""
    try:
        (size,) = SIZE.unpack_from(payload, at)
    except StructError as error:
        raise BadFrame(f"values that are cut short: {error}") from None
    at += SIZE.size
    return at, at + size


def encode_error(error: Exception) -> bytes:
    """Return `error` as JSON: its kind, its text, and its attributes that are values."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in ERRORS), None)
    if kind is None or not error.args or not isinstance(error.args[0], str):
        return encode_values(["FmqError", f"{type(error).__name__}: {error}", {}])
    attributes = {}
    for name, value in vars(error).items():
        try:
            _plain(value)
        except TypeError:
            continue
        attributes[name] = value
    return encode_values([kind, error.args[0], attributes])


def decode_error(data: bytes) -> Exception:
    """Return the error that `encode_error` wrote. Raises BadFrame."""
    found = decode_values(data)
    try:
        kind, text, attributes = found
        made: Callable[..., Exception] = ERRORS[kind].__new__
        error = made(ERRORS[kind])
        error.args = (text,)
        error.__dict__.update(attributes)
    except (ValueError, TypeError, KeyError) as problem:
        raise BadFrame(f"an error that cannot be read: {problem!r:.200}") from None
    return error

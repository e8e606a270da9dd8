"""The fields of a request that is sent as values, and what each field may hold.

A field is a function of a name, which is for the error, and a value. It returns the value, or
raises TypeError or another error that refuses it. A value that passes can be encoded and compared.
So later only the rules of the engine can refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fmq.arguments.names import check_count, check_seconds, check_text
from fmq.errors import BadName
from fmq.wire.frames import BadFrame
from fmq.wire.values import decode_asked, is_number

Field = Callable[[str, Any], Any]

text: Field = check_text
seconds: Field = check_seconds
positive: Field = check_count


def _refuse(what: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"{what}={value!r:.80}: is {wanted}. Nothing was changed.")


def _whole_number(bits: int) -> Field:
    """Return the field for a whole number of at most `bits` bits, without a sign."""

    def check(what: str, value: Any) -> Any:
        if not is_number(value, bits):
            raise _refuse(what, value, f"a whole number of {bits} bits")
        return value

    return check


u16, u32, u64 = _whole_number(16), _whole_number(32), _whole_number(64)


def count(what: str, value: Any) -> Any:
    """Return `value` if it is a whole number, 0 or more. Raises an error that names `what`."""
    return check_count(what, value, 0)


def number(what: str, value: Any) -> Any:
    """Return `value` if it is a whole number. Raises an error that names `what`."""
    if type(value) is not int:
        raise _refuse(what, value, "a whole number")
    return value


def flag(what: str, value: Any) -> Any:
    """Return `value` if it is True or False. Raises a TypeError that names `what`."""
    if type(value) is not bool:
        raise _refuse(what, value, "True or False")
    return value


def data(what: str, value: Any) -> Any:
    """Return `value` if it is bytes. Raises a TypeError that names `what`."""
    if type(value) is not bytes:
        raise _refuse(what, value, "bytes")
    return value


def time(what: str, value: Any) -> Any:
    """Return `value` if it is a datetime. Raises a TypeError that names `what`."""
    if not isinstance(value, datetime):
        raise _refuse(what, value, "a datetime")
    return value


def written(what: str, value: Any) -> Any:
    """Return `value` if it is a text that UTF-8 can encode, because records are in UTF-8."""
    try:
        check_text(what, value).encode()
    except UnicodeEncodeError:
        raise BadName(f"{what} {value!r:.80}: not text that UTF-8 can write") from None
    return value


def scalar(what: str, value: Any) -> Any:
    """Return `value` if it is no list, tuple or dict. The engine checks the rest, because several
    types are allowed.
    """
    if isinstance(value, (list, tuple, dict)):
        raise _refuse(what, value, f"one value, and no {type(value).__name__}")
    return value


def optional(field: Field) -> Field:
    """Return the field for a value that may also be None."""

    def check(what: str, value: Any) -> Any:
        return None if value is None else field(what, value)

    return check


def within(least: int, most: int) -> Field:
    """Return the field for a whole number from `least` to `most`."""

    def check(what: str, value: Any) -> Any:
        if type(value) is not int or not least <= value <= most:
            raise _refuse(what, value, f"a whole number from {least:,} to {most:,}")
        return value

    return check


def list_of(field: Field, most: int | None = None) -> Field:
    """Return the field for a list of at most `most` values."""

    def check(what: str, value: Any) -> Any:
        if type(value) is not list:
            raise _refuse(what, value, "a list")
        if most is not None and len(value) > most:
            raise _refuse(what, value, f"a list of at most {most:,}")
        return [field(what, each) for each in value]

    return check


class Row:
    """A field for a list with one value for each of its own fields, by place."""

    def __init__(self, least: int | None = None, /, **fields: Field) -> None:
        """Make the field. A list may end after its first `least` values."""
        self._fields = [*fields.items()]
        self._least = len(fields) if least is None else least

    def __call__(self, what: str, value: Any) -> list[Any]:
        """Return the checked values. Raises TypeError, or the error of the field that refuses
        one.
        """
        if type(value) is not list or not self._least <= len(value) <= len(self._fields):
            names = ", ".join(name for name, _ in self._fields)
            raise _refuse(what, value, f"a list of {names}" if names else "an empty list")
        return [field(name, each) for (name, field), each in zip(self._fields, value, strict=False)]

    def decode(self, payload: bytes) -> list[Any]:
        """Return the values of a payload. Raises BadFrame if the payload is not such a list."""
        value = decode_asked(payload)
        if type(value) is not list or not self._least <= len(value) <= len(self._fields):
            raise BadFrame(f"a request with other fields than {[name for name, _ in self._fields]}")
        return self("a request", value)

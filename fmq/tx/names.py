"""What may be a name, an id, a place or a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from numbers import Real
from operator import index

from fmq.errors import BadName, BadOption

NAME_BYTES_MAX = 255


def check_name(what: str, name: str) -> str:
    """`name`, if it can be that of a topic, group or producer; TypeError or BadName."""
    if type(name) is not str:
        # Of a subclass its text alone: what is remembered by name must not depend on how it
        # compares, and others are shown it.
        name = str.__str__(check_text(what, name))
    return _checked_name(what, name)


def check_text(what: str, text: str) -> str:
    """`text`, if it is a str; TypeError. To look for a name that none can have finds nothing."""
    if isinstance(text, str):
        return text
    raise no_text(what, text)


def check_producer(producer: str) -> str:
    """`producer`, which may be "": nobody in particular; TypeError or BadName."""
    return check_name("producer", producer) if check_text("producer", producer) else ""


def no_text(what: str, text: object) -> TypeError:
    """The error for `text`, which is no str: maybe it cannot even be looked up in a dict."""
    return TypeError(f"a {what} is a str, not {type(text).__name__}. Nothing was changed.")


def check_names(what: str, names: object, *, or_none: bool = False) -> tuple[str, ...]:
    """Several or one alone, each once; TypeError or BadName. With `or_none` one may be ""."""
    if isinstance(names, str):
        given: tuple[str, ...] = (names,)
    elif isinstance(names, Iterable) and not isinstance(names, (bytes, bytearray)):
        given = tuple(names)
    else:
        raise TypeError(
            f"{what}s={names!r}: is a str or several, not {type(names).__name__}. "
            "Nothing was changed."
        )
    checked = (
        check_name(what, name) if check_text(what, name) or not or_none else "" for name in given
    )
    return tuple(dict.fromkeys(checked))


@lru_cache(maxsize=4096)
def _checked_name(what: str, name: str) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadName(f"{what} {name!r}: not text that UTF-8 can write") from None
    if not 1 <= size <= NAME_BYTES_MAX:
        raise BadName(f"{what} {name[:40]!r}: {size} bytes; a name has 1 to {NAME_BYTES_MAX}")
    if not name.isprintable():
        raise BadName(
            f"{what} {name!r}: a name has only characters that can be printed, and no blank but ' '"
        )
    return name


def as_index(what: str, number: object) -> int:
    """`number`, if it is a whole one; TypeError. A float would do as well as an int until some
    list is asked for its element.
    """
    try:
        return int(index(number))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{what}={number!r}: is an int, not {type(number).__name__}. Nothing was changed."
        ) from None


def check_count(what: str, number: object, least: int = 1) -> int:
    """`number` as an int of our own, at least `least`; TypeError or BadOption."""
    count = as_index(what, number)
    if count < least:
        raise BadOption(f"{what}={count}: must be at least {least}. Nothing was changed.")
    return count


def check_place(
    topic: str, queue: int, offset: int, limit: int, limit_least: int = 1
) -> tuple[int, int, int]:
    """Queue, offset and limit as ints of our own, as those of numpy overflow at the first sum;
    TypeError or BadOption, if nothing can be read from there.
    """
    check_text("topic", topic)
    return (
        check_count("queue", queue, 0),
        check_count("offset", offset, 0),
        check_count("limit", limit, limit_least),
    )


def no_queue(topic: str, queue: int, count: int) -> BadName:
    """The error for a number that none of the topic's `count` queues has."""
    return BadName(f"queue {queue}: the topic {topic!r} has queues 0 to {count - 1}")


def check_seconds(what: str, seconds: object) -> float:
    """`seconds` as a float of our own; TypeError if that is no real number, BadOption for a NaN.

    Infinity is for ever, and so is what no float can hold.
    """
    if type(seconds) is not float:
        if type(seconds) is not int and not _is_real(seconds):
            raise TypeError(
                f"{what}={seconds!r}: is a number of seconds, an int or a float, not "
                f"{type(seconds).__name__}. Nothing was changed."
            )
        try:
            seconds = float(seconds)  # type: ignore[arg-type]
        except OverflowError:  # an int, which knows whether it is more than any float
            seconds = math.inf if seconds > 0.0 else -math.inf  # type: ignore[operator]
    if math.isnan(seconds):
        raise BadOption(f"{what}=nan: is no number of seconds. Nothing was changed.")
    return seconds


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_tx_id(tx_id: str) -> str:
    """`tx_id`, if it can be one; BadName."""
    if not isinstance(tx_id, str):
        raise no_text("tx_id", tx_id)
    if not tx_id.isascii() or not tx_id.isprintable() or not 1 <= len(tx_id) <= NAME_BYTES_MAX:
        raise BadName(
            f"tx_id {tx_id[:40]!r}: must be 1 to {NAME_BYTES_MAX} printable ASCII characters"
        )
    return str.__str__(tx_id)

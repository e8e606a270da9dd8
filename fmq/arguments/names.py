"""Checks of the names, ids, offsets and times that callers pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from numbers import Real
from operator import index

from fmq.errors import BadName, BadOption

NAME_BYTES_MAX = 255


def check_name(what: str, name: str) -> str:
    """Return `name` if a topic, group or producer can have it. Raises TypeError or BadName."""
    if type(name) is not str:
        # Keep only the text of a subclass: it may compare and print in its own way.
        name = str.__str__(check_text(what, name))
    return _checked_name(what, name)


def check_text(what: str, text: str) -> str:
    """Return `text` if it is a str. Raises TypeError. The text may be a name that no topic or group
    can have.
    """
    if isinstance(text, str):
        return text
    raise no_text(what, text)


def check_texts(group: str, topic: str) -> tuple[str, str]:
    """Return a group and a topic if both are str. Raises TypeError. They need not be names that can
    exist.
    """
    return check_text("group", group), check_text("topic", topic)


def check_marks(names: Iterable[str], prefix: str | None) -> tuple[list[str], str | None]:
    """Return the names of marks, and the prefix of further ones. Raises TypeError."""
    names = [check_text("mark", name) for name in names]
    return names, None if prefix is None else check_text("prefix", prefix)


def check_producer(producer: str) -> str:
    """Return `producer`, which may be empty; raise TypeError or BadName."""
    return check_name("producer", producer) if check_text("producer", producer) else ""


def no_text(what: str, text: object) -> TypeError:
    """Return the error for a `text` that is not a str."""
    return TypeError(f"a {what} is a str, not {type(text).__name__}. Nothing was changed.")


def check_names(what: str, names: object, *, or_none: bool = False) -> tuple[str, ...]:
    """Return one name or several as a tuple without duplicates; raise TypeError or BadName.

    With `or_none`, a name may be empty.
    """
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
    """Return `number` as an int. Raises TypeError if it is not a whole number, such as a float."""
    try:
        return int(index(number))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{what}={number!r}: is an int, not {type(number).__name__}. Nothing was changed."
        ) from None


def check_time(what: str, moment: object) -> datetime:
    """Return `moment` if it is a datetime; raise TypeError."""
    if isinstance(moment, datetime):
        return moment
    raise TypeError(
        f"{what}={moment!r}: is a datetime, not {type(moment).__name__}. Nothing was changed."
    )


def check_flag(what: str, flag: object) -> bool:
    """Return `flag` if it is True or False. Raises TypeError for all else: the text "no" would
    count as true.
    """
    if isinstance(flag, bool):
        return flag
    raise TypeError(
        f"{what}={flag!r}: is True or False, not {type(flag).__name__}. Nothing was changed."
    )


def check_sync(sync: bool | None) -> bool | None:
    """Return `sync`. Raises TypeError if it is none of True, False and None."""
    if sync is None or sync is True or sync is False:
        return sync
    raise TypeError(
        f"sync={sync!r}: is True, False or None, and a mode is for Options. Nothing was changed."
    )


def waits(sync: bool | None, *, by_default: bool) -> bool:
    """Return whether a call that was given this `sync` waits for a sync. Raises TypeError."""
    if sync is None:
        return by_default
    return check_sync(sync) is True


def check_count(what: str, number: object, least: int = 1) -> int:
    """Return `number` as an int that is at least `least`; raise TypeError or BadOption."""
    count = as_index(what, number)
    if count < least:
        raise BadOption(f"{what}={count}: must be at least {least}. Nothing was changed.")
    return count


def check_place(
    topic: str, queue: int, offset: int, limit: int, limit_least: int = 1
) -> tuple[int, int, int]:
    """Return queue, offset and limit as ints; raise TypeError or BadOption.

    They are Python's own ints: sums of numpy's ints may overflow.
    """
    check_text("topic", topic)
    return (
        check_count("queue", queue, 0),
        check_count("offset", offset, 0),
        check_count("limit", limit, limit_least),
    )


def check_places(places: object) -> list[tuple[str, int, int]]:
    """Return topic, queue and offset of each place; raise TypeError or BadOption."""
    if not isinstance(places, Mapping):
        raise TypeError(
            f"places={places!r}: must have an offset for each (topic, queue). Nothing was changed."
        )
    found = []
    for where, offset in places.items():
        if not isinstance(where, tuple) or len(where) != 2:
            raise TypeError(f"places: {where!r} must be (topic, queue). Nothing was changed.")
        found.append((where[0], *check_place(*where, offset, 1)[:2]))
    return found


def check_erased(
    topic: str, queue: int | None, offset: int | None, key: str | None
) -> tuple[str, int | None, int | None, str | None]:
    """Return queue, offset and key of what is to be erased: one message, or all messages of a key.
    Raises TypeError or BadOption.
    """
    check_text("topic", topic)
    if key is not None and queue is None and offset is None:
        return topic, None, None, check_text("key", key)
    if key is None and queue is not None and offset is not None:
        return topic, check_count("queue", queue, 0), check_count("offset", offset, 0), None
    raise BadOption(
        "what is erased is one message, by its queue and offset, or all messages of one key. "
        "Nothing was changed."
    )


def no_queue(topic: str, queue: int, count: int) -> BadName:
    """Return the error for `queue`, a number that `topic` does not have: it has `count` queues."""
    return BadName(
        f"queue {queue}: the topic {topic!r} has queues 0 to {count - 1}. Nothing was changed."
    )


def check_seconds(what: str, seconds: object) -> float:
    """Return `seconds` as a float; raise TypeError if it is no real number, BadOption if it is NaN.

    An int that is too large for a float becomes infinity, which means for ever.
    """
    if type(seconds) is not float:
        if type(seconds) is not int and not _is_real(seconds):
            raise TypeError(
                f"{what}={seconds!r}: is a number of seconds, an int or a float, not "
                f"{type(seconds).__name__}. Nothing was changed."
            )
        try:
            seconds = float(seconds)  # type: ignore[arg-type]
        except OverflowError:  # an int that no float can hold
            seconds = math.inf if seconds > 0.0 else -math.inf  # type: ignore[operator]
    if math.isnan(seconds):
        raise BadOption(f"{what}=nan: is no number of seconds. Nothing was changed.")
    return seconds


def check_poll(limit: int, timeout: float) -> tuple[int, float]:
    """Return the limit and the timeout of a poll; raise TypeError or BadOption."""
    if type(limit) is not int or limit < 1:
        limit = check_count("limit", limit)
    if type(timeout) is not float or timeout != timeout:  # only NaN differs from itself
        timeout = check_seconds("timeout", timeout)
    return limit, timeout


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_tx_id(tx_id: str) -> str:
    """Return `tx_id` if a transaction can have it; raise TypeError or BadName."""
    if not isinstance(tx_id, str):
        raise no_text("tx_id", tx_id)
    if not tx_id.isascii() or not tx_id.isprintable() or not 1 <= len(tx_id) <= NAME_BYTES_MAX:
        raise BadName(
            f"tx_id {tx_id[:40]!r}: must be 1 to {NAME_BYTES_MAX} printable ASCII characters"
        )
    return str.__str__(tx_id)

"""What may be a name, an id or a place."""

from __future__ import annotations

from functools import lru_cache
from operator import index

from fmq.errors import BadName, BadOption

NAME_BYTES_MAX = 255


@lru_cache(maxsize=4096)
def check_name(what: str, name: str) -> str:
    """`name`, if it can be that of a topic, group or producer; BadName."""
    if not isinstance(name, str):
        raise TypeError(f"a {what} is a str, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadName(f"{what} {name!r}: not text that UTF-8 can write") from None
    if not 1 <= size <= NAME_BYTES_MAX:
        raise BadName(f"{what} {name[:40]!r}: {size} bytes; a name has 1 to {NAME_BYTES_MAX}")
    if not name.isprintable():
        raise BadName(f"{what} {name!r}: a name has no control characters")
    return name


def as_index(what: str, number: object) -> int:
    """`number`, if it is a whole one; TypeError. A float would do as well as an int until some
    list is asked for its element.
    """
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what}={number!r}: is an int, not {type(number).__name__}") from None


def check_place(queue: int, offset: int, limit: int) -> None:
    """TypeError or BadOption, if nothing can be read from there."""
    numbers = {"queue": queue, "offset": offset, "limit": limit}
    for what, number in numbers.items():
        least = 1 if what == "limit" else 0
        if as_index(what, number) < least:
            raise BadOption(f"{what}={number}: must be at least {least}")


def check_tx_id(tx_id: str) -> str:
    """`tx_id`, if it can be one; BadName."""
    if not isinstance(tx_id, str):
        raise TypeError(f"a tx_id is a str, not {type(tx_id).__name__}")
    if not tx_id.isascii() or not tx_id.isprintable() or not 1 <= len(tx_id) <= NAME_BYTES_MAX:
        raise BadName(
            f"tx_id {tx_id[:40]!r}: must be 1 to {NAME_BYTES_MAX} printable ASCII characters"
        )
    return tx_id

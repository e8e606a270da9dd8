"""What may be a name, and the ids that an engine makes itself."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from operator import index

from fmq.errors import BadName, BadOption

NAME_BYTES_MAX = 255
DRAWN_BYTES = 10  # 80 bits, of which the 74 that a UUID has room for are used


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


class TxIds:
    """Makes ids that no machine, process or moment makes twice: UUIDs of version 7 (RFC 9562).

    Behind the time stand 26 random bits and a counter that begins at a random number of 48,
    drawn by each engine for itself; drawing them for each id would cost more than all else about
    it. So would writing the time anew: within a millisecond only the counter differs.
    """

    def __init__(self, drawn: bytes) -> None:
        random = int.from_bytes(drawn, "little")
        self._numbers = count(random & COUNTER)
        middle = 0x7 << 12 | random >> 48 & 0xFFF, 0x2 << 14 | random >> 60 & 0x3FFF
        self._middle = f"{middle[0]:04x}-{middle[1]:04x}"
        self._written = -1, ""  # a millisecond, and all that its ids have in common

    def make(self, time_us: int) -> str:
        at, common = self._written
        if at != time_us // 1000:
            at = time_us // 1000
            text = f"{at & TIME:012x}"
            common = f"{text[:8]}-{text[8:]}-{self._middle}-"
            self._written = at, common
        return common + "%012x" % (next(self._numbers) & COUNTER)


TIME = COUNTER = (1 << 48) - 1

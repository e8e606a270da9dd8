"""How values are read and compared: by RocketMQ's rules, for headers that are all strings.

Unknown is None, as everywhere in a condition. What cannot be compared raises ValueError, which
ends the whole match.
"""

from __future__ import annotations

from fmq.filters.sql_tree import Constant

# A float holds every whole number below this exactly.
EXACT_BELOW = 2.0**53


def number_of(text: str) -> int | float:
    """Return the number that a header spells. Raises ValueError if it spells none.

    Digits with a sign, a point or an exponent do, with blanks around them. Whole numbers are exact.
    """
    value = float(text)
    if -EXACT_BELOW < value < EXACT_BELOW and "_" not in text and text.isascii():
        return value
    return _unusual_number(text, value)


def _unusual_number(text: str, value: float) -> int | float:
    """Return a large number. Raises ValueError for spellings that Python reads and Java does
    not.
    """
    if "_" in text or not text.isascii():
        raise ValueError("no plain digits")
    digits = text.strip()
    if digits.lstrip("+-").isdigit():
        return _whole_number(digits)
    if not abs(value) < float("inf"):
        raise ValueError("infinite, or no number")
    return value


def _whole_number(digits: str) -> int:
    try:
        return int(digits)
    # Python refuses so many digits, as converting them takes quadratic time.
    except ValueError:
        from decimal import Decimal  # imported here, because it is slow to import

        return Decimal(digits)  # type: ignore[return-value]  # it compares with ints and floats


def truth_of(text: str) -> bool:
    """Return True for a header that says true in any case. Every other text counts as false, as in
    Java.
    """
    return text.lower() == "true"


def equal(left: Constant, right: Constant) -> bool | None:
    """Return whether two values are equal; None if that is unknown.

    Two unknown values are equal. A known value and an unknown one are not, but the result is
    unknown if the unknown one is the left one. RocketMQ does the same.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str):
        return left == right if isinstance(right, str) else _spells(left, right)
    if isinstance(right, str):
        return _spells(right, left)
    if isinstance(left, bool) is not isinstance(right, bool):
        return False  # True does not count as a number, though Python says True == 1
    return left == right


def _spells(text: str, value: int | float | bool) -> bool:
    if isinstance(value, bool):
        return truth_of(text) is value
    return number_of(text) == value


def opposite(known: bool | None) -> bool | None:
    """Return the opposite of a truth value; of unknown (None), unknown."""
    return None if known is None else not known

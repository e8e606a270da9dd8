"""Types of command-line arguments that argparse does not have.

Each raises what argparse says together with the usage of the verb, before anything is opened.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from datetime import datetime
from math import inf

from fmq.arguments.options import SECONDS_MAX
from fmq.errors import BadFilter
from fmq.filters.sql_filter import SqlFilter, sql
from fmq.findings.text import printable


def text(word: str) -> str:
    """Return `word`, a name, an id or a reason. Refuses bytes that are not UTF-8: no journal can
    hold them.
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError(f"{printable(word)}: not text in UTF-8") from None
    return word


def words(word: str) -> str:
    """Return `word`. Refuses a text without any visible character."""
    if not text(word).strip():
        raise ArgumentTypeError("it is empty, and must say something")
    return word


def count(word: str) -> int:
    """Return a count or a position, 0 or more."""
    try:
        number = int(word)
    except ValueError:
        number = -1
    if not 0 <= number <= sys.maxsize:
        raise ArgumentTypeError(f"{printable(word)}: must be a whole number, 0 or more")
    return number


def seconds(word: str) -> float:
    """Return a number of seconds: more than 0, and finite."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number <= SECONDS_MAX:
        raise ArgumentTypeError(f"{printable(word)}: must be a number of seconds, more than 0")
    return number


def rate(word: str) -> float:
    """Return how many a second: more than 0, and finite."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise ArgumentTypeError(f"{printable(word)}: must be how many a second, more than 0")
    return number


def moment(word: str) -> datetime:
    """Return a time; without a time zone it is in UTC."""
    try:
        return datetime.fromisoformat(word)
    except ValueError:
        raise ArgumentTypeError(
            f"{printable(word)}: must be a time, such as 2026-11-24T12:00:00Z"
        ) from None


def header(word: str) -> tuple[str, str]:
    """Return the name and the value of a header."""
    name, equals, value = text(word).partition("=")
    if not equals:
        raise ArgumentTypeError(f"{printable(word)}: must be a name and a value, as in trace=4f2a")
    return name, value


def place(word: str) -> int | datetime:
    """Return an offset, a number of messages before the end as a negative one, or a time."""
    try:
        return int(word)
    except ValueError:
        return moment(word)


def filter_(word: str) -> SqlFilter:
    """Return a filter."""
    try:
        return sql(text(word))
    except BadFilter as error:
        raise ArgumentTypeError(printable(str(error))) from None

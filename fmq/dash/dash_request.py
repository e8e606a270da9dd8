"""What a browser asks, and what it gets, as plain values. It knows no protocol of servers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl

from fmq.errors import BadOption

Query = Mapping[str, str]
NUMBER_DIGITS_MAX = 19  # those of the largest position


class DashRequest(NamedTuple):
    """One request. `page` is its path below the place where the pages are mounted."""

    method: str
    page: str
    query: Query
    form: Query
    host: str
    session: str
    """The value of our cookie; empty without one."""


class DashReply(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    kind: str = "text/html; charset=utf-8"
    location: str | None = None
    session: str | None = None
    """The value of a new cookie; None if it stays."""


def fields_of(text: str) -> Query:
    """Return the fields of a query or a form. Of two with one name the last one counts."""
    try:
        # A name may have lone surrogates, which `link` writes so.
        return dict(parse_qsl(text, keep_blank_values=True, errors="surrogatepass"))
    except UnicodeDecodeError:
        return dict(parse_qsl(text, keep_blank_values=True, errors="replace"))


def number_of(said: str, what: str) -> int:
    """Return the number that a reader has typed. Raises BadOption."""
    if not (said.isascii() and said.isdigit() and len(said) <= NUMBER_DIGITS_MAX):
        raise BadOption(f"{what} {said[:40]!r}: must be a number. Nothing was changed.")
    return int(said)


def time_of(said: str) -> datetime:
    """Return the time that a reader has typed, in UTC. Raises BadOption."""
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        raise BadOption(
            f"{said[:40]!r}: is no offset, and no time such as 2026-11-24T12:00:00Z. Nothing was "
            "changed."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

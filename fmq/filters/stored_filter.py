"""Makes a filter again from the kind and the text that were stored."""

from __future__ import annotations

from collections.abc import Callable

from fmq.filters.filter import Filter
from fmq.filters.sql_filter import SqlFilter, sql
from fmq.filters.tag_filter import TagFilter, tags

# The kinds are stored on disk: never change or reuse one.
MADE_BY: dict[str, Callable[[str], Filter]] = {TagFilter.kind: tags, SqlFilter.kind: sql}


def stored(kind: str, text: str) -> Filter:
    """Return the filter that has this `kind` and this `text`.

    Raises ValueError for an unknown kind, which a newer fmq may have stored, and BadFilter.
    """
    make = MADE_BY.get(kind)
    if make is None:
        raise ValueError(f"{kind!r} is no kind of filter that this fmq knows: {', '.join(MADE_BY)}")
    return make(text)

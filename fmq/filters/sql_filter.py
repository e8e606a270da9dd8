"""Filters on the headers: a condition in a part of SQL, compiled once and called for each
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fmq.filters.filter import checked
from fmq.filters.sql_match import Test, test_of
from fmq.filters.sql_parse import parse
from fmq.filters.sql_tree import names_in, text_of

TAG = "TAGS"  # the name of the tag among the properties of RocketMQ's messages
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A condition on the headers of a message."""

    text: str = field(compare=False)
    normal: str
    _test: Test = field(compare=False, repr=False)
    _reads_tag: bool = field(compare=False, repr=False)

    kind: ClassVar[str] = "sql"

    def matches(self, headers: Mapping[str, str]) -> bool:
        """Return whether the condition is true for `headers`: neither false nor unknown.

        False if the condition compares what cannot be compared, such as "abc" with a number.
        """
        try:
            return self._test(headers.get) is True
        except ValueError:  # a header could not be read as a number
            return False

    @property
    def tags_in_bytes(self) -> tuple[bytes, ...] | None:
        """Return None: the tag alone does not decide."""
        return None

    def matches_message(self, tag: str | None, headers: Mapping[str, str] | None) -> bool:
        """Return whether the condition is true. In it, the header `TAGS` stands for the message's
        tag.
        """
        if headers is None:
            headers = NO_HEADERS
        if self._reads_tag and tag is not None:
            headers = {**headers, TAG: tag}
        return self.matches(headers)

    def __reduce__(self) -> tuple[Any, ...]:
        return sql, (self.text,)


def sql(text: str) -> SqlFilter:
    """Return the filter for a condition such as `"amount > 100 and region in ('eu', 'uk')"`.

    Raises BadFilter, with the column, for a text that docs/filters.md does not allow.
    """
    tree = parse(checked(text))
    return SqlFilter(text, text_of(tree), test_of(tree), TAG in names_in(tree))

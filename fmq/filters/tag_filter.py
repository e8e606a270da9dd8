"""Filters on the tag: a message needs one of some tags, compared as strings.

RocketMQ's broker compares hashes of tags, and its client compares the tags once more. Here only
tags are compared, so a collision of hashes cannot come through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fmq.errors import BadFilter
from fmq.filters.filter import checked

ALL = "*"
OR = "||"
# The characters that Java's trim() removes. Other spaces belong to a tag.
BLANKS = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags that a group wants: all, or those of a set."""

    text: str = field(compare=False)
    normal: str
    _wanted: frozenset[str] | None = field(compare=False, repr=False)  # None means all tags

    kind: ClassVar[str] = "tags"

    @property
    def tags_in_bytes(self) -> tuple[bytes, ...] | None:
        """Return the wanted tags as UTF-8; None for all."""
        return None if self._wanted is None else tuple(tag.encode() for tag in self._wanted)

    def matches(self, tag: str | None) -> bool:
        """Return whether `tag` is wanted. A message without a tag is wanted if all tags are."""
        wanted = self._wanted
        return wanted is None or tag in wanted

    def matches_message(self, tag: str | None, headers: Mapping[str, str] | None) -> bool:
        """Return whether `tag` is wanted. The headers do not matter."""
        wanted = self._wanted
        return wanted is None or tag in wanted

    def __reduce__(self) -> tuple[Any, ...]:
        return tags, (self.text,)


def tags(text: str | None) -> TagFilter:
    """Return the filter for tags such as `"paid || refunded"`; `"*"`, `""` and None mean all.

    Blanks around a tag and empty parts are ignored. Raises BadFilter for a text that names no tag,
    and for one with `*` as one part of several.
    """
    if text is None or text in ("", ALL):
        return TagFilter(ALL, ALL, None)
    wanted = set()
    start = 0
    for part in checked(text).split(OR):
        tag = part.strip(BLANKS)
        if tag == ALL:
            reason = f"{ALL} means all tags and stands alone, without blanks and without {OR}"
            raise BadFilter(text, start + part.index(ALL) + 1, reason)
        if tag:
            wanted.add(tag)
        start += len(part) + len(OR)
    if not wanted:
        reason = f"a tag is expected, or several with {OR} between them, or {ALL} for all"
        raise BadFilter(text, 1, reason)
    return TagFilter(text, f" {OR} ".join(sorted(wanted)), frozenset(wanted))

"""The interface of both kinds of filter, and the check of a filter's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fmq.errors import BadFilter

TEXT_CHARACTERS_MAX = 4096


class Filter(Protocol):
    """A filter: the messages of a topic that a group wants. Equal filters want the same
    messages.
    """

    @property
    def kind(self) -> str:
        """Return "tags" or "sql". A filter is stored as its kind and its text."""

    @property
    def text(self) -> str:
        """Return the text that the filter was made of."""

    @property
    def normal(self) -> str:
        """Return the text in normal form. Equal filters have equal normal forms."""

    @property
    def tags_in_bytes(self) -> tuple[bytes, ...] | None:
        """Return, as UTF-8, the tags that a message may have to be wanted; None if the filter needs
        more than the tag.
        """

    def matches_message(self, tag: str | None, headers: Mapping[str, str] | None) -> bool:
        """Return whether the group wants a message with this tag and these headers."""


def checked(text: str) -> str:
    """Return `text` if it may be stored as a filter. Raises TypeError and BadFilter."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r}: a filter is made of a str. Nothing was changed.")
    if len(text) > TEXT_CHARACTERS_MAX:
        reason = f"a filter has at most {TEXT_CHARACTERS_MAX:,} characters, this has {len(text):,}"
        raise BadFilter(text, TEXT_CHARACTERS_MAX + 1, reason)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = "half a character, which cannot be stored as UTF-8"
        raise BadFilter(text, error.start + 1, reason) from None
    return text

"""What the engine asks of a filter of either kind, and what a text must be to become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fmq.errors import BadFilter

TEXT_CHARACTERS_MAX = 4096


class Filter(Protocol):
    """Which messages of a topic a group wants. Equal filters want the same messages."""

    @property
    def kind(self) -> str:
        """Return "tags" or "sql"; with `text` it is all that has to be stored."""

    @property
    def text(self) -> str:
        """Return the text that the filter was made of."""

    @property
    def normal(self) -> str:
        """Return the text in its normal form, which is the same for all equal filters."""

    @property
    def tags_in_bytes(self) -> tuple[bytes, ...] | None:
        """Return the tags of which a message must have one, as UTF-8; None if that is not all."""

    def matches_message(self, tag: str | None, headers: Mapping[str, str] | None) -> bool:
        """Return whether the group wants a message with this tag and these headers."""


def checked(text: str) -> str:
    """Return `text` if it may be stored as a filter's. Raises TypeError and BadFilter."""
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

"""Tickets: texts by which a message in hand can be settled later, by any process.

A ticket names a group, a place of it and an attempt. It is good as long as that attempt is the
latest one of the message, also after a restart.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fmq.errors import BadOption
from fmq.store.journal.attempt_page import place_of

TICKET = re.compile("[0-9a-f]{1,16}-[0-9a-f]{1,8}-[0-9a-f]{1,16}-[0-9a-f]{1,8}")


class Ticket(NamedTuple):
    """One attempt of a group at one message."""

    place: int
    """The hash of group and topic, which may be an internal one."""
    queue: int
    offset: int
    attempt: int

    def is_in(self, group: str, topic: str) -> bool:
        """Return whether the ticket is of this group, and its message of this topic."""
        return self.place == place_of(group, topic)


def ticket_text(group: str, topic: str, queue: int, offset: int, attempt: int) -> str:
    """Return the ticket of an attempt as a text."""
    return f"{place_of(group, topic):x}-{queue:x}-{offset:x}-{attempt:x}"


def ticket_in(text: str) -> Ticket:
    """Return the ticket that `text` is. Raises TypeError or BadOption."""
    if not isinstance(text, str):
        raise TypeError(f"ticket={text!r:.80}: is a text, as `delivery.ticket` gives it.")
    if TICKET.fullmatch(text):
        return Ticket(*(int(part, 16) for part in text.split("-")))
    raise BadOption(
        f"ticket={text!r:.80}: is no ticket, as `delivery.ticket` gives it. Nothing was changed."
    )

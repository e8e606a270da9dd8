"""Limits on the unanswered requests of one client. Above them, the server stops reading its
bytes.
"""

from __future__ import annotations

from collections.abc import Sized

from fmq.errors import TooMany

# Requests that are served and have no answer. Those that wait for messages do not count.
REQUESTS_MAX = 1024
REQUEST_BYTES_MAX = 8 << 20  # limit for the bytes of all requests of a client without an answer
ANSWER_BYTES_MAX = 8 << 20  # limit for the bytes of all answers of a client that were not sent
# How many consumers a client may have; also how many open transactions, and waiting requests.
HELD_MAX = 1024


class Load:
    """The requests of one client without an answer, and its answers that were not sent."""

    __slots__ = ("_answer_bytes", "_answered", "_request_bytes", "calls", "is_choked", "is_held")

    def __init__(self) -> None:
        self.calls = 0
        """How many requests there were."""
        self._answered = 0
        self._request_bytes = 0
        self._answer_bytes = 0
        self.is_choked = False
        """Whether the client reads its answers more slowly than they come."""
        self.is_held = False
        """Whether its next requests wait for one that is being carried out."""

    def asked(self, size: int) -> None:
        """Count a request whose payload has `size` bytes."""
        self.calls += 1
        self._request_bytes += size

    def answered(self, size: int, answer_bytes: int) -> None:
        """Count the answer to a request whose payload had `size` bytes."""
        self._answered += 1
        self._request_bytes -= size
        self._answer_bytes += answer_bytes

    def sent(self) -> None:
        """Note that all answers were sent."""
        self._answer_bytes = 0

    def is_full(self, waiting: int) -> bool:
        """Return whether no further request may be served now. `waiting` requests wait for
        messages.
        """
        return (
            self.is_choked
            or self.is_held
            or self.calls - self._answered - waiting >= REQUESTS_MAX
            or self._request_bytes >= REQUEST_BYTES_MAX
            or self._answer_bytes >= ANSWER_BYTES_MAX
        )


def check_room_for(what: str, held: Sized) -> None:
    """Raise TooMany if a client holds as many of `what` as it may."""
    if len(held) >= HELD_MAX:
        raise TooMany(what, len(held) + 1, HELD_MAX, "fixed by the protocol", "close some first")

"""How much one client may have asked for at once. Above that its bytes wait where they are."""

from __future__ import annotations

from collections.abc import Sized

from fmq.errors import TooMany

REQUESTS_MAX = 1024  # that are served and not answered yet; those that wait for messages aside
REQUEST_BYTES_MAX = 8 << 20  # of all that are not answered
ANSWER_BYTES_MAX = 8 << 20  # of answers that are not sent
HELD_MAX = 1024  # consumers, ids of open transactions, and requests that wait, of each one client


class Load:
    """The requests of one client that have no answer, and the answers that were not sent."""

    __slots__ = ("_answer_bytes", "_request_bytes", "_requests", "is_choked")

    def __init__(self) -> None:
        self._requests = 0
        self._request_bytes = 0
        self._answer_bytes = 0
        self.is_choked = False
        """Whether the client reads its answers more slowly than they come."""

    def asked(self, size: int) -> None:
        """Count a request whose payload has `size` bytes."""
        self._requests += 1
        self._request_bytes += size

    def answered(self, size: int, answer_bytes: int) -> None:
        """Count the answer to a request whose payload had `size` bytes."""
        self._requests -= 1
        self._request_bytes -= size
        self._answer_bytes += answer_bytes

    def sent(self) -> None:
        """Note that all answers were sent."""
        self._answer_bytes = 0

    def is_full(self, waiting: int) -> bool:
        """Return whether no request may be served now. `waiting` of them wait for messages."""
        return (
            self.is_choked
            or self._requests - waiting >= REQUESTS_MAX
            or self._request_bytes >= REQUEST_BYTES_MAX
            or self._answer_bytes >= ANSWER_BYTES_MAX
        )


def check_held(what: str, held: Sized) -> None:
    """Raise TooMany if a client holds as many as it may."""
    if len(held) >= HELD_MAX:
        raise TooMany(what, len(held) + 1, HELD_MAX, "fixed by the protocol", "close some first")

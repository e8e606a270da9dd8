"""What a client needs of a connection, and of an event loop that reads it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fmq.wire.frames import Splitter


def silence_of(retry_for: float) -> float:
    """Return the seconds without an answer after which a client asks for a sign of life."""
    return max(retry_for / 4, 1.0)


class Wire(Protocol):
    """A connection: bytes in both directions."""

    def send(self, data: bytes) -> None:
        """Send all of `data`."""

    def receive(self) -> bytes:
        """Return the next bytes; b"" at the end of the connection.

        Raises BlockingIOError after the seconds of `silence_of` without bytes, if the connection
        can do that.
        """

    def close(self) -> None:
        """End the connection."""

    def forget(self) -> object:
        """Close this process's copy of the connection. The parent process goes on using its own."""

    def fileno(self) -> int:
        """Return a descriptor that an event loop can watch."""

    def send_now(self, data: bytes) -> bool:
        """Send what can be sent of `data` without waiting. Keep the rest for the next `send`.
        Return whether nothing is left.
        """

    def receive_now(self) -> bytes | None:
        """Return the next bytes; None if none have arrived, b"" at the end of the connection."""


class LoopReads(Protocol):
    """An event loop that reads a connection."""

    def reads_for(self, thread: int) -> bool:
        """Return whether `thread` may wait for this loop to read. The loop's own thread may not."""

    def met(self, line: Line) -> None:
        """Read a new connection from now on. Any thread may call this."""

    def drop(self, line: Line) -> bool:
        """Close a connection that the loop reads. Return False if it does not read it. Any thread
        may call this.
        """


class Line(NamedTuple):
    """A connection, and the bytes of its next answer that have arrived."""

    wire: Wire
    splitter: Splitter

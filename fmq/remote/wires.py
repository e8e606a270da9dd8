"""What a client needs of a connection, and of an event loop that reads it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fmq.wire.frames import Splitter


def silence_of(retry_for: float) -> float:
    """Return after how many seconds without an answer a client looks for the engine process."""
    return max(retry_for / 4, 1.0)


class Wire(Protocol):
    """A connection: bytes in both directions."""

    def send(self, data: bytes) -> None:
        """Send all of `data`."""

    def receive(self) -> bytes:
        """Return the next bytes; none at the end of the connection.

        Raises BlockingIOError if none came for the seconds of `silence_of`, where it can.
        """

    def close(self) -> None:
        """End the connection."""

    def forget(self) -> object:
        """Close this process's copy of the connection; that of its parent goes on."""

    def fileno(self) -> int:
        """Return what an event loop can watch."""

    def send_now(self, data: bytes) -> bool:
        """Send what of `data` can be sent without waiting, and keep the rest for the next `send`.
        Return whether there is none.
        """

    def receive_now(self) -> bytes | None:
        """Return the next bytes; None if there are none yet, and none at the end of all."""


class LoopReads(Protocol):
    """An event loop that reads a connection."""

    def reads_for(self, thread: int) -> bool:
        """Return whether `thread` can wait for the loop to read. Not if it is the loop's own."""

    def met(self, line: Line) -> None:
        """Read a new connection. By any thread."""

    def drop(self, line: Line) -> bool:
        """Close a connection that the loop reads. Return False if it does not. By any thread."""


class Line(NamedTuple):
    """A connection, and what has arrived of its next answer."""

    wire: Wire
    splitter: Splitter

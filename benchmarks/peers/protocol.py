"""What the rows ask of a peer: a store with three lanes, producers and a consumer for them.

Lane 0 is the one that everything but a transaction uses. Whatever a call here says is durable
has been synced by the peer before the call returns; `python -m benchmarks durability` checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

LANES = 3

Messages = Sequence[tuple[int, bytes]]
"""Bodies, each with its lane."""


class Producer(Protocol):
    """The producer of one thread. Every call returns when its messages are durable."""

    def send(self, body: bytes) -> None: ...

    def send_and_wake(self, body: bytes) -> None:
        """Send, and wake the consumer that waits in this process."""

    def send_many(self, bodies: Sequence[bytes]) -> None: ...

    def transaction(self, messages: Messages) -> None:
        """Send all messages or none, in one phase."""

    def two_phase(self, messages: Messages) -> None:
        """Send all messages or none: first durable and invisible, then published, durably again."""


class Consumer(Protocol):
    """The consumer of one thread: it reads lane 0 from its first unacked message on."""

    def consume(self, limit: int) -> int:
        """Take up to `limit` bodies and ack them, durably; how many there were."""

    def wait(self) -> bytes:
        """The next body, as soon as there is one."""


class Peer(Protocol):
    """An opened store."""

    def __init__(self, directory: Path) -> None: ...

    def producer(self) -> Producer: ...

    def consumer(self) -> Consumer: ...

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        """Store messages as fast as the peer can, durable at the end, not before."""

    def scan(self, kind: str) -> int:
        """Read all of lane 0 once, as `bodies` or as `objects`; how many there were."""

    def close(self) -> None: ...

    @staticmethod
    def first_message_program() -> str:
        """The program of a user who opens the store in sys.argv[1] and prints one message.

        It keeps the opened store in `store`, and sets `opening` to the seconds that took.
        """

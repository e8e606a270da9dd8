"""The protocol of consumers, for programs that accept one from any kind of engine."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from types import TracebackType
from typing import Protocol, Self

from fmq.basics.message import Message
from fmq.consume.calls.handlers import Handler
from fmq.consume.claims.delivery import Deliveries, Delivery, DeliveryBatch


class AnyConsumer(Protocol):
    """A member of a group, of an engine in this process or in another one."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it takes."""

    @property
    def group(self) -> str:
        """The group that it is a member of."""

    @property
    def member(self) -> str:
        """The name of this member in its group."""

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to `limit` deliveries; an empty list if none comes within `timeout` seconds."""

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together."""

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable on return."""

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries one by one, and wait for each next one."""

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> Iterator[Deliveries]:
        """Yield up to `max_size` deliveries at a time, or fewer: those that have come within
        `max_wait` seconds of the first.
        """

    def run(self, handler: Handler, *, workers: int = 1) -> None:
        """Give each delivery to `handler`, in `workers` threads."""

    def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand."""

    def close(self) -> None:
        """Leave the group. Messages that are not acked are redelivered to the other members."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

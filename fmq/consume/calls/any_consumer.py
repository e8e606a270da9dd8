# Made of fmq/aio/face/consumer.py by tools/make_faces.py: change that file, and run it.
"""The calls of a consumer: one member of a group that shares the messages of some topics.

Each message goes to one member. It holds the message until it acks, gives it back or closes, or
until its lease ends. If it was not acked, the next poll of any member redelivers it. An ack is
durable before it returns. It can instead be part of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from types import TracebackType
from typing import Self

from fmq.arguments.names import check_count, check_poll, check_seconds, check_sync
from fmq.basics.message import Message
from fmq.consume.calls.iteration import in_batches, one_by_one
from fmq.consume.calls.member_door import MemberDoor
from fmq.consume.calls.workers import Handler, run
from fmq.consume.claims.delivery import Deliveries, Delivery, DeliveryBatch
from fmq.errors import BadOption, TooMany

WORKERS_MAX = 1000


class AnyConsumer:
    """A member of a group. `engine.consumer` makes it.

    The consumer of a blocking engine joins at once, and is safe for threads.
    """

    def __init__(self, door: MemberDoor) -> None:
        self._door = door

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages the consumer takes."""
        return self._door.topics

    @property
    def group(self) -> str:
        """The group that the consumer is a member of."""
        return self._door.named

    @property
    def member(self) -> str:
        """The name of this member in its group."""
        return self._door.name

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to `limit` deliveries; an empty list if none comes within `timeout` seconds."""
        return self._door.poll(*check_poll(limit, timeout))

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if there is none for `timeout` seconds.
        """
        return self._door.poll_batch(*check_poll(limit, timeout))

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable on return.

        Return none if none comes within `timeout` seconds.
        """
        return self._door.take(*check_poll(limit, timeout), check_sync(sync))

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries one by one, and wait for each next one. The loop ends when the consumer
        closes or drains.

        For a quick program it reads ahead, at most what the program handles in a tenth of a second.
        Messages that the program has not seen when it leaves the loop are given back, and not
        counted as tried.
        """
        self._door.check()
        return one_by_one(self._door)

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> Iterator[Deliveries]:
        """Yield lists of up to `max_size` deliveries. A list has fewer if no more have come within
        `max_wait` seconds of its first. The loop ends when the consumer closes or drains.
        """
        max_size, max_wait = check_count("max_size", max_size), check_seconds("max_wait", max_wait)
        self._door.check()
        return in_batches(self._door, max_size, max_wait)

    def run(self, handler: Handler, *, workers: int = 1, time_limit: float = inf) -> None:
        """Give each delivery to `handler`, in `workers` threads.

        A delivery is acked when the handler returns, and its lease is extended until then. If the
        handler raises, the delivery is tried again as `retry` says. The call returns when the
        consumer closes or drains; in the main thread SIGTERM drains it, but not on a loop.
        Deliveries in hand are handled first.

        A handler that works for more than `time_limit` seconds has failed, too: the delivery is
        tried again, perhaps by another consumer. Nothing can end a thread: its worker handles
        nothing more until the handler returns, and the call does not wait for it when the consumer
        ends.
        """
        if not callable(handler):
            raise TypeError(
                f"handler={handler!r}: is a function of a delivery. Nothing was changed."
            )
        workers = check_count("workers", workers)
        if workers > WORKERS_MAX:
            raise TooMany("workers", workers, WORKERS_MAX, "fixed by fmq")
        time_limit = check_seconds("time_limit", time_limit)
        if time_limit <= 0:
            raise BadOption(f"time_limit={time_limit:g}: must be more than 0. Nothing was changed.")
        self._door.check()
        run(self._door, handler, workers, time_limit)

    def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand. Return False if that takes longer
        than `timeout` seconds. From now on loops and `run` end, and polls return nothing.

        The call does not wait inside of a loop or a handler, nor in a signal handler that
        interrupts a call of fmq.
        """
        timeout = check_seconds("timeout", timeout)
        self._door.check()
        return self._door.drain(timeout)

    def close(self) -> None:
        """Leave the group. Messages that are not acked are redelivered to the other members. If the
        consumer was drained, their last attempt does not count.
        """
        self._door.close(counts=not self._door.draining.is_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the group as `close` does. If an exit, an interrupt or a cancellation ends the
        block, attempts of messages in hand do not count.
        """
        if error is None:
            self.close()
        else:
            self._door.close(counts=isinstance(error, Exception))

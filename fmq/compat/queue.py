"""`Queue`: the interface of Python's `queue.Queue`, on a topic.

The items are durable, so they outlive the process. Several processes may use one queue: each item
goes to one `get`. The standard queue learns of changes by its lock. This one asks the engine, so a
call that waits for another process looks again a few times a second.
"""

from __future__ import annotations

import json
import queue
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, RLock, get_ident
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from fmq import Consumer, Delivery, Message, RemoteConsumer
from fmq.arguments.options import SECONDS_MAX
from fmq.arguments.path import PathLike
from fmq.basics.clock import SystemClock
from fmq.compat.handle import Handle, engine_of, send
from fmq.errors import BadOption, Closed, FmqError, GroupExists, TopicExists

T = TypeVar("T")
Empty, Full = queue.Empty, queue.Full
LOOK_SECONDS = 0.2  # seconds after which a waiting call looks for changes by other processes
clock = SystemClock()


class _ShutDown(Exception):
    """Raised by `put` and `get` of a queue after `shutdown`."""


# Python has this class from 3.13 on.
ShutDown: type[Exception] = getattr(queue, "ShutDown", _ShutDown)


class Undecodable(FmqError):
    """The decoder of the queue raised. `message` is the message that `get` has taken."""

    def __init__(self, message: Message) -> None:
        super().__init__(
            f"{message.topic}/{message.queue} offset {message.offset}: the queue's decoder cannot "
            "read it. It was taken, and will not come again; this error has it as `message`, and "
            "engine.read() finds it."
        )
        self.message = message


def encode_json(item: object) -> bytes:
    """Return `item` as JSON. Raises TypeError if JSON cannot represent it."""
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()


class Queue(Generic[T]):
    """A durable queue with the interface of `queue.Queue`. Safe for threads."""

    def __init__(
        self,
        where: Handle | str | PathLike,
        topic: str = "queue",
        maxsize: int = 0,
        *,
        group: str = "queue",
        ack: Literal["get", "task_done"] = "get",
        encoder: Callable[[T], bytes] = encode_json,
        decoder: Callable[[bytes], T] = json.loads,
    ) -> None:
        """`where` is an engine, or a path. A path is used through `fmq.connect`.

        Items are JSON unless there is an `encoder` and a `decoder`. With ack="task_done" an item is
        redelivered if the process that got it dies. Otherwise `get` acks it at once. `put` waits
        for a place among `maxsize` items, which processes that put at the same instant may exceed.
        """
        if ack not in ("get", "task_done"):
            raise BadOption(f'ack={ack!r}: is "get" or "task_done". Nothing was changed.')
        self._engine, self._close_engine = engine_of(where)
        self._topic, self._group, self._ack = topic, group, ack
        self._encoder, self._decoder = encoder, decoder
        self.maxsize = maxsize
        self._mutex = RLock()
        # notified when an item was put, taken or done in this process
        self._changed = Condition(self._mutex)
        self._consumer: Consumer | RemoteConsumer | None = None
        # running calls that may have taken an item which is not in `_taken` yet
        self._taking: set[object] = set()
        # items that are taken and not done, by thread
        self._taken: dict[int, deque[Delivery | None]] = {}
        self.is_shutdown = False
        self._is_over = False  # True after shutdown(immediate=True)
        with suppress(TopicExists):
            self._engine.create_topic(topic, queues=1)
        with suppress(GroupExists):
            self._engine.create_group(group, topic)

    # --- putting --------------------------------------------------------------------------------

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue; it is durable on return.

        In a block of the same directory it is put if, and only if, the block commits.
        """
        body = self._encoder(item)
        deadline = _deadline(block, timeout)
        with self._changed:
            while True:
                if self.is_shutdown:
                    raise ShutDown
                if self.maxsize <= 0 or self._in_queue() < self.maxsize:
                    break
                if not self._wait(deadline):
                    raise Full
            if self.maxsize > 0:
                # Send under the lock, so that no other thread uses the same free place.
                send(self._engine, self._topic, body)
        if self.maxsize <= 0:
            send(self._engine, self._topic, body)
        self._notify()

    def put_nowait(self, item: T) -> None:
        """Put an item if there is a free place now. Raises Full if not."""
        self.put(item, block=False)

    # --- getting --------------------------------------------------------------------------------

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the next item, and wait for one. Raises Empty at the timeout."""
        deadline = _deadline(block, timeout)
        while True:
            if self._is_over:
                raise ShutDown
            left = max(0.0, deadline - clock.monotonic())
            # After a shutdown do not wait: this object puts no more items.
            found = self._take(0.0 if self.is_shutdown else min(left, LOOK_SECONDS))
            if found is not None:
                break
            if self.is_shutdown:
                raise ShutDown
            if left <= 0:
                raise Empty
        self._notify()
        try:
            return self._decoder(found.body)
        except Exception as error:
            raise Undecodable(found) from error

    def get_nowait(self) -> T:
        """Take an item if there is one now. Raises Empty if not."""
        return self.get(block=False)

    def _take(self, timeout: float) -> Message | None:
        consumer, call = self._joined(), object()
        self._taking.add(call)
        try:
            return self._take_from(consumer, timeout)
        finally:
            self._taking.discard(call)

    def _take_from(self, consumer: Consumer | RemoteConsumer, timeout: float) -> Message | None:
        delivery: Delivery | None = None
        if self._ack == "get":
            found = consumer.take(timeout=timeout)
            message = found[0] if found else None
        else:
            deliveries = consumer.poll(limit=1, timeout=timeout)
            delivery = deliveries[0] if deliveries else None
            message = None if delivery is None else delivery.message
        if message is not None:
            with self._mutex:
                self._taken.setdefault(get_ident(), deque()).append(delivery)
        return message

    def _joined(self) -> Consumer | RemoteConsumer:
        """Return the consumer. The first `get` makes it, so a program that only puts joins no
        group.
        """
        with self._mutex:
            if self._consumer is None:
                # Leases never end: a process's items are given back when its connection ends.
                self._consumer = self._engine.consumer(
                    self._topic, group=self._group, lease_seconds=SECONDS_MAX
                )
            return self._consumer

    # --- done -----------------------------------------------------------------------------------

    def task_done(self) -> None:
        """Mark one item that `get` returned as done: the oldest of this thread, or else of another
        thread. Raises ValueError if none is left.
        """
        with self._mutex:
            mine = self._taken.get(get_ident()) or next(filter(None, self._taken.values()), None)
            if not mine:
                raise ValueError("task_done() called too many times")
            delivery = mine.popleft()
            self._taken = {thread: items for thread, items in self._taken.items() if items}
        if delivery is not None:
            delivery.ack()
        self._notify()

    def join(self) -> None:
        """Wait until the queue is empty and all items that this object took are done. With
        ack="task_done", wait for the items of all processes.
        """
        with self._changed:
            while self.unfinished_tasks or self._has_taken_meanwhile():
                self._wait(SECONDS_MAX)

    def _has_taken_meanwhile(self) -> bool:
        """Return whether another running call has taken an item. The caller holds the lock."""
        running = {*self._taking}
        while running & self._taking:
            self._wait(SECONDS_MAX)
        return bool(self._taken)

    @property
    def unfinished_tasks(self) -> int:
        """Return how many items are in the queue, or were taken by this object and are not done
        yet.
        """
        with self._mutex:
            mine = sum(map(len, self._taken.values()))
            if self._is_over:
                return mine
            # With ack="task_done", items that are taken and not done are unacked, in any process.
            return self._unacked() + (mine if self._ack == "get" else 0)

    # --- looking --------------------------------------------------------------------------------

    def qsize(self) -> int:
        """Return how many items are in the queue. With ack="task_done" that includes the items that
        other processes have not done yet.
        """
        with self._mutex:
            return 0 if self._is_over else self._in_queue()

    def empty(self) -> bool:
        """Return whether there was no item in the queue a moment ago."""
        return not self.qsize()

    def full(self) -> bool:
        """Return whether there was no place in the queue a moment ago."""
        return 0 < self.maxsize <= self.qsize()

    def _in_queue(self) -> int:
        held = sum(map(len, self._taken.values())) if self._ack == "task_done" else 0
        return max(0, self._unacked() - held)

    def _unacked(self) -> int:
        infos = self._engine.groups(self._group)
        return sum(info.unread for info in infos if info.topic == self._topic)

    # --- the end --------------------------------------------------------------------------------

    def shutdown(self, immediate: bool = False) -> None:
        """Let `put` of this object raise ShutDown from now on, and `get` too, once the queue is
        empty, or at once if it is `immediate`. Nothing is lost: the items that are left stay in the
        directory.
        """
        with self._changed:
            self.is_shutdown = True
            self._is_over = self._is_over or immediate
            self._changed.notify_all()

    def close(self) -> None:
        """Leave the queue. Items that were taken and are not acked are redelivered."""
        self.shutdown(immediate=True)
        with self._mutex:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(Closed):
                consumer.close()
        self._close_engine()

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, deadline: float) -> bool:
        """Wait for a change, but only a moment. Return False at the deadline. The caller holds the
        lock.
        """
        left = deadline - clock.monotonic()
        if left <= 0:
            return False
        self._changed.wait(min(left, LOOK_SECONDS))
        return True

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<Queue {self._topic!r} of {self._engine.path}>"


def _deadline(block: Any, timeout: float | None) -> float:
    """Return the time until which a call may wait, by the monotonic clock."""
    if not block:
        return 0.0
    if timeout is None:
        return SECONDS_MAX
    if timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return clock.monotonic() + timeout

"""huey's storage on fmq: its tasks, schedule, results, locks and counters are in one directory.

The queue and the schedule are topics, and values by key are marks. A task that is enqueued inside
of a block of the same directory belongs to the block. Needs the extra `huey`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from heapq import heappop, heappush
from itertools import count
from threading import RLock
from typing import Any

import fmq
from fmq import Consumer, Delivery, RemoteConsumer
from fmq.arguments.options import SECONDS_MAX
from fmq.arguments.path import PathLike
from fmq.basics.clock import SystemClock
from fmq.compat.handle import ENGINES, Handle, send
from fmq.compat.values import NONE_YET, Values
from fmq.errors import BadOption, GroupExists, LeaseLost, TopicExists

try:
    from huey.api import Huey
    from huey.constants import EmptyData
    from huey.storage import BaseStorage
except ImportError as error:
    raise ImportError(
        "fmq.compat.huey needs huey: pip install 'fmq-engine[huey]'. Nothing was changed."
    ) from error

ETA = "eta"  # the header with the time of a task in the schedule, in seconds since 1970
READ_AT_ONCE = 1000
ALL = 1 << 60
DELAY_SECONDS_MAX = 10 * 365 * 86400.0
clock = SystemClock()


class FmqStorage(BaseStorage):
    """Implements huey's storage. Safe for threads; a fork goes on if it has a path."""

    blocking = True
    priority = True

    def __init__(
        self,
        name: str = "huey",
        path: str | PathLike | None = None,
        engine: Handle | None = None,
        read_timeout: float = 1.0,
        **storage_kwargs: Any,
    ) -> None:
        """`path` is a directory, which any process may use at once. An `engine` of the program is
        faster, and serves the threads of this process only. A worker waits `read_timeout` seconds
        for a task before it checks whether it has to stop.
        """
        super().__init__(name, **storage_kwargs)
        if (path is None) == (engine is None):
            raise BadOption(
                "a huey on fmq takes path= or engine=, one of them. Nothing was changed."
            )
        if engine is not None and not isinstance(engine, ENGINES):
            raise TypeError(f"engine={engine!r}: is one of fmq.open() or fmq.connect()")
        self._path = path
        # A module makes its huey while it is imported, and a consumer may fork after that.
        self._made: Handle = fmq.connect(path, lazy=True) if engine is None else engine  # type: ignore[arg-type]
        self._read_timeout = read_timeout
        self._queue = self._group = f"huey.{name}"
        self._schedule = f"huey.{name}.schedule"
        values = f"huey.{name}.values"
        self._values = Values(lambda: self._engine, f"huey.{name}/v/", values)
        self._counters = Values(lambda: self._engine, f"huey.{name}/c/", values)
        self._topics = self._queue, self._schedule, values
        self._lock = RLock()
        self._ready = False
        self._consumers: dict[tuple[int, str], Consumer | RemoteConsumer] = {}
        # the schedule's tasks that this process holds, by due time
        self._waiting: list[tuple[float, int, Delivery]] = []
        self._numbers = count()

    @property
    def _engine(self) -> Handle:
        """Return the engine. The first call makes the topics of this huey."""
        engine = self._made
        if not self._ready:
            for topic in self._topics:
                with suppress(TopicExists):
                    engine.create_topic(topic, queues=1)
            for topic in (self._queue, self._schedule):
                with suppress(GroupExists):
                    engine.create_group(self._group, topic)
            self._ready = True
        return engine

    def _consumer(self, topic: str) -> Consumer | RemoteConsumer:
        """Return this process's consumer of `topic`. After a fork the child makes its own."""
        with self._lock:
            key = os.getpid(), topic
            found = self._consumers.get(key)
            if found is None:
                # No lease: the tasks of a process are given back when the process ends.
                found = self._consumers[key] = self._engine.consumer(
                    topic, group=self._group, lease_seconds=SECONDS_MAX
                )
                if topic == self._schedule:
                    self._waiting = []
            return found

    def close(self) -> None:
        """Give back the tasks that this process holds, and close the client of a path; the next
        call makes a new one. huey calls this before it forks.
        """
        with self._lock:
            me = os.getpid()
            for (process, _), consumer in self._consumers.items():
                if process == me:
                    consumer.close()
            self._consumers, self._waiting = {}, []
            if self._path is not None:
                self._made.close()
                self._made = fmq.connect(self._path, lazy=True)

    # --- the queue ------------------------------------------------------------------------------

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Send a task with the transaction whose block is running, or at once. Priorities are 0 to
        9, the highest first. Others count as the nearest of these.
        """
        level = min(max(round(priority or 0), 0), 9)
        send(self._engine, self._queue, data, **({"priority": level} if level else {}))

    def dequeue(self) -> bytes | None:
        """Return the next task, acked before it is returned; None if none comes for a while."""
        found = self._consumer(self._queue).take(timeout=self._read_timeout)
        return found[0].body if found else None

    def queue_size(self) -> int:
        """Return how many tasks are in the queue."""
        return self._unread(self._queue)

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        """Return the tasks in the queue, without taking them, in the order of their priorities."""
        found = self._engine.unread(self._group, self._queue, limit=ALL)
        found.sort(key=lambda message: -(message.priority or 0))
        return [message.body for message in found[:limit]]

    def flush_queue(self) -> None:
        """Drop all tasks in the queue."""
        self._drop(self._queue)

    def _unread(self, topic: str) -> int:
        infos = self._engine.groups(self._group)
        return sum(info.unread for info in infos if info.topic == topic)

    def _drop(self, topic: str) -> None:
        self._engine.group(self._group).seek(topic, to="latest")

    # --- the schedule ---------------------------------------------------------------------------

    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        """Send a task for later, with the transaction whose block is running, or at once."""
        send(self._engine, self._schedule, data, headers={ETA: repr(ts.timestamp())})

    def read_schedule(self, ts: datetime) -> list[bytes]:
        """Return the tasks that are due at `ts`, acked before they are returned. Each goes to one
        process only.
        """
        with self._lock:
            consumer = self._consumer(self._schedule)
            while found := consumer.poll(limit=READ_AT_ONCE):
                for delivery in found:
                    self._keep(delivery, max(ts.timestamp(), clock.time_us() / 1_000_000))
            due = []
            while self._waiting and self._waiting[0][0] <= ts.timestamp():
                due.append(heappop(self._waiting)[2])
            return [delivery.body for delivery in due if _settle(delivery, Delivery.ack)]

    def _keep(self, delivery: Delivery, now: float) -> None:
        """Keep a task that is due at `now`. Give back a task that is due later, without counting an
        attempt.
        """
        eta = _eta(delivery)
        if eta <= now:
            heappush(self._waiting, (eta, next(self._numbers), delivery))
        else:
            delay = min(eta - now, DELAY_SECONDS_MAX)
            _settle(delivery, lambda held: held.release(delay=delay, count=False))

    def schedule_size(self) -> int:
        """Return how many tasks are in the schedule."""
        return self._unread(self._schedule)

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        """Return the tasks in the schedule, the soonest first, without taking them."""
        found = self._engine.unread(self._group, self._schedule, limit=ALL)
        found.sort(key=_eta)
        return [message.body for message in found[:limit]]

    def flush_schedule(self) -> None:
        """Drop all tasks in the schedule."""
        with self._lock:
            self._drop(self._schedule)
            self._waiting = []

    # --- values ---------------------------------------------------------------------------------

    def put_data(self, key: str | bytes, value: bytes, is_result: bool = False) -> None:
        """Store a value under a key."""
        self._values.put(_text(key), value)

    def peek_data(self, key: str | bytes) -> Any:
        """Return the value of a key, or EmptyData."""
        return _or_empty(self._values.get(_text(key)))

    def peek_many(self, keys: list[Any]) -> dict[Any, bytes]:
        """Return the values of all `keys` that have one."""
        by_text = {_text(key): key for key in keys}
        return {by_text[text]: value for text, value in self._values.get_many(by_text).items()}

    def pop_data(self, key: str | bytes) -> Any:
        """Remove and return the value of a key, or return EmptyData."""
        return _or_empty(self._values.pop(_text(key)))

    def has_data_for_key(self, key: str | bytes) -> bool:
        """Return whether a key has a value."""
        return self._values.has(_text(key))

    def put_if_empty(self, key: str | bytes, value: bytes, ttl: float | None = None) -> bool:
        """Store a value if the key has none, for `ttl` seconds or for ever. Return whether it was
        stored. Of several calls at the same time one succeeds.
        """
        text = _text(key)
        version, is_there = self._values.version(text)
        expires_us = 0 if ttl is None else clock.time_us() + round(ttl * 1_000_000)
        return not is_there and self._values.put(text, value, expect=version, expires_us=expires_us)

    def incr(self, key: str | bytes, amount: int = 1) -> int:
        """Add to a counter, and return its new value."""
        text = _text(key)
        while True:
            version, is_there = self._counters.version(text)
            before = self._counters.get(text) if is_there else b"0"
            if before is None:
                continue  # another process deleted the counter meanwhile
            number = int(before) + amount
            if amount == 0 and version == NONE_YET:
                return number
            if self._counters.put(text, str(number).encode(), expect=version):
                return number

    def delete_counter(self, key: str | bytes) -> None:
        """Remove a counter."""
        self._counters.pop(_text(key))

    def result_store_size(self) -> int:
        """Return how many values there are."""
        return self._values.count()

    def result_items(self) -> dict[str, bytes]:
        """Return all keys and values."""
        return self._values.items()

    def flush_results(self) -> None:
        """Remove all values."""
        self._values.clear()

    def flush_counters(self) -> None:
        """Remove all counters."""
        self._counters.clear()


class FmqHuey(Huey):
    """A huey whose storage is a directory of fmq: `FmqHuey("app", path="jobs")`.

    It takes the arguments of Huey and of FmqStorage.
    """

    storage_class = FmqStorage


def _eta(what: Any) -> float:
    return float(what.headers[ETA])


def _settle(delivery: Delivery, how: Callable[[Delivery], object]) -> bool:
    """Ack or release a task of the schedule. Return False if a flush has removed the task."""
    try:
        how(delivery)
    except LeaseLost:
        return False
    return True


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "backslashreplace")


def _or_empty(value: bytes | None) -> Any:
    return EmptyData if value is None else value

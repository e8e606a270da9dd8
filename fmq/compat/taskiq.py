"""A broker for taskiq whose tasks are messages of a topic: the extra `taskiq`.

    broker = fmq.compat.taskiq.FmqBroker("shop")

A task that is sent (`kiq`) inside of a block belongs to its transaction. A worker acks a task when
taskiq says so, which is after it has run, unless its options say otherwise.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import Any

import fmq
import fmq.aio

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError as error:
    raise ImportError(
        "fmq.compat.taskiq needs taskiq: pip install 'fmq-engine[taskiq]'. Nothing was changed."
    ) from error

WAIT_SECONDS = 60.0  # seconds that one poll waits for a task


class FmqBroker(AsyncBroker):
    """Sends tasks to a topic, and takes them from it as a member of a group."""

    def __init__(
        self,
        where: str | os.PathLike[str] | fmq.aio.AsyncEngine,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        lease_seconds: float = 3600.0,
        prefetch: int = 1,
        **named: Any,
    ) -> None:
        """`where` is a directory, which `fmq.aio.connect` connects to at startup, or an engine for
        the running loop. A task that runs for longer than `lease_seconds` is given to another
        worker as well. A worker takes `prefetch` tasks at once. taskiq gets the other arguments in
        `named`.
        """
        super().__init__(**named)
        self._where = where
        self._topic = topic
        self._group = group
        self._lease_seconds = lease_seconds
        self._prefetch = prefetch
        self._engine: fmq.aio.AsyncEngine | None = None

    async def startup(self) -> None:
        """Connect."""
        if isinstance(self._where, fmq.aio.AsyncEngine):
            self._engine = self._where
        else:
            self._engine = await fmq.aio.connect(self._where)
        await super().startup()

    async def shutdown(self) -> None:
        """Close the connection, unless it is the caller's."""
        await super().shutdown()
        engine, self._engine = self._engine, None
        if engine is not None and engine is not self._where:
            await engine.close()

    def _open(self) -> fmq.aio.AsyncEngine:
        if self._engine is None:
            raise fmq.errors.WrongState(
                "the broker is not started. Nothing was changed; await broker.startup() first."
            )
        return self._engine

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task: in the transaction whose block is running, or at once if there is none.

        The label `delay`, in seconds, lets it wait, and `priority` goes with its message.
        """
        engine = self._open()
        named: dict[str, Any] = {"headers": {"task": message.task_name, "id": message.task_id}}
        if (delay := message.labels.get("delay")) is not None:
            named["delay"] = float(delay)
        if (priority := message.labels.get("priority")) is not None:
            named["priority"] = int(priority)
        tx = fmq.current_transaction(engine)
        if tx is not None:
            tx.send(self._topic, message.message, **named)
        else:
            await engine.send(self._topic, message.message, **named)

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Yield tasks as they come."""
        engine = self._open()
        mine = {"group": self._group, "lease_seconds": self._lease_seconds}
        async with engine.consumer(self._topic, **mine) as consumer:  # type: ignore[arg-type]
            while True:
                for each in await consumer.poll(limit=self._prefetch, timeout=WAIT_SECONDS):
                    yield AckableMessage(data=each.body, ack=each.ack)

"""The bindings of kombu's exchanges. They are marks of the journal, so all processes share them.

A queue that only one worker or client uses is *volatile*. Its bindings count only while its topic
has a consumer: after a kill no process would delete the queue, and its messages would pile up.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, unquote

from fmq.basics.clock import SystemClock
from fmq.compat.handle import Handle
from fmq.errors import UnknownGroup

GROUP = "kombu"
BINDINGS = "kombu/binding/"
VOLATILE = b"volatile"
# How many seconds after a worker has left its own queue messages still go to the queue.
UNBOUND_SECONDS = 60
clock = SystemClock()


def topic_of(queue: str) -> str:
    """Return the topic of a queue of kombu's."""
    return f"kombu.{queue}"


class Bindings:
    """Which queues get the messages of an exchange."""

    def __init__(self, engine: Handle) -> None:
        self._engine = engine

    def bind(self, exchange: str, routing_key: str, queue: str, *, is_volatile: bool) -> None:
        """Let a queue have messages of an exchange."""
        name = _binding(exchange, routing_key, queue)
        if is_volatile or self._engine.mark(name) is None:
            tx = self._engine.transaction()
            tx.mark(name, clock.time_us(), VOLATILE if is_volatile else b"")
            tx.commit()

    def unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        """Let a queue have no more messages of an exchange."""
        tx = self._engine.transaction()
        tx.unmark(_binding(exchange, routing_key, queue))
        tx.commit()

    def of(self, exchange: str) -> Iterator[tuple[str, str, bool]]:
        """Yield the routing key and the queue of each binding, and whether the queue is alive. A
        queue that is not alive may be deleted.
        """
        prefix, living = _prefix(exchange), None
        for name, mark in self._engine.marks(prefix=prefix).items():
            routing_key, queue = map(unquote, name.removeprefix(prefix).split("/"))
            is_alive = True
            if mark.data == VOLATILE:
                living = self._living() if living is None else living
                is_old = clock.time_us() - mark.value > UNBOUND_SECONDS * 1_000_000
                is_alive = topic_of(queue) in living or not is_old
            yield routing_key, queue, is_alive

    def _living(self) -> set[str]:
        """Return the topics that have consumers now."""
        try:
            members = self._engine.group(GROUP).members()
        except UnknownGroup:
            return set()
        return {topic for member in members for topic in member.topics}


def _prefix(exchange: str) -> str:
    return f"{BINDINGS}{quote(exchange, safe='')}/"


def _binding(exchange: str, routing_key: str, queue: str) -> str:
    return f"{_prefix(exchange)}{quote(routing_key, safe='')}/{quote(queue, safe='')}"

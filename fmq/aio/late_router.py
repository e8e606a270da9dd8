"""Choosing queues for a client's transaction on a loop. `tx.send` must not ask the engine process
how many queues a topic has, because that would have to wait.

A message is put aside under the queue number LATER if its topic is not known to the client and its
caller names no queue. Before the transaction is written, the client awaits the number of queues and
chooses.
"""

from __future__ import annotations

from typing import Any

from fmq.arguments.names import check_count, check_name, no_queue
from fmq.arguments.options import QUEUES_MAX
from fmq.tx.commands.buffer import RunPlace, TransactionBuffer
from fmq.tx.commands.router import Router

LATER = -1


class LateRouter:
    """A Router that never asks the engine process."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def target(self, topic: str, key: str | None, queue: int | None) -> tuple[str, int]:
        """Return topic name and queue number for a message. The number is LATER if the topic is
        unknown.
        """
        known = self._router.find(topic)
        if known is not None and queue is None and len(known.queues) == 1:
            return known.name, 0
        return self._router.name_of(topic), self.choose_queue(topic, key, queue)

    def has_one_queue(self, topic: str, queue: int | None) -> bool:
        """Return whether all messages of `topic` go to one queue, which may be LATER."""
        return self._router.find(topic) is None or self._router.has_one_queue(topic, queue)

    def choose_queue(self, topic: str, key: str | None, queue: int | None) -> int:
        """Return the queue for a message; LATER if the topic is unknown."""
        if self._router.find(topic) is not None:
            return self._router.choose_queue(topic, key, queue)
        check_name("topic", topic)
        if queue is None:
            return LATER
        number = check_count("queue", queue, 0)
        # No topic can have a queue with this number. Whether the topic has a smaller number is
        # checked later.
        if number >= QUEUES_MAX:
            raise no_queue(topic, number, QUEUES_MAX)
        return number

    def check_target(self, topic: str, queue: int | None) -> None:
        """Raise the errors of `choose_queue`, for a call that sends no message."""
        if self._router.find(topic) is not None:
            self._router.check_target(topic, queue)
        else:
            self.choose_queue(topic, None, queue)


def unknown_topics(transaction: TransactionBuffer) -> list[str]:
    """Return the topics of messages that have the queue LATER."""
    return [topic for topic, queue, _ in transaction.runs if queue == LATER]


def choose_now(transaction: TransactionBuffer, router: Router) -> None:
    """Choose queues for the messages that have the queue LATER. Their topics are known by now."""
    runs: dict[RunPlace, Any] = {}
    for (topic, queue, timing), items in transaction.runs.items():
        if queue != LATER:
            runs.setdefault((topic, queue, timing), []).extend(items)
            continue
        for item in items:
            key = None if isinstance(item, bytes) else item.key
            number = router.choose_queue(topic, key, None)
            runs.setdefault((topic, number, timing), []).append(item)
    transaction.runs = runs

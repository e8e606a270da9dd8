"""Topics and their queues, as the ledger has them. Guarded by the engine's lock."""

from __future__ import annotations

from collections.abc import Callable

from fmq.basics.results import TopicCodec
from fmq.store.index.index import NO_LANE
from fmq.store.reading.latest_run import LatestRun
from fmq.tx.ledger.spans import QueueSpans


class Queue:
    """An ordered sequence of messages of a topic. Messages from `first` up to `next` are visible.
    Those from `next` up to `end` are planned.
    """

    __slots__ = (
        *("end", "first", "idle", "is_placed", "lane", "latest", "next", "number", "owner"),
        *("spans", "topic"),
    )

    def __init__(self, owner: Topic, number: int) -> None:
        self.owner = owner
        self.topic = owner.name
        self.number = number
        self.first = 0
        self.next = 0
        self.end = 0
        # False in a replay until the first record of the queue is met, which tells where the queue
        # begins.
        self.is_placed = True
        self.spans: QueueSpans | None = None  # None while no message has a priority or expires
        self.latest: LatestRun | None = None  # the last run that woke a consumer
        # The queue's part of the index, in the newest segment that has messages of the queue.
        self.lane = NO_LANE
        # Called once with the queue's number when the next message comes.
        self.idle: list[Callable[[int], None]] = []

    def end_idle(self) -> None:
        """Tell the groups that had nothing to hand out of this queue that it has a message."""
        for found_nothing in self.idle:
            found_nothing(self.number)
        self.idle.clear()


class Topic:
    """A name with its queues."""

    __slots__ = (
        *("codec", "counts_from", "has_priorities", "has_record", "name", "queues", "retain_ms"),
        "waiting",
    )

    def __init__(self, name: str, queues: int) -> None:
        self.name = name
        self.queues = [Queue(self, number) for number in range(queues)]
        self.has_record = False  # True once its TOPIC record is applied
        self.has_priorities = False  # True once a message has a priority above 0
        # How long the topic keeps messages, in milliseconds; 0: as the options say.
        self.retain_ms = 0
        # How its bodies are made; None: as each program says.
        self.codec: TopicCodec | None = None
        # How many messages its queues had ever had when the engine was opened.
        self.counts_from = 0
        # Functions that are called once, at the next message.
        self.waiting: list[Callable[[], None]] = []

    def sent(self) -> int:
        """Return how many messages have become visible since the engine was opened."""
        return sum(queue.next for queue in self.queues) - self.counts_from

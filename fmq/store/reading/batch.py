"""Consecutive messages of one queue that were read, as bodies or as Message objects.

Bodies are cut out of their records when the batch is made, and their checksums are verified.
`Message` objects are built only when they are asked for: building one costs more than reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fmq.basics.message import ABSENT, Message, Origin, make_messages
from fmq.errors import Damaged, NewerFormat
from fmq.store.bytes.columns import CARRIED, Columns
from fmq.store.bytes.extras import has_extras
from fmq.store.bytes.kinds import Kind
from fmq.store.reading.window import UNREADABLE, Window, refused


class Stretch(NamedTuple):
    """Runs of a batch whose records are in one window."""

    places: list[int]
    """Where in the segment the publishing records lie."""
    counts: list[int]
    window: Window
    referring: Window | None = None
    """Where the one publishing record lies, if the bodies lie elsewhere, in `window`."""
    body_place: int = 0

    def messages(
        self, place: int, seed: int, bodies: Sequence[bytes], first: int, low: int
    ) -> list[Message]:
        """Return `bodies` as messages from the offset `low` on, of the run at `place`. Raises
        Damaged or NewerFormat.
        """
        window = self.window
        try:
            if self.referring is not None:
                run = self.referring.record(place, seed)
                assert run.kind == Kind.REF_MESSAGE
                body_place = self.body_place
                holder = window.record(body_place, seed)
            else:
                body_place = place
                run = holder = window.record(place, seed)
            tx_id, producer = run.tx_id or None, run.producer or None
            origin = Origin(run.topic, run.queue, run.position, run.time_us, tx_id, producer)
            if not (holder.flags & CARRIED or has_extras(holder.extension)):
                return make_messages(origin, low, bodies)
            return messages_of(window.columns(body_place, holder), bodies, origin, first, low)
        except UNREADABLE as error:
            raise refused(window.base, place, error) from None


class Runs(Protocol):
    """The interface from which a batch builds its messages: a Stretch, or a run in memory."""

    @property
    def places(self) -> Sequence[int]: ...

    @property
    def counts(self) -> Sequence[int]: ...

    def messages(
        self, place: int, seed: int, bodies: Sequence[bytes], first: int, low: int
    ) -> list[Message]: ...


class Batch:
    """Consecutive messages of one queue, from `offset` up to, not including, `next`."""

    __slots__ = (
        "_bodies",
        "_first",
        "_given",
        "_messages",
        "_offset",
        "_queue",
        "_runs",
        "_seed",
        "_topic",
    )

    def __init__(
        self,
        topic: str,
        queue: int,
        offset: int,
        bodies: Sequence[bytes],
        first: int,
        runs: Sequence[Runs],
        seed: int,
    ) -> None:
        """`runs` turn `bodies` into messages. The first run begins at the offset `first`."""
        self._topic = topic
        self._queue = queue
        self._offset = offset
        self._bodies = tuple(bodies)
        self._first = first
        self._runs = runs
        self._seed = seed
        self._messages: list[Message] | None = None
        self._given = 0  # callers have got the messages below this offset

    @property
    def topic(self) -> str:
        """The topic of the messages."""
        return self._topic

    @property
    def queue(self) -> int:
        """The number of the queue of the messages."""
        return self._queue

    @property
    def offset(self) -> int:
        """The offset of the first message."""
        return self._offset

    @property
    def next(self) -> int:
        """The offset after the last message."""
        return self._offset + len(self._bodies)

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """The bodies of the messages, in the order of their offsets."""
        return self._bodies

    def __repr__(self) -> str:
        return f"<Batch {self._topic}/{self._queue} offset {self._offset}, {len(self._bodies)}>"

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def built(self) -> list[Message] | None:
        """Return the messages if they are built already, so that nothing is raised; else None."""
        return self._messages

    @property
    def messages(self) -> list[Message]:
        """The messages with their keys, tags, headers and origin."""
        built = self._messages
        if built is None:
            built = []
            self._build(built)
            self._messages = built
        return built

    def _build(self, messages: list[Message]) -> None:
        offset, first, end = self._offset, self._first, self.next
        for runs in self._runs:
            for place, count in zip(runs.places, runs.counts, strict=True):
                low, high = max(first, offset), min(first + count, end)
                if low < high:
                    bodies = self._bodies[low - offset : high - offset]
                    messages += runs.messages(place, self._seed, bodies, first, low)
                first += count

    def sound(self) -> Batch:
        """Return the messages before the first run that cannot be read, and at least one. Raises
        Damaged or NewerFormat.
        """
        messages: list[Message] = []
        try:
            self._build(messages)
        except (Damaged, NewerFormat):
            if not messages:
                raise
        batch = self.part(self._offset, len(messages))
        batch._messages = messages
        return batch

    def messages_from(self, offset: int, limit: int) -> list[Message]:
        """Return the messages that `part` would hold. Reuse built ones, unless a caller has them
        and may change them.
        """
        built = self._messages
        if built is None or offset < self._given:
            return self.part(offset, limit).messages
        low = offset - self._offset
        found = built[low : low + limit]
        self._given = offset + len(found)
        return found

    def part(self, offset: int, limit: int) -> Batch:
        """Return a batch of at most `limit` messages from `offset` on, with its own list and
        headers, which a caller may change.
        """
        low = offset - self._offset
        assert 0 <= low < len(self._bodies)
        bodies = self._bodies[low : low + limit]
        batch = Batch(self._topic, self._queue, offset, bodies, self._first, self._runs, self._seed)
        if self._messages is not None and offset >= self._given:
            batch._messages = self.messages_from(offset, limit)
        return batch


def messages_of(
    columns: Columns, bodies: Sequence[bytes], origin: Origin, first: int, low: int
) -> list[Message]:
    """Return messages from the offset `low` on, of the run that begins at `first`."""
    part = low - first, low - first + len(bodies)
    keys, tags = columns.texts(*part)
    carried = keys or ABSENT, tags or ABSENT, columns.headers(*part) or ABSENT
    if not has_extras(columns.extension):
        return make_messages(origin, low, bodies, *carried)
    extras = columns.extras()
    ids, priorities = extras.ids(*part), extras.priorities(*part)
    more = ids or ABSENT, priorities or ABSENT, extras.expiries(*part) or ABSENT
    return make_messages(origin, low, bodies, *carried, *more)

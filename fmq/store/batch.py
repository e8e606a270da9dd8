"""Messages that were read: consecutive ones of one queue, as bodies at once or as objects.

Bodies are cut out of their records when the batch is made, and their checksums verified;
`Message` objects are built only when they are asked for, because building one costs more than
reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, Protocol

from fmq.errors import Damaged, NewerFormat
from fmq.message import Message, Origin, messages_read, plain_messages_read
from fmq.store.columns import CARRIED, Columns
from fmq.store.decoding import columns_of
from fmq.store.kinds import Kind
from fmq.store.window import UNREADABLE, Window, refused


class Stretch(NamedTuple):
    """Runs of a batch that lie in the same window."""

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
        """`bodies` as messages from the offset `low` on, of the run at `place`; Damaged or
        NewerFormat.
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
            if not holder.flags & CARRIED:
                return plain_messages_read(bodies, low, origin)
            columns = columns_of(window.data, body_place - window.start, holder)
            return messages_of(columns, bodies, origin, first, low)
        except UNREADABLE as error:
            raise refused(window.base, place, error) from None


class Runs(Protocol):
    """What a batch builds messages from when asked for them: a Stretch, or what is in memory."""

    @property
    def places(self) -> Sequence[int]: ...

    @property
    def counts(self) -> Sequence[int]: ...

    def messages(
        self, place: int, seed: int, bodies: Sequence[bytes], first: int, low: int
    ) -> list[Message]: ...


class Batch:
    """Consecutive messages of one queue, from `offset` on; where they stand and their bodies are
    nobody's to change.
    """

    __slots__ = (
        *("_bodies", "_first", "_given", "_messages", "_runs", "_seed"),
        *("_offset", "_queue", "_topic"),
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
        """`first` is the offset of the first message of the first run in `runs`."""
        self._topic = topic
        self._queue = queue
        self._offset = offset
        self._bodies = tuple(bodies)
        self._first = first
        self._runs = runs
        self._seed = seed
        self._messages: list[Message] | None = None
        self._given = 0  # to somebody, up to this offset

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def queue(self) -> int:
        return self._queue

    @property
    def offset(self) -> int:
        """The offset of the first message."""
        return self._offset

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return self._bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def next(self) -> int:
        """The offset behind the last message."""
        return self._offset + len(self._bodies)

    @property
    def messages(self) -> list[Message]:
        """The messages with their keys, tags, headers and origin."""
        if self._messages is None:
            messages: list[Message] = []
            self._build(messages)
            self._messages = messages
        return self._messages

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
        """What lies before a run that gives no messages, at least one; Damaged or NewerFormat."""
        messages: list[Message] = []
        try:
            self._build(messages)
        except (Damaged, NewerFormat):
            if not messages:
                raise
        batch = self.part(self._offset, len(messages))
        batch._messages = messages
        return batch

    def part(self, offset: int, limit: int) -> Batch:
        """The messages from `offset` on, which is in this batch, at most `limit`: with a list and
        headers that nobody else is given, as whoever has them may change them.
        """
        low = offset - self._offset
        assert 0 <= low < len(self._bodies)
        part = slice(low, low + limit)
        bodies = self._bodies[part]
        batch = Batch(self._topic, self._queue, offset, bodies, self._first, self._runs, self._seed)
        if self._messages is not None and offset >= self._given:
            batch._messages = self._messages[part]
            self._given = batch.next  # below, they are built anew
        return batch


def messages_of(
    columns: Columns, bodies: Sequence[bytes], origin: Origin, first: int, low: int
) -> list[Message]:
    """Messages from the offset `low` on, of the run that begins at `first`."""
    part = slice(low - first, low - first + len(bodies))
    keys, tags = columns.texts()
    headers = columns.headers()
    nothing = repeat(None)
    return messages_read(
        bodies,
        keys[part] if keys else nothing,
        tags[part] if tags else nothing,
        headers[part] if headers else nothing,
        low,
        origin,
    )

"""Messages that were read: consecutive ones of one queue, as bodies at once or as objects.

Bodies are cut out of their records when the batch is made, and their checksums verified;
`Message` objects are built only when they are asked for, because building one costs more than
reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from fmq.errors import Damaged, NewerFormat
from fmq.message import ABSENT, Message, Origin, make_messages
from fmq.store.columns import CARRIED, Columns
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
                return make_messages(origin, low, bodies)
            return messages_of(window.columns(body_place, holder), bodies, origin, first, low)
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


set_frozen = object.__setattr__


def set_slots(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """What a copy of a frozen object is given, each slot of the other one's."""
    for name, value in state[1].items():
        set_frozen(self, name, value)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Batch:
    """Consecutive messages of one queue, from `offset` up to, not including, `next`.

    Made by `batch_of`, whose parameters say what else it holds.
    """

    __slots__ = (
        *("topic", "queue", "offset", "next", "bodies"),
        *("_first", "_given", "_messages", "_runs", "_seed"),
    )

    topic: str
    queue: int
    offset: int
    """The offset of the first message."""
    next: int
    """The offset behind the last message."""
    bodies: tuple[bytes, ...]

    if TYPE_CHECKING:
        # No fields: what it makes messages of, and has made, up to where they are somebody's.
        _first: ClassVar[int]
        _runs: ClassVar[Sequence[Runs]]
        _seed: ClassVar[int]
        _messages: ClassVar[list[Message] | None]
        _given: ClassVar[int]

    def __init__(self) -> None:
        raise TypeError("a Batch is what engine.read_batch gives, and cannot be made")

    __setstate__ = set_slots

    def __repr__(self) -> str:
        return f"<Batch {self.topic}/{self.queue} offset {self.offset}, {len(self.bodies)}>"

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def messages(self) -> list[Message]:
        """The messages with their keys, tags, headers and origin."""
        built = self._messages
        if built is None:
            built = []
            self._build(built)
            set_frozen(self, "_messages", built)
        return built

    def _build(self, messages: list[Message]) -> None:
        offset, first, end = self.offset, self._first, self.next
        for runs in self._runs:
            for place, count in zip(runs.places, runs.counts, strict=True):
                low, high = max(first, offset), min(first + count, end)
                if low < high:
                    bodies = self.bodies[low - offset : high - offset]
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
        batch = self.part(self.offset, len(messages))
        set_frozen(batch, "_messages", messages)
        return batch

    def messages_from(self, offset: int, limit: int) -> list[Message]:
        """Those of `part`, whose batch is not made if there are messages already."""
        built = self._messages
        if built is None or offset < self._given:
            return self.part(offset, limit).messages
        low = offset - self.offset
        found = built[low : low + limit]
        set_frozen(self, "_given", offset + len(found))  # below, they are built anew
        return found

    def part(self, offset: int, limit: int) -> Batch:
        """The messages from `offset` on, which is in this batch, at most `limit`: with a list and
        headers that nobody else is given, as whoever has them may change them.
        """
        low = offset - self.offset
        assert 0 <= low < len(self.bodies)
        bodies = self.bodies[low : low + limit]
        batch = batch_of(
            self.topic, self.queue, offset, bodies, self._first, self._runs, self._seed
        )
        if self._messages is not None and offset >= self._given:
            set_frozen(batch, "_messages", self.messages_from(offset, limit))
        return batch


class _Draft:
    """A Batch before it is frozen, as that of a Message: see fmq/message.py."""

    __slots__ = Batch.__slots__


def batch_of(
    topic: str,
    queue: int,
    offset: int,
    bodies: Sequence[bytes],
    first: int,
    runs: Sequence[Runs],
    seed: int,
) -> Batch:
    """A batch of `bodies`, of which `runs` make messages; the first of those begins at `first`."""
    draft: Any = _Draft()
    draft.topic, draft.queue, draft.offset = topic, queue, offset
    draft.bodies = bodies = tuple(bodies)
    draft.next = offset + len(bodies)
    draft._first, draft._runs, draft._seed = first, runs, seed
    draft._messages = None
    draft._given = 0  # to somebody, up to this offset
    draft.__class__ = Batch
    return draft  # type: ignore[no-any-return]


def messages_of(
    columns: Columns, bodies: Sequence[bytes], origin: Origin, first: int, low: int
) -> list[Message]:
    """Messages from the offset `low` on, of the run that begins at `first`."""
    part = low - first, low - first + len(bodies)
    keys, tags = columns.texts(*part)
    headers = columns.headers(*part)
    return make_messages(origin, low, bodies, keys or ABSENT, tags or ABSENT, headers or ABSENT)

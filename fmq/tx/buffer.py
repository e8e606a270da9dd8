"""What an open transaction is given: messages and acks, kept in memory within the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, NoReturn, Protocol
from weakref import finalize

from fmq.errors import WrongState
from fmq.message import Body, Message
from fmq.store.content import as_bytes, copied_headers, split_bodies
from fmq.store.kinds import AckRange
from fmq.store.record import utf8
from fmq.tx.limits import COLUMNS_BYTES, RUN_BYTES, Limits
from fmq.tx.names import check_name, no_text
from fmq.tx.writer import Writer

NAME_BYTES = 4 * 2  # of each character of a topic's name, which may come twice


class Phase(Enum):
    """Where the user is with it."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"  # a step failed, and may have become durable


OPEN, IN_DOUBT = Phase.OPEN, Phase.IN_DOUBT


class Ackable(Protocol):
    """A delivery, or a batch of them, as a transaction sees it."""

    def hold_for_transaction(self, writer: Writer, holder: object) -> AckRange:
        """What an ack with `writer` would say; from now on `holder` has it, and no lease ends."""

    def release_under_lock(self, holder: object) -> None:
        """The transaction was rolled back: the lease runs again, if it is `holder` that has it.
        By whoever has the engine's lock.
        """


# What one transaction acks, and what holds it meanwhile: no other one's hold is given back with it.
Taken = tuple[Ackable, object]


def _let_go(taken: Iterable[Taken]) -> None:
    """The transaction does not ack it after all. Under the engine's lock."""
    for ackable, holder in taken:
        ackable.release_under_lock(holder)


class TransactionBuffer:
    """Messages by topic and queue, and acks: the part of a transaction before its first step."""

    _savepoints: list[object] | None = None  # what it can be rolled back to, the oldest first

    def __init__(self, writer: Writer, limits: Limits, tx_id: str, producer: str) -> None:
        self._writer = writer
        self._topics = writer.ledger.topics
        self._limits = limits
        self.names = tx_id, producer
        self._names_bytes = len(tx_id) + (len(utf8(producer)) if producer else 0)
        self.phase = OPEN
        self._bytes = 0  # of all but what has been taken from `_room` since it was given
        self._at_most = 0  # as many messages; it is counted when that comes to the limit
        self._room = self._given = limits.first_room
        self.runs: dict[tuple[str, int], list[Message | bytes]] = {}
        self.plain = True  # whether all messages are bodies without key, tag and headers
        # How to add a body to the run of a topic with one queue, as long as there is room.
        self._begun: dict[str, Callable[[bytes], None]] = {}
        self.ackables: list[Taken] = []
        self.acks: list[AckRange] = []
        self._if_dropped: Any = None  # a finalizer, for the deliveries that it would ack

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # Each of two copies would commit, under one id.
        raise TypeError(f"transaction {self.tx_id!r} cannot be copied or pickled; begin another")

    @property
    def tx_id(self) -> str:
        """The id by which the transaction can be asked about."""
        return self.names[0]

    @property
    def producer(self) -> str:
        return self.names[1]

    @property
    def _bytes_max(self) -> int:
        return self._limits.bytes_max(self._names_bytes)

    @property
    def messages(self) -> int:
        """How many have been added."""
        return sum(map(len, self.runs.values()))

    def send(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
    ) -> None:
        """Add a message; nobody sees it before commit."""
        if (
            key is None
            and tag is None
            and (headers is None or (type(headers) is dict and not headers))
        ):
            if type(body) is not bytes:
                body = as_bytes(body)
            size = len(body) + COLUMNS_BYTES
            if queue is None:
                # What `_add` would do, at a third of its price: most messages come this way.
                try:
                    add = self._begun.get(topic)
                except TypeError:
                    raise no_text("topic", topic) from None
                if add is not None and (room := self._room - size) >= 0:
                    self._room = room
                    add(body)
                    return
            self._add(topic, None, queue, body, size)
        else:
            self._add_message(topic, Message(as_bytes(body), key, tag, headers), queue)

    def send_many(
        self, topic: str, bodies: Iterable[Body | Message], *, queue: int | None = None
    ) -> None:
        """Add several, bodies or Messages: all of them, or none if one is refused."""
        items, _ = split_bodies(bodies)
        if not items:
            self._require(OPEN, "send")
            self._writer.check_target(topic, queue)
        self._end_room()
        before = self._bytes, {place: len(run) for place, run in self.runs.items()}
        try:
            for item in items:
                if isinstance(item, Message):
                    self._add_message(topic, item, queue)
                else:
                    body = as_bytes(item)
                    self._add(topic, None, queue, body, len(body) + COLUMNS_BYTES)
        except BaseException:
            self._take_back(*before)
            raise

    def _take_back(self, size: int, runs: dict[tuple[str, int], int]) -> None:
        self._end_room()
        self._bytes = size
        self.runs = {place: self.runs[place][:count] for place, count in runs.items()}
        self._begun.clear()

    def _add_message(self, topic: str, message: Message, queue: int | None) -> None:
        body = as_bytes(message.body)
        if len(body) > self._limits.message_bytes_max:
            self._limits.refuse_message(len(body))
        # As it is now: the caller may fill the same buffer and the same dict again.
        headers = None if message.headers is None else copied_headers(message.headers)
        message = Message(body, message.key, message.tag, headers)
        size = self._limits.size_of(message)
        self.plain = False  # also if it is refused
        self._add(topic, message.key, queue, message, size)

    def _add(
        self, topic: str, key: str | None, queue: int | None, item: Message | bytes, size: int
    ) -> None:
        try:
            known = self._topics.get(topic)
        except TypeError:
            raise no_text("topic", topic) from None
        topic = check_name("topic", topic) if known is None else known.name
        alone = queue is None and known is not None and len(known.queues) == 1
        place = topic, 0 if alone else self._writer.choose_queue(topic, key, queue)
        run = self.runs.get(place)
        if run is None:
            size += RUN_BYTES + self._names_bytes + NAME_BYTES * len(topic)
        room = self._room - size
        if room < 0:
            if type(item) is bytes and len(item) > self._limits.message_bytes_max:
                self._limits.refuse_message(len(item))
            room = self._more_room(size)
        self._room = room
        if run is not None:
            run.append(item)
        else:
            self.runs[place] = run = [item]
        if alone:
            self._begun[topic] = run.append

    def _more_room(self, size: int) -> int:
        """What is left once a message of `size` has been added, and taken for those that follow:
        so much that no body that fits exceeds any limit, that of messages included.
        """
        if self.phase is not OPEN:
            self._refuse("send")
        self._end_room()
        limits = self._limits
        size += self._bytes
        bytes_max = self._bytes_max
        if self._at_most >= limits.messages_max:
            self._at_most = self.messages
        if size > bytes_max or self._at_most >= limits.messages_max:
            limits.refuse(self.tx_id, size, bytes_max, self.messages + 1)
        self._bytes = size
        self._at_most += 1
        self._given = self._room = room = min(
            bytes_max - size,
            limits.message_bytes_max,
            (limits.messages_max - self._at_most) * COLUMNS_BYTES,
        )
        return room

    def _end_room(self) -> None:
        """What has been taken from it is counted; the next message is looked at more closely."""
        taken = self._given - self._room
        self._bytes += taken
        self._at_most += taken // COLUMNS_BYTES
        self._given = self._room = 0

    def ack(self, delivery: Ackable) -> None:
        """Let the commit also ack `delivery`: consume, transform and produce exactly once."""
        self._require(OPEN, "ack")
        if not hasattr(delivery, "hold_for_transaction"):
            raise TypeError(
                f"tx.ack takes a delivery or a batch of them, not {type(delivery).__name__}"
            )
        self._end_room()
        taken = delivery, object()
        self.ackables.append(taken)
        self._watch_over_acks()
        try:
            size = self._add_ack(delivery.hold_for_transaction(self._writer, taken[1]))
        except BaseException:
            self._give_back(len(self.ackables) - 1)
            raise
        if size > self._bytes_max:
            self._give_back(len(self.ackables) - 1)
            self._limits.refuse(self.tx_id, size, self._bytes_max, self.messages)

    def _give_back(self, keep: int = 0) -> None:
        """Return the deliveries that it would ack to their consumers, but for the first `keep`."""
        taken = self.ackables[keep:]
        if taken:
            self._writer.change(partial(_let_go, taken))
            del self.ackables[keep:]

    def _watch_over_acks(self) -> None:
        """If nobody ends the transaction, what it would ack shall not be held for ever."""
        if self._if_dropped is None and self.ackables:
            let_go = partial(_let_go, self.ackables)
            self._if_dropped = finalize(self, self._writer.dropped.append, let_go)
            self._if_dropped.atexit = False

    def planned(self) -> None:
        """Its append joins what is pending: from now on that decides what becomes of its acks."""
        self.phase = IN_DOUBT
        if self._if_dropped is not None:
            self._if_dropped.detach()
            self._if_dropped = None

    def refused(self, phase: Phase) -> None:
        """The step was refused: everything is as it was in `phase`."""
        self.phase = phase
        if phase is OPEN:
            self._watch_over_acks()

    def _add_ack(self, ack: AckRange) -> int:
        """How large the transaction is with it; added if that is not too large."""
        joined = self.acks[-1].joined(ack) if self.acks else None
        if joined is not None:
            self.acks[-1] = joined
            return self._bytes
        size = self._bytes + self._limits.size_of_ack(ack)
        if size <= self._bytes_max:
            self._bytes = size
            self.acks.append(ack)
        return size

    def savepoint(self) -> Callable[[], None]:
        """Where it stands; calling what this returns drops all that was added since, again and
        again, and the savepoints since then with it: of those it is WrongState.
        """
        runs = {place: len(run) for place, run in self.runs.items()}
        self._end_room()
        size, acks, ackables = self._bytes, [*self.acks], len(self.ackables)
        if self._savepoints is None:
            self._savepoints = []
        savepoints, mine, number = self._savepoints, object(), len(self._savepoints)
        savepoints.append(mine)

        def back() -> None:
            self._require(OPEN, "rolling back to a savepoint")
            if savepoints[number : number + 1] != [mine]:
                raise WrongState(
                    f"transaction {self.tx_id!r} was rolled back to an earlier savepoint, and this "
                    "one with it. Nothing was changed; make another one where it stands now."
                )
            del savepoints[number + 1 :]
            self._take_back(size, runs)
            self.acks[:] = acks
            self._give_back(ackables)

        return back

    def _require(self, phase: Phase, step: str) -> None:
        if self.phase is not phase:
            self._refuse(step)

    def _refuse(self, step: str) -> NoReturn:
        advice = "begin another transaction for what is still to be sent"
        if self.phase is IN_DOUBT:
            advice = f"engine.outcome({self.tx_id!r}) tells, if need be after opening again"
        raise WrongState(
            f"transaction {self.tx_id!r} is {self.phase.value}, so {step} cannot follow. Nothing "
            f"was changed; {advice}."
        )

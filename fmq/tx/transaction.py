"""A transaction as its user holds it: messages are kept in memory until prepare or commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from fmq.errors import EngineFailed, FmqError, WrongState
from fmq.message import Body, Message, Outcome, Receipt
from fmq.store.columns import as_bytes, split_bodies
from fmq.store.kinds import AckRange
from fmq.store.record import utf8
from fmq.tx.limits import RUN_BYTES

if TYPE_CHECKING:
    from fmq.tx.manager import TransactionManager

T = TypeVar("T")

LENGTH_BYTES = 4  # of a body, in its column


class Phase(Enum):
    """Where the user is with it."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"  # a step failed or was interrupted, and may have become durable


# As plain names, because they are looked at for every message.
OPEN, COMMITTED, IN_DOUBT = Phase.OPEN, Phase.COMMITTED, Phase.IN_DOUBT
Receipts = Callable[[], list[Receipt]]


class Ackable(Protocol):
    """A delivery, or a batch of them, as a transaction sees it."""

    def hold_for_transaction(self) -> AckRange:
        """What an ack would say; from now on the lease does not end."""

    def release_from_transaction(self) -> None:
        """The transaction was rolled back: the lease runs again."""


class Transaction:
    """Many messages, topics and queues: all or nothing. One thread at a time uses it.

    As a context manager it commits at the end of the block. A block that raises rolls back,
    unless it has prepared: then the transaction stays undecided, because the exception says
    nothing about the user's database.
    """

    bound = False  # to a database, which has a mark if it committed: see fmq.bind

    def __init__(
        self,
        manager: TransactionManager,
        tx_id: str,
        producer: str,
        check_after_ms: int,
        *,
        named: bool,
    ) -> None:
        """`named` says whether the user gave the id, so that somebody may ask for it again."""
        self._manager = manager
        self._topics = manager.topics
        self._limits = limits = manager.limits
        names_bytes = len(tx_id) + (len(utf8(producer)) if producer else 0)
        self._bytes_max = limits.bytes_max(names_bytes)
        # What one more run takes at the most, but for the name of its topic, which comes twice: a
        # TOPIC record may have to go before it.
        self._run_bytes = RUN_BYTES + names_bytes
        self._tx_id = tx_id
        self._producer = producer
        self.check_after_ms = check_after_ms
        self.named = named
        self.phase = OPEN
        self._prepared = False
        self.runs: dict[tuple[str, int], list[Message | bytes]] = {}
        self.plain = True  # whether all messages are bodies without key, tag and headers
        self._bytes = 0  # of all but what has been taken from `_room` since it was given
        self._at_most = 0  # as many messages; it is counted when that comes to the limit
        self._room = self._given = 0
        # How to add a body to the run of a topic with one queue, as long as there is room.
        self._begun: dict[str, Callable[[bytes], None]] = {}
        self.ackables: list[Ackable] = []
        self.acks: list[AckRange] = []
        self._receipts: Receipts = list

    @property
    def tx_id(self) -> str:
        """The id by which the transaction can be asked about."""
        return self._tx_id

    @property
    def producer(self) -> str:
        return self._producer

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
        if key is None and tag is None and not headers:
            if queue is None and type(body) is bytes:
                # What `_add_body` would do, at a third of its price: most messages come this way.
                add = self._begun.get(topic)
                if add is not None and (room := self._room - len(body) - LENGTH_BYTES) >= 0:
                    self._room = room
                    add(body)
                    return
            self._add_body(topic, body if type(body) is bytes else as_bytes(body), queue)
        else:
            self._add_message(topic, Message(as_bytes(body), key, tag, headers), queue)

    def send_many(
        self, topic: str, bodies: Iterable[Body | Message], *, queue: int | None = None
    ) -> None:
        """Add several, bodies or Messages: all of them, or none if one is refused."""
        items, _ = split_bodies(bodies)
        self._end_room()
        before = self._bytes, {place: len(run) for place, run in self.runs.items()}
        try:
            for item in items:
                if isinstance(item, Message):
                    self._add_message(topic, item, queue)
                else:
                    self._add_body(topic, as_bytes(item), queue)
        except BaseException:
            self._take_back(*before)
            raise

    def _take_back(self, size: int, runs: dict[tuple[str, int], int]) -> None:
        self._end_room()
        self._bytes = size
        self.runs = {place: self.runs[place][:count] for place, count in runs.items()}
        self._begun.clear()

    def _add_body(self, topic: str, body: bytes, queue: int | None) -> None:
        size = len(body)
        if size > self._limits.message_bytes_max:
            self._limits.refuse_message(size)
        self._add(topic, None, queue, body, size + LENGTH_BYTES)

    def _add_message(self, topic: str, message: Message, queue: int | None) -> None:
        size = len(as_bytes(message.body))
        if size > self._limits.message_bytes_max:
            self._limits.refuse_message(size)
        self._add(topic, message.key, queue, message, self._limits.size_of(message))
        self.plain = False

    def _add(
        self, topic: str, key: str | None, queue: int | None, item: Message | bytes, size: int
    ) -> None:
        known = self._topics.get(topic)
        alone = known is not None and len(known.queues) == 1 and not queue
        place = topic, 0 if alone else self._manager.writer.choose_queue(topic, key, queue)
        run = self.runs.get(place)
        if run is None:
            size += self._run_bytes + 2 * len(utf8(topic))
        room = self._room - size
        if room < 0:
            room = self._more_room(size)
        if run is None:
            run = self.runs[place] = []
        run.append(item)
        self._room = room
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
        if self._at_most >= limits.messages_max:
            self._at_most = self.messages
        if size > self._bytes_max or self._at_most >= limits.messages_max:
            limits.refuse(self._tx_id, size, self._bytes_max, self.messages + 1)
        self._bytes = size
        self._at_most += 1
        self._given = min(
            self._bytes_max - size,
            limits.message_bytes_max,
            (limits.messages_max - self._at_most) * LENGTH_BYTES,
        )
        return self._given

    def _end_room(self) -> None:
        """What has been taken from it is counted; the next message is looked at more closely."""
        taken = self._given - self._room
        self._bytes += taken
        self._at_most += taken // LENGTH_BYTES
        self._given = self._room = 0

    def ack(self, delivery: Ackable) -> None:
        """Let the commit also ack `delivery`: consume, transform and produce exactly once."""
        self._require(OPEN, "ack")
        self._end_room()
        before = self._bytes, self.acks[-1:], len(self.acks), len(self.ackables)
        try:
            size = self._add_ack(delivery.hold_for_transaction())
            if size <= self._bytes_max:
                self.ackables.append(delivery)
            else:
                delivery.release_from_transaction()
        except FmqError:
            raise  # it was not given to this transaction
        except BaseException:
            self._take_back_ack(*before)
            delivery.release_from_transaction()
            raise
        if size > self._bytes_max:
            self._limits.refuse(self._tx_id, size, self._bytes_max, self.messages)

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

    def _take_back_ack(self, size: int, last: list[AckRange], acks: int, ackables: int) -> None:
        self._bytes = size
        self.acks[max(acks - 1, 0) :] = last
        del self.ackables[ackables:]

    def savepoint(self) -> Callable[[], None]:
        """Where it stands; calling what this returns drops all that was added since."""
        runs = {place: len(run) for place, run in self.runs.items()}
        self._end_room()
        size, acks, ackables = self._bytes, [*self.acks], len(self.ackables)

        def back() -> None:
            self._require(OPEN, "rolling back to a savepoint")
            self._take_back(size, runs)
            self.acks[:] = acks
            for ackable in self.ackables[ackables:]:
                ackable.release_from_transaction()
            del self.ackables[ackables:]

        return back

    def prepare(self) -> None:
        """Make it durable and sealed: invisible, undecided, and never ended silently."""
        self._require(OPEN, "prepare")
        self._step(Phase.PREPARED, self._manager.prepare)
        self._manager.after()

    def commit(self) -> list[Receipt]:
        """Show all messages at once; again, the same receipts."""
        self._commit()
        return self._receipts()

    def _commit(self) -> None:
        manager = self._manager
        if self.phase is OPEN:
            self._receipts = self._step(COMMITTED, manager.commit_at_once)
        elif self._undecided():
            self._receipts = self._step(COMMITTED, manager.commit_prepared)
        elif self.phase is not COMMITTED:
            self._refuse("commit")
        manager.after()

    def rollback(self) -> None:
        """Drop it. Before prepare nothing is written and the id is free again."""
        if self._undecided():
            self._step(Phase.ROLLED_BACK, self._manager.roll_back_prepared)
        elif self.phase is OPEN:
            self._end_room()
            self._manager.let_go(self)
            self.phase = Phase.ROLLED_BACK
        elif self.phase is not Phase.ROLLED_BACK:
            self._refuse("rollback")
        for ackable in self.ackables:
            ackable.release_from_transaction()
        self.ackables.clear()
        self._manager.after()

    def _step(self, after: Phase, take: Callable[[Transaction], T]) -> T:
        """Take a step to `after`. A typed refusal leaves everything as it was; anything else may
        have come before or after the bytes were durable.
        """
        self._end_room()
        before = self.phase
        if before is not OPEN:
            self.phase = IN_DOUBT  # an open one is in doubt once its append is planned
        try:
            result = take(self)
        except EngineFailed:
            raise
        except (FmqError, TypeError):
            self.phase = before
            raise
        self.phase = after
        if after is Phase.PREPARED:
            self._prepared = True
        return result

    def _undecided(self) -> bool:
        """Whether it was prepared; a decision whose call did not return may be made again."""
        return self.phase is Phase.PREPARED or (self.phase is IN_DOUBT and self._prepared)

    def outcome(self) -> Outcome:
        """What has become of it, as `engine.outcome` says; once it is prepared or committed."""
        return self._manager.outcome(self.tx_id)

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

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            if self.phase in (OPEN, Phase.PREPARED):
                self._commit_at_end()
        elif self.phase is OPEN:
            self.rollback()
        elif self.phase is Phase.PREPARED:
            error.add_note(
                f"fmq: transaction {self.tx_id!r} was prepared before this exception and stays "
                "undecided, because the exception says nothing about your database. Decide it "
                f"with engine.decide({self.tx_id!r}, 'commit' or 'rollback')."
            )
        elif self.phase is IN_DOUBT:
            error.add_note(
                f"fmq: what became of transaction {self.tx_id!r} is not known here; "
                f"engine.outcome({self.tx_id!r}) tells, if need be after opening again."
            )

    def _commit_at_end(self) -> None:
        try:
            self._commit()
        except BaseException:
            if self.phase is OPEN:
                self.rollback()  # refused, and nobody is left who could try again
            raise

    def __repr__(self) -> str:
        return f"<Transaction {self.tx_id} {self.phase.value}, {self.messages} messages>"

"""A transaction as its user holds it: messages are kept in memory until prepare or commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from fmq.errors import EngineFailed, FmqError, WrongState
from fmq.message import Body, Message, Outcome, Receipt
from fmq.store.columns import as_bytes, split_bodies
from fmq.store.kinds import AckRange, Run
from fmq.store.record import utf8
from fmq.tx.receipts import receipts_of

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


OPEN, COMMITTED = Phase.OPEN, Phase.COMMITTED  # names, as they are looked at for every message


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
        self._limits = manager.limits
        self._bytes_max = manager.limits.bytes_max(tx_id, producer)
        self._run_bytes = manager.limits.size_of_run(tx_id, producer)
        self._messages_max = manager.limits.messages_max
        self._message_bytes_max = manager.limits.message_bytes_max
        self._tx_id = tx_id
        self._producer = producer
        self.check_after_ms = check_after_ms
        self.named = named
        self.phase = OPEN
        self._prepared = False
        self.runs: dict[tuple[str, int], list[Message | bytes]] = {}
        self._begun: dict[str, list[Message | bytes]] = {}  # those of topics with one queue
        self.plain = True  # whether all messages are bodies without key, tag and headers
        self.messages = 0
        self.bytes = 0
        self.ackables: list[Ackable] = []
        self.acks: list[AckRange] = []
        self._published: Sequence[Run | Receipt] = ()

    @property
    def tx_id(self) -> str:
        """The id by which the transaction can be asked about."""
        return self._tx_id

    @property
    def producer(self) -> str:
        return self._producer

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
            item = body if type(body) is bytes else as_bytes(body)
            run = self._begun.get(topic) if queue is None else None
            size = len(item)
            total = self.bytes + size + LENGTH_BYTES
            if (
                run is not None
                and size <= self._message_bytes_max
                and total <= self._bytes_max
                and self.messages < self._messages_max
                and self.phase is OPEN
            ):
                # What `_add_body` would do, at half its price: most messages come this way.
                run.append(item)
                self.bytes = total
                self.messages += 1
            else:
                self._add_body(topic, item, queue)
        else:
            self._add_message(topic, Message(as_bytes(body), key, tag, headers), queue)

    def send_many(
        self, topic: str, bodies: Iterable[Body | Message], *, queue: int | None = None
    ) -> None:
        """Add several, bodies or Messages: all of them, or none if one is refused."""
        items, _ = split_bodies(bodies)
        before = self.bytes, self.messages, {place: len(run) for place, run in self.runs.items()}
        try:
            for item in items:
                if isinstance(item, Message):
                    self._add_message(topic, item, queue)
                else:
                    self._add_body(topic, as_bytes(item), queue)
        except BaseException:
            self._take_back(*before)
            raise

    def _take_back(self, size: int, messages: int, runs: dict[tuple[str, int], int]) -> None:
        self.bytes, self.messages = size, messages
        self.runs = {place: self.runs[place][:count] for place, count in runs.items()}
        self._begun.clear()

    def _add_body(self, topic: str, body: bytes, queue: int | None) -> None:
        size = len(body)
        if size > self._message_bytes_max:
            self._limits.refuse_message(size)
        self._add(topic, None, queue, body, size + LENGTH_BYTES)

    def _add_message(self, topic: str, message: Message, queue: int | None) -> None:
        size = len(as_bytes(message.body))
        if size > self._message_bytes_max:
            self._limits.refuse_message(size)
        self._add(topic, message.key, queue, message, self._limits.size_of(message))
        self.plain = False

    def _add(
        self, topic: str, key: str | None, queue: int | None, item: Message | bytes, size: int
    ) -> None:
        if self.phase is not OPEN:
            self._refuse("send")
        known = self._topics.get(topic)
        alone = known is not None and len(known.queues) == 1 and not queue
        place = topic, 0 if alone else self._manager.writer.choose_queue(topic, key, queue)
        run = self.runs.get(place)
        size += self.bytes
        if run is None:
            size += self._run_bytes + 2 * len(utf8(topic))
        if size > self._bytes_max or self.messages >= self._limits.messages_max:
            self._limits.refuse(self._tx_id, self._producer, size, self.messages + 1)
        if run is None:
            run = self.runs[place] = []
            if alone:
                self._begun[topic] = run
        run.append(item)
        self.bytes = size
        self.messages += 1

    def ack(self, delivery: Ackable) -> None:
        """Let the commit also ack `delivery`: consume, transform and produce exactly once."""
        self._require(OPEN, "ack")
        before = self.bytes, self.acks[-1:], len(self.acks), len(self.ackables)
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
            self._limits.refuse(self._tx_id, self._producer, size, self.messages)

    def _add_ack(self, ack: AckRange) -> int:
        """How large the transaction is with it; added if that is not too large."""
        joined = self.acks[-1].joined(ack) if self.acks else None
        if joined is not None:
            self.acks[-1] = joined
            return self.bytes
        size = self.bytes + self._limits.size_of_ack(ack)
        if size <= self._bytes_max:
            self.bytes = size
            self.acks.append(ack)
        return size

    def _take_back_ack(self, size: int, last: list[AckRange], acks: int, ackables: int) -> None:
        self.bytes = size
        self.acks[max(acks - 1, 0) :] = last
        del self.ackables[ackables:]

    def savepoint(self) -> Callable[[], None]:
        """Where it stands; calling what this returns drops all that was added since."""
        runs = {place: len(run) for place, run in self.runs.items()}
        size, messages, acks, ackables = self.bytes, self.messages, [*self.acks], len(self.ackables)

        def back() -> None:
            self._require(OPEN, "rolling back to a savepoint")
            self._take_back(size, messages, runs)
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
        return receipts_of(self._published)

    def _commit(self) -> None:
        manager = self._manager
        if self.phase is OPEN:
            self._published = self._step(COMMITTED, manager.commit_at_once)
        elif self._undecided():
            self._published = self._step(COMMITTED, manager.commit_prepared)
        elif self.phase is not COMMITTED:
            self._refuse("commit")
        manager.after()

    def rollback(self) -> None:
        """Drop it. Before prepare nothing is written and the id is free again."""
        if self._undecided():
            self._step(Phase.ROLLED_BACK, self._manager.roll_back_prepared)
        elif self.phase is OPEN:
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
        before = self.phase
        if before is not OPEN:
            self.phase = Phase.IN_DOUBT  # an open one is in doubt once its append is planned
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
        return self.phase is Phase.PREPARED or (self.phase is Phase.IN_DOUBT and self._prepared)

    def outcome(self) -> Outcome:
        """What has become of it, as `engine.outcome` says; once it is prepared or committed."""
        return self._manager.outcome(self.tx_id)

    def _require(self, phase: Phase, step: str) -> None:
        if self.phase is not phase:
            self._refuse(step)

    def _refuse(self, step: str) -> NoReturn:
        advice = "begin another transaction for what is still to be sent"
        if self.phase is Phase.IN_DOUBT:
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
        elif self.phase is Phase.IN_DOUBT:
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

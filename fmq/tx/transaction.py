"""A transaction as its user holds it: messages are kept in memory until prepare or commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from fmq.errors import FmqError, TooMany, WrongState
from fmq.message import Body, Message, Outcome, Receipt
from fmq.store.columns import as_bytes, split_bodies
from fmq.store.kinds import AckRange

if TYPE_CHECKING:
    from fmq.tx.manager import TransactionManager


class Phase(Enum):
    """Where the user is with it."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


class Ackable(Protocol):
    """A delivery, or a batch of them, as a transaction sees it."""

    def hold_for_transaction(self) -> list[AckRange]:
        """What an ack would say; from now on the lease does not end."""

    def release_from_transaction(self) -> None:
        """The transaction was rolled back: the lease runs again."""


class Transaction:
    """Many messages, topics and queues: all or nothing. One thread at a time uses it.

    As a context manager it commits at the end of the block. A block that raises rolls back,
    unless it has prepared: then the transaction stays undecided, because the exception says
    nothing about the user's database.
    """

    def __init__(
        self, manager: TransactionManager, tx_id: str, producer: str, check_after_ms: int
    ) -> None:
        self._manager = manager
        self._tx_id = tx_id
        self._producer = producer
        self.check_after_ms = check_after_ms
        self.phase = Phase.OPEN
        self.runs: dict[tuple[str, int], list[Message | bytes]] = {}
        self.messages = 0
        self.bytes = 0
        self.ackables: list[Ackable] = []
        self.acks: list[AckRange] = []
        self._receipts: list[Receipt] = []

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
        plain = key is None and tag is None and not headers
        message = as_bytes(body) if plain else Message(as_bytes(body), key, tag, headers)
        self._add(topic, key, queue, message)

    def send_many(
        self, topic: str, bodies: Iterable[Body | Message], *, queue: int | None = None
    ) -> None:
        """Add several, bodies or Messages."""
        items, plain = split_bodies(bodies)
        for item in items:
            if plain:
                self._add(topic, None, queue, as_bytes(item))
            elif isinstance(item, Message):
                self._add(topic, item.key, queue, item)
            else:
                self._add(topic, None, queue, as_bytes(item))

    def _add(self, topic: str, key: str | None, queue: int | None, item: Message | bytes) -> None:
        self._require(Phase.OPEN, "send")
        manager = self._manager
        place = topic, manager.writer.choose_queue(topic, key, queue)
        run = self.runs.get(place)
        size = manager.size_of(item)
        grown = self.bytes + size + (0 if run else manager.run_overhead(self, topic))
        manager.check_limits(self, grown)
        if run is None:
            run = self.runs[place] = []
        run.append(item)
        self.bytes = grown
        self.messages += 1

    def ack(self, delivery: Ackable) -> None:
        """Let the commit also ack `delivery`: consume, transform and produce exactly once."""
        self._require(Phase.OPEN, "ack")
        manager = self._manager
        ranges = delivery.hold_for_transaction()
        grown = self.bytes + sum(manager.ack_size(ack) for ack in ranges)
        try:
            if len(self.acks) + len(ranges) > ACKS_MAX:
                raise TooMany(
                    f"acks in {self.tx_id!r}", len(self.acks) + 1, ACKS_MAX, "a limit of the format"
                )
            manager.check_limits(self, grown)
        except FmqError:
            delivery.release_from_transaction()
            raise
        self.bytes = grown
        self.acks += ranges
        self.ackables.append(delivery)

    def prepare(self) -> None:
        """Make it durable and sealed: invisible, undecided, and never ended silently."""
        self._require(Phase.OPEN, "prepare")
        self._manager.prepare(self)
        self.phase = Phase.PREPARED

    def commit(self) -> list[Receipt]:
        """Show all messages at once; again, the same receipts."""
        if self.phase is Phase.ROLLED_BACK:
            self._refuse("commit")
        if self.phase is not Phase.COMMITTED:
            one_phase = self.phase is Phase.OPEN
            self._receipts = (
                self._manager.commit_at_once(self)
                if one_phase
                else list(self._manager.decide(self.tx_id, "commit").receipts)
            )
            self.phase = Phase.COMMITTED
        return list(self._receipts)

    def rollback(self) -> None:
        """Drop it. Before prepare nothing is written and the id is free again."""
        if self.phase is Phase.COMMITTED:
            self._refuse("rollback")
        if self.phase is Phase.PREPARED:
            self._manager.decide(self.tx_id, "rollback")
        if self.phase is not Phase.ROLLED_BACK:
            self._manager.let_go(self)
            self.phase = Phase.ROLLED_BACK
            for ackable in self.ackables:
                ackable.release_from_transaction()

    def outcome(self) -> Outcome:
        """What has become of it, as `engine.outcome` says; once it is prepared or committed."""
        return self._manager.outcome(self.tx_id)

    def _require(self, phase: Phase, step: str) -> None:
        if self.phase is not phase:
            self._refuse(step)

    def _refuse(self, step: str) -> None:
        raise WrongState(
            f"transaction {self.tx_id!r} is {self.phase.value}, so {step} cannot follow. Nothing "
            "was changed; begin another transaction for what is still to be sent."
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
            if self.phase in (Phase.OPEN, Phase.PREPARED):
                self.commit()
        elif self.phase is Phase.OPEN:
            self.rollback()
        elif self.phase is Phase.PREPARED:
            error.add_note(
                f"fmq: transaction {self.tx_id!r} was prepared before this exception and stays "
                "undecided, because the exception says nothing about your database. Decide it "
                f"with engine.decide({self.tx_id!r}, 'commit' or 'rollback')."
            )

    def __repr__(self) -> str:
        return f"<Transaction {self.tx_id} {self.phase.value}, {self.messages} messages>"


ACKS_MAX = 100_000

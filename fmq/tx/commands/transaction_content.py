"""What a transaction is given, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn, Protocol

from fmq.basics.message import Body, Message
from fmq.errors.notes import add_note
from fmq.store.bytes.timing import Timing
from fmq.tx.commands.buffer import IN_DOUBT, Phase, TransactionBuffer
from fmq.tx.commands.due import check_due


class Owner(Protocol):
    """What a transaction belongs to, and asks without waiting."""

    @property
    def store(self) -> str:
        """The id of the directory, in hex."""

    @property
    def time_us(self) -> Callable[[], int]:
        """A function that returns the time by the clock on the wall, in microseconds."""


class TransactionContent:
    """What a transaction is given, and how far it has come. No call here waits, so they are the
    same on a loop.
    """

    def __init__(self, manager: Any, buffer: TransactionBuffer) -> None:
        """`manager` is an Owner that also carries out prepare, commit and rollback."""
        self._manager = manager
        self._buffer = buffer
        # The `sync=` that the caller gave to the commit.
        self._sync: bool | None = None

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # Each of two copies would commit under the same id.
        raise TypeError(f"transaction {self.tx_id!r} cannot be copied or pickled; begin another")

    @property
    def tx_id(self) -> str:
        """The id by which the transaction can be asked about."""
        return self._buffer.tx_id

    @property
    def producer(self) -> str:
        """The name whose checkers are asked about it; empty if it has none."""
        return self._buffer.producer

    @property
    def messages(self) -> int:
        """The number of messages that were added."""
        return self._buffer.messages

    @property
    def phase(self) -> Phase:
        """The phase of the transaction: open, prepared, committed, rolled back or in doubt."""
        return self._buffer.phase

    # --- what it is given -----------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Add a message. No reader sees it before the commit.

        With `delay`, in seconds from now, or `deliver_at` no reader sees it before that time.
        """
        timing = None
        if delay is not None or deliver_at is not None:
            timing = self._due(delay, deliver_at)
        self._buffer.send(
            topic, body, key, tag, headers, queue, message_id, priority, expires_at, timing
        )

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        *,
        queue: int | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Add several messages, given as bodies or Messages: all of them, or none if one is
        refused.
        """
        self._buffer.send_many(topic, bodies, queue, self._due(delay, deliver_at))

    def _due(self, delay: float | None, deliver_at: datetime | None) -> Timing | None:
        if delay is None and deliver_at is None:
            return None
        return check_due(delay, deliver_at, self._manager.time_us())

    def mark(self, name: str, value: int, data: bytes = b"", expect: int | None = None) -> None:
        """Let the commit also set the mark `name` to `value`, a u64, and up to 64 bytes of `data`.

        With `expect`, the step that writes raises MarkMoved unless the mark has the value `expect`
        at that time. -1 means that the mark must not exist. MarkMoved is also raised if another
        undecided transaction changes the mark.
        """
        self._buffer.change_mark("mark", lambda marks: marks.set(name, value, data, expect))

    def unmark(self, name: str, expect: int | None = None) -> None:
        """Let the commit also remove the mark `name`. `expect` is as in `mark`."""
        self._buffer.change_mark("unmark", lambda marks: marks.remove(name, expect))

    # --- as a block -----------------------------------------------------------------------------

    def _taking(self, store: str | None) -> TransactionContent | None:
        """Return this transaction while its block runs, if it belongs to `store` (see blocks.py).

        If it was prepared inside of its block, later sends are refused. Sending them outside of it
        would break the promise that both happen or none.
        """
        if self.phase is Phase.COMMITTED or self.phase is Phase.ROLLED_BACK:
            return None
        return self if store is None or store == self._manager.store else None

    def _note_what_becomes_of_it(self, error: BaseException) -> None:
        """Add a note to `error` that says what becomes of the transaction whose block it leaves."""
        if self.phase is Phase.PREPARED:
            add_note(
                error,
                f"transaction {self.tx_id!r} was prepared before this exception and stays "
                "undecided, because the exception says nothing about your database. Decide it "
                f"with engine.decide({self.tx_id!r}, 'commit' or 'rollback'), unless a checker has "
                f"done so already: engine.outcome({self.tx_id!r}) tells.",
            )
        elif self.phase is IN_DOUBT:
            add_note(
                error,
                f"what became of transaction {self.tx_id!r} is not known here; "
                f"engine.outcome({self.tx_id!r}) tells, if need be after opening again.",
            )

    def __repr__(self) -> str:
        return f"<Transaction {self.tx_id} {self.phase.value}, {self.messages} messages>"

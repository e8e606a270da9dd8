"""Errors of transactions: a step in the wrong order, or a decision against an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fmq.basics.clock import as_text
from fmq.errors.base import FmqError

if TYPE_CHECKING:
    from fmq.basics.message import Mark
    from fmq.basics.results import Outcome


class TransactionError(FmqError):
    """The transaction is not in a state for this call. Nothing was changed."""


class UnknownTransaction(TransactionError):
    """No transaction with this id is undecided, or was decided within the window."""


class TxIdInUse(TransactionError):
    """A transaction with this id is open, or was decided within the window."""


class WrongState(TransactionError):
    """The step is not allowed in the transaction's present state."""


class MarkMoved(TransactionError):
    """A mark has another value than the caller expects, or another transaction changes it."""

    def __init__(
        self,
        name: str,
        expected: int | None = None,
        found: Mark | None = None,
        *,
        undecided: str | None = None,
    ) -> None:
        self.name, self.expected, self.found, self.undecided = name, expected, found, undecided
        if undecided is not None:
            what = f"the undecided transaction {undecided!r} changes it. Decide that one first"
        else:
            value = "is not there" if found is None else f"has the value {found.value}"
            what = f"it {value}, and {expected} was expected. Read it and begin again from there"
        super().__init__(f"the mark {name!r} was not changed: {what}. Nothing was written.")


class MessageIdUndecided(TransactionError):
    """An undecided transaction holds the id of the message, so it is not known yet whether the
    message counts as sent.
    """

    def __init__(self, message_id: str, topic: str, tx_id: str) -> None:
        self.message_id, self.topic, self.tx_id = message_id, topic, tx_id
        super().__init__(
            f"the message {message_id!r} of the topic {topic!r} is part of the undecided "
            f"transaction {tx_id!r}, which may still send it. Nothing was sent; decide that one "
            f"first: engine.decide({tx_id!r}, 'commit' or 'rollback')."
        )


class RollBack(TransactionError):
    """A program raises it when its own part did not happen, so that the transaction is rolled
    back.
    """


class Impaired(TransactionError):
    """Messages of an undecided transaction are damaged on the disk, so it cannot be committed as it
    was prepared.
    """

    def __init__(self, tx_id: str, messages: int, reasons: Sequence[str]) -> None:
        """`messages` are damaged, for the `reasons`."""
        self.tx_id, self.messages = tx_id, messages
        super().__init__(
            f"transaction {tx_id!r} is impaired: {messages} of its messages cannot be read "
            f"({'; '.join(reasons)}). Nothing was changed, and it stays undecided. Restore the "
            f"segment from a backup, or roll it back, or commit the rest of it: engine.decide("
            f"{tx_id!r}, 'commit_without_lost')."
        )


class AlreadyDecided(TransactionError):
    """Another decision is durable already, and is in `outcome`."""

    def __init__(self, outcome: Outcome, others: str = "") -> None:
        """`others` names the transactions of a joint decision that were decided otherwise, or
        without its mark.
        """
        at, by = outcome.decided_at, outcome.decided_by
        which = f" (of those that this decision is about: {others})" if others else ""
        super().__init__(
            f"transaction {outcome.tx_id!r} was {outcome.state}"
            f"{f' at {as_text(at)}' if at else ''}"
            f"{f' by {by}' if by else ''}{which}; the first durable decision stands and nothing "
            "was changed. Have your own side follow it: `fmq tx show` or `error.outcome` has what "
            "was decided."
        )
        self.outcome = outcome

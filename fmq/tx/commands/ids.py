"""The ids of transactions: giving one to each that begins, and knowing which are in use."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from weakref import WeakValueDictionary

from fmq.arguments.names import check_name, check_seconds, check_tx_id
from fmq.basics.clock import as_datetime, as_text
from fmq.errors import BadOption, Damaged, TxIdInUse
from fmq.store.bytes.kinds import Kind
from fmq.tx.commands.buffer import Keeper, TransactionBuffer
from fmq.tx.commands.limits import Limits
from fmq.tx.commands.router import Router
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.looks.outcomes import Outcomes

# Random bytes for ids: 80 bits. A UUID of version 7 has room for 74 of them.
DRAWN_BYTES = 10
COUNTER = (1 << 48) - 1
ID_BYTES = 36
# The part of an id that is drawn once for each engine.
MIDDLE = slice(14, 23)
CHECK_AFTER_MAX = 1_000_000_000  # in seconds: about thirty years


class TxIds:
    """Makes ids that are unique over machines, processes and time: UUIDs of version 7 (RFC 9562).

    An id is the time in milliseconds, then 26 random bits, then a counter of 48 bits that begins at
    a random number. Each engine draws the random bits once: drawing them for each id would cost
    more than all the rest of making it. Within a millisecond only the counter differs, so the first
    part is written once.
    """

    def __init__(self, drawn: bytes) -> None:
        random = int.from_bytes(drawn, "little")
        self._first = random & COUNTER
        self._numbers = count(self._first)
        middle = 0x7 << 12 | random >> 48 & 0xFFF, 0x2 << 14 | random >> 60 & 0x3FFF
        self._middle = f"{middle[0]:04x}-{middle[1]:04x}"
        self._written = -1, ""  # a millisecond, and the first part of all ids made in it

    def make(self, time_us: int) -> str:
        at, common = self._written
        if at != time_us // 1000:
            at = time_us // 1000
            common = f"{at >> 16 & 0xFFFF_FFFF:08x}-{at & 0xFFFF:04x}-{self._middle}-"
            self._written = at, common
        return f"{common}{next(self._numbers) & COUNTER:012x}"

    def has_made(self, tx_id: str) -> bool:
        """Return whether this engine has made the id; False for an id of another engine.

        Most transactions have an id that the engine made. Those are not noted anywhere while they
        are open: this check finds that a user gives an id which one of them has.
        """
        if len(tx_id) != ID_BYTES or tx_id[MIDDLE] != self._middle:
            return False
        try:
            number = int(tx_id[MIDDLE.stop + 1 :], 16)
        except ValueError:
            return False
        return (number - self._first) & COUNTER < next(self._numbers) - self._first


class IdsInUse:
    """The ids that a new transaction must not have: those of transactions that are open, planned,
    undecided, or were decided within the window.
    """

    def __init__(self, ledger: Ledger, outcomes: Outcomes) -> None:
        self._ledger = ledger
        self._outcomes = outcomes
        self._open: WeakValueDictionary[str, TransactionBuffer] = WeakValueDictionary()

    def hold(self, transaction: TransactionBuffer) -> None:
        """Hold the id that a user gave; raise TxIdInUse if it is in use. The caller holds the
        engine's lock.
        """
        tx_id = transaction.tx_id
        self.check_unused(tx_id)
        if tx_id in self._open:
            raise TxIdInUse(f"transaction {tx_id!r} is open; commit or roll back that one first")
        self._open[tx_id] = transaction

    def release(self, transaction: TransactionBuffer) -> None:
        """Release the id: the transaction has ended, or it is in the journal now. The ids of the
        journal are looked up, too, so that the id stays in use.
        """
        if transaction.named:
            self._open.pop(transaction.tx_id, None)

    def is_open(self, tx_id: str) -> bool:
        """Return whether an open transaction was given this id."""
        return tx_id in self._open

    def check_unused(self, tx_id: str) -> None:
        """Raise TxIdInUse if a transaction with this id is undecided. The caller holds the engine's
        lock.
        """
        if tx_id in self._ledger.by_tx_id:
            raise TxIdInUse(
                f"transaction {tx_id!r} is undecided; engine.decide({tx_id!r}, ...) ends it"
            )

    def refuse_decided(self, tx_id: str) -> None:
        """Raise TxIdInUse if a transaction with this id was decided within the window."""
        try:
            decided = self._outcomes.find(tx_id)
        except Damaged as error:
            reason = (
                f"{error.reason}; so it is not known whether transaction {tx_id!r} was decided "
                "there, and no id is used twice. Leave tx_id= out: the engine then makes a new id"
            )
            raise Damaged(error.file, error.position, reason) from None
        if decided is not None:
            word = "committed" if decided.kind == Kind.COMMIT else "rolled back"
            when = as_text(as_datetime(decided.time_us))
            raise TxIdInUse(
                f"transaction {tx_id!r} was {word} at {when}, within the window; an id is not used "
                "twice. engine.outcome() tells all about it."
            )


def new_buffer(
    keeper: Keeper,
    router: Router,
    limits: Limits,
    ids: TxIds,
    time_us: Callable[[], int],
    tx_id: str | None,
    producer: str | None,
    check_after: float | None,
    *,
    named: bool = True,
) -> TransactionBuffer:
    """Return the empty buffer of a new transaction. An id that is given is not held yet.

    An id that is not `named` was drawn by a client. Raises TypeError, BadName or BadOption.
    """
    if producer is not None:
        producer = check_name("producer", producer)
    check_after_ms = _in_ms(check_after)
    if tx_id is None:
        tx_id, named = ids.make(time_us()), False
    else:
        tx_id = check_tx_id(tx_id)
    names = tx_id, producer or "", check_after_ms
    return TransactionBuffer(keeper, router, limits, *names, named=named)


def _in_ms(check_after: float | None) -> int:
    """Return `check_after` in milliseconds, -1 for None. Raises TypeError or BadOption."""
    if check_after is None:
        return -1
    after = check_seconds("check_after", check_after)
    if not 0 <= after <= CHECK_AFTER_MAX:
        raise BadOption(
            f"check_after={after:g}: must be from 0 to {CHECK_AFTER_MAX:,} seconds. "
            "Nothing was changed."
        )
    return round(after * 1000)

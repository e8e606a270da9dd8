"""The receipts of what a call has sent: the place of each run, once it is planned.

A message may have been left out, because its id was taken before. Then its receipt is that of the
message that took the id.
"""

from __future__ import annotations

from collections.abc import Iterable

from fmq.basics.message import DelayedReceipt, Receipt, made_receipt
from fmq.store.bytes.kinds import TIMER, Record, Run
from fmq.store.bytes.timing import timing_in
from fmq.store.index.id_table import IdKey, id_keys_of


class FirstSent:
    """The message that has taken an id, as one of its run. The run may not have its place yet."""

    __slots__ = ("key", "run")

    def __init__(self, run: Run, key: IdKey) -> None:
        self.run = run
        self.key = key

    @property
    def number(self) -> int:
        """The number of the message in its run."""
        keys, numbers = id_keys_of(self.run)
        return numbers[keys.index(self.key)]

    def receipt(self) -> Receipt:
        """Return the receipt of that message."""
        return one_of(receipt_of(self.run), self.number)


RepeatOf = Receipt | tuple[int, int]
"""What a prepare has left out: the receipt of the first message, or, if that is part of the same
transaction, the number of its record and its number in that record."""


def with_left_out(receipts: list[Receipt], left_out: Iterable[RepeatOf]) -> list[Receipt]:
    """Return the receipts of a commit, followed by those of the messages that its prepare
    left out.
    """
    more = []
    for each in left_out:
        if isinstance(each, Receipt):
            more.append(each)
        else:
            record, number = each
            more.append(one_of(receipts[record], number))
    return receipts + more


def one_of(receipt: Receipt, number: int) -> Receipt:
    """Return the receipt of message `number` among those that `receipt` covers."""
    if isinstance(receipt, DelayedReceipt):
        where = receipt.topic, receipt.queue, None, receipt.position
        return DelayedReceipt(*where, 1, receipt.due_us)
    return Receipt(receipt.topic, receipt.queue, receipt.offset + number, receipt.position)


Sent = Run | FirstSent | Receipt
"""What a call has sent: a run, or the first message under an id that was taken before."""


def receipts_of(sent: Iterable[Record | Sent]) -> list[Receipt]:
    """Return the receipts of the runs in `sent`, which may have other records, too."""
    return [receipt_of(each) for each in sent if isinstance(each, Sent)]


def receipt_of(sent: Sent) -> Receipt:
    """Return the receipt of `sent`, whose position and offset are set by now."""
    if not isinstance(sent, Run):
        return sent.receipt() if isinstance(sent, FirstSent) else sent
    if sent.kind == TIMER and (timing := timing_in(sent.extension)) is not None:
        place = sent.topic, sent.queue, None, sent.position
        return DelayedReceipt(*place, sent.count, timing.due_us)
    return made_receipt((sent.topic, sent.queue, sent.offset, sent.position, sent.count))

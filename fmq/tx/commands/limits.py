"""The limits of a transaction, checked at each send, so that no commit is refused for its size.

A transaction whose commit, as copies and with its acks, would not fit an empty segment is
refused at the send that exceeds it. Sizes are counted a little too large rather than too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from fmq.arguments.names import NAME_BYTES_MAX
from fmq.arguments.options import Options
from fmq.basics.message import Message
from fmq.errors import TooLarge, TooMany
from fmq.store.bytes.content import RECORD_MESSAGES_MAX, text_bytes
from fmq.store.bytes.extras import encode_extras
from fmq.store.bytes.kinds import AckRange, Prepare
from fmq.store.bytes.record import utf8
from fmq.tx.ledger.ledger import Amount, Ledger

# The fixed parts of PREPARE and COMMIT together, without names and reason.
FRAME_BYTES = 512
# What a run takes besides bodies and names: its head, a TOPIC record, extension and padding.
RUN_BYTES = 208
REASON_BYTES_MAX = 1024
# What a body takes in the columns of its run, at most: its length, entries that say that it has no
# key, tag and headers (if another message of the run has some), and one byte as its share in the
# head of a further record, because a long run is written as several records.
COLUMNS_BYTES = 4 + 3 * 2 + 1
assert RECORD_MESSAGES_MAX > RUN_BYTES + 16 * NAME_BYTES_MAX
DECISION_BYTES_MAX = (
    FRAME_BYTES + REASON_BYTES_MAX
    # by how many bytes a COMMIT may be larger than its PREPARE
)

# The limits on undecided transactions, in total and for each producer.
UNDECIDED = (
    "undecided transactions",
    "messages of undecided transactions",
    "bytes of undecided transactions",
)
IN_ALL = "transactions_max", "undecided_messages_max", "undecided_bytes_max"
OF_PRODUCER = ("producer_share",) * 3


class Limits:
    """The limits that follow from the options and from the size of a segment."""

    def __init__(self, options: Options, append_bytes_max: int) -> None:
        self._runs_bytes_max = append_bytes_max - FRAME_BYTES - REASON_BYTES_MAX
        self.take_over(options)

    def take_over(self, options: Options) -> None:
        """Limit the next messages and transactions as `options` say."""
        self._in_all = tuple(getattr(options, name) for name in IN_ALL)
        share = options.producer_share
        self._of_producer = tuple(max(int(limit * share), 1) for limit in self._in_all)
        self.messages_max = options.transaction_messages_max
        self.message_bytes_max = options.message_bytes_max

    def bytes_max(self, names_bytes: int) -> int:
        """Return the limit of bytes for runs and acks, if id and producer take `names_bytes`."""
        return max(self._runs_bytes_max - 3 * names_bytes, 0)

    @staticmethod
    def size_of(message: Message) -> int:
        """Return how many bytes a message adds to an append at most, all its properties included.

        If it is the first one with an id, priority or expiry, the other messages of its run grow,
        too. That is not counted here.
        """
        size = len(message.body) + 16
        for what, text in (("key", message.key), ("tag", message.tag)):
            if text is not None:
                size += len(text_bytes(what, text)) + 2
        for name, value in (message.headers or {}).items():
            size += len(text_bytes("header name", name)) + len(text_bytes("header", value)) + 4
        extras = encode_extras([message.message_id], [message.priority], [message.expires_at])
        return size + len(extras)

    @staticmethod
    def size_of_ack(ack: AckRange) -> int:
        """Return how many bytes an ack takes in PREPARE and in ACK together."""
        return 2 * (20 + len(utf8(ack.group)) + len(utf8(ack.topic)))

    def refuse_message(self, size: int) -> NoReturn:
        raise TooLarge("a message in bytes", size, self.message_bytes_max, "message_bytes_max")

    def refuse(self, tx_id: str, size: int, size_max: int, messages: int) -> NoReturn:
        """Raise TooLarge or TooMany for a transaction of `size` bytes with `messages` messages."""
        if size > size_max:
            raise TooLarge(f"transaction {tx_id!r} in bytes", size, size_max, "segment_bytes")
        raise TooMany(
            f"messages in transaction {tx_id!r}",
            messages,
            self.messages_max,
            "transaction_messages_max",
        )

    def check_undecided(self, ledger: Ledger, prepare: Prepare) -> None:
        """Raise TooMany if `prepare` may not become undecided beside the transactions that are."""
        _check_amount(ledger.undecided_in_all, prepare, self._in_all, IN_ALL)
        producer = prepare.producer
        if producer:
            mine = ledger.undecided_of.get(producer) or Amount()
            whose = f" of {producer!r}"
            _check_amount(mine, prepare, self._of_producer, OF_PRODUCER, whose)


def _check_amount(
    amount: Amount,
    prepare: Prepare,
    limits: Sequence[int],
    options: Sequence[str],
    whose: str = "",
) -> None:
    """Raise TooMany if `prepare` and the undecided `amount` together exceed `limits`. The options
    that set them are named in the error.
    """
    transactions = amount.transactions + 1
    messages, size = amount.messages + prepare.messages, amount.bytes + prepare.bytes
    transactions_max, messages_max, bytes_max = limits
    if transactions <= transactions_max and messages <= messages_max and size <= bytes_max:
        return
    counts = transactions, messages, size
    for what, count, most, option in zip(UNDECIDED, counts, limits, options, strict=True):
        if count > most:
            raise TooMany(what + whose, count, most, option)

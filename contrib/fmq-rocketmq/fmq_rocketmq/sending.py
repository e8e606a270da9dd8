"""Calls that write: send, end a transaction, recall a delayed message.

Nothing is answered with OK before it is durable, whatever the engine's `sync` option says.
"""

from __future__ import annotations

import base64
import json
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Sequence
from typing import Any

import fmq
from fmq_rocketmq.messages import Incoming, incoming
from fmq_rocketmq.names import topic_name
from fmq_rocketmq.protocol import Code, MessageType, TransactionResolution, message
from fmq_rocketmq.questions import Questions
from fmq_rocketmq.refusals import OK, Refused

PRODUCER = "rocketmq"
"""The name in fmq of all producers that are RocketMQ's. Its clients name no group of producers."""
TX_PREFIX = "rocketmq-"
BATCH_MAX = 1024
RECALL_PREFIX = "fmq1."

Entry = message("SendResultEntry")
Sent = message("SendMessageResponse")
Ended = message("EndTransactionResponse")
Recalled = message("RecallMessageResponse")


class Sending:
    """Sends messages to one engine, and decides transactions."""

    def __init__(self, engine: fmq.WritingEngine, questions: Questions) -> None:
        self._engine = engine
        self._questions = questions
        # These calls take no `sync`, and wait for no sync with another option.
        self._syncs_itself = engine.options.sync == "always"

    def send(self, request: Any, client: str) -> Any:
        """Send one message, several in one append, or the half message of a transaction."""
        if not 1 <= len(request.messages) <= BATCH_MAX:
            raise Refused(
                Code.BAD_REQUEST,
                f"a request has 1 to {BATCH_MAX:,} messages, not {len(request.messages):,}. "
                "Nothing was sent.",
            )
        found = [incoming(topic_name(each.topic), each) for each in request.messages]
        if len(found) > 1:
            return Sent(status=OK, entries=self._send_many(found))
        one = found[0]
        if one.kind == MessageType.TRANSACTION:
            entry = self._send_half(one)
            self._questions.note_half(client, one.topic)
        else:
            entry = self._send_one(one)
        return Sent(status=OK, entries=[entry])

    def _send_one(self, one: Incoming) -> Any:
        options = one.options
        if one.deliver_at is not None:
            options = options | {"deliver_at": one.deliver_at}
        receipt = self._engine.send(one.topic, one.body, sync=True, **options)
        entry = Entry(status=OK, message_id=one.message_id)
        if isinstance(receipt, fmq.DelayedReceipt):
            entry.recall_handle = _recall_handle(receipt, one.message_id)
        else:
            entry.offset = receipt.offset
        return entry

    def _send_many(self, found: Sequence[Incoming]) -> list[Any]:
        """Send all messages or none, with one sync."""
        for one in found:
            if one.kind not in (MessageType.NORMAL, MessageType.FIFO):
                kind = MessageType(one.kind).name
                raise Refused(
                    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"several messages of one request are NORMAL or FIFO, not {kind}. Nothing was "
                    "sent; send it by itself.",
                )
        with self._engine.transaction() as tx:
            for one in found:
                tx.send(one.topic, one.body, **one.options)
            receipts = tx.commit(sync=True)
        # Where all messages of a topic are one run, each has the next offset.
        whole = Counter(one.topic for one in found)
        at = {each.topic: each.offset for each in receipts if each.count == whole[each.topic]}
        entries = []
        for one in found:
            offset = at.get(one.topic, 0)
            entries.append(Entry(status=OK, message_id=one.message_id, offset=offset))
            if one.topic in at:
                at[one.topic] += 1
        return entries

    def _send_half(self, one: Incoming) -> Any:
        """Prepare a transaction. Its id is made of the message's, so a client that repeats the send
        because an answer was lost gets the same transaction again.
        """
        tx_id = TX_PREFIX + one.message_id
        try:
            tx = self._engine.transaction(
                tx_id=tx_id, producer=PRODUCER, check_after=one.check_after
            )
        except fmq.TxIdInUse:
            self._engine.outcome(tx_id)  # raises if another request is just preparing it
        else:
            try:
                tx.send(one.topic, one.body, **one.options)
                tx.prepare()
            except (fmq.UsageError, fmq.TransactionError, fmq.StorageFull):
                tx.rollback()  # nothing was prepared, and the id can be used again
                raise
        return Entry(status=OK, message_id=one.message_id, transaction_id=tx_id)

    def end(self, request: Any, client: str) -> Any:
        """Decide a transaction. The second of two equal decisions succeeds, and the opposite one is
        refused.
        """
        tx_id = request.transaction_id
        if not tx_id.startswith(TX_PREFIX):
            raise Refused(
                Code.INVALID_TRANSACTION_ID,
                f"{tx_id[:80]!r} is no transaction of a RocketMQ client. Nothing was changed.",
            )
        if request.resolution == TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED:
            self._questions.answer_unknown(tx_id)  # a checker that does not know
            return Ended(status=OK)
        commits = request.resolution == TransactionResolution.COMMIT
        self._engine.decide(
            tx_id, "commit" if commits else "rollback", decided_by=f"rocketmq client {client}"[:200]
        )
        if not self._syncs_itself:
            self._engine.sync()
        self._questions.forget(tx_id)
        return Ended(status=OK)

    def recall(self, request: Any, client: str) -> Any:
        """Take back a message that waits for its time."""
        topic = topic_name(request.topic)
        receipt, message_id = _recalled(request.recall_handle)
        if receipt.topic != topic or not self._engine.recall(receipt):
            raise Refused(
                Code.BAD_REQUEST,
                f"no message of {topic!r} waits under this recall handle: it was delivered or "
                "recalled before. Nothing was changed.",
            )
        if not self._syncs_itself:
            self._engine.sync()
        return Recalled(status=OK, message_id=message_id)


def _recall_handle(receipt: fmq.DelayedReceipt, message_id: str) -> str:
    """Return a handle that says where the message waits. It outlives a restart of the server."""
    said = [receipt.topic, receipt.queue, receipt.position, receipt.count, receipt.due_us]
    text = json.dumps([*said, message_id], separators=(",", ":"))
    return RECALL_PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


def _recalled(handle: str) -> tuple[fmq.DelayedReceipt, str]:
    """Return the receipt that a handle names, and the message's id. Raises Refused."""
    wrong = Refused(
        Code.BAD_REQUEST, "this is no recall handle of this server. Nothing was changed."
    )
    if not handle.startswith(RECALL_PREFIX):
        raise wrong
    try:
        text = base64.b64decode(handle.removeprefix(RECALL_PREFIX), altchars=b"-_", validate=True)
        topic, queue, position, count, due_us, message_id = json.loads(text)
    except (NotBase64, ValueError, TypeError, RecursionError):
        raise wrong from None
    numbers = queue, position, count, due_us
    good = all(type(each) is int and 0 <= each < 1 << 63 for each in numbers)
    if not (good and isinstance(topic, str) and isinstance(message_id, str)):
        raise wrong
    return fmq.DelayedReceipt(topic, queue, None, position, count, due_us), message_id

"""Check-back: asks producers what became of the transactions that they have left undecided.

One thread asks the engine for questions about topics that connected producers send to, and passes
each one to such a producer. Its checker answers with an EndTransaction.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import fmq
from fmq_rocketmq.clients import Clients
from fmq_rocketmq.messages import outgoing
from fmq_rocketmq.protocol import message
from fmq_rocketmq.refusals import OK

LOG = logging.getLogger("fmq.rocketmq")
ASK_SECONDS = 1.0  # how long one call waits: a producer that connects meanwhile is asked after it
TROUBLE_SECONDS = 1.0
ASKED_MAX = 10_000

Command = message("TelemetryCommand")
Recover = message("RecoverOrphanedTransactionCommand")


class Questions:
    """The check-back of one engine."""

    def __init__(self, engine: fmq.WritingEngine, clients: Clients, producer: str) -> None:
        self._engine = engine
        self._clients = clients
        self._producer = producer
        self._asked: dict[str, fmq.Question] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fmq-rocketmq-ask", daemon=True)

    def start(self) -> None:
        """Start the thread that asks."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. The caller closes the clients first, for whose topics it may wait."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def note_half(self, client: str, topic: str) -> None:
        """Note that a client has prepared a transaction, which it can be asked about."""
        self._clients.has_sent_half(client, topic)

    def answer_unknown(self, tx_id: str) -> None:
        """Note that a checker does not know. The transaction stays undecided, and is asked about
        later.
        """
        question = self.forget(tx_id)
        if question is not None:
            with suppress(fmq.LeaseLost, fmq.UnknownTransaction):
                self._engine.feedback.answer(question, "unknown")

    def forget(self, tx_id: str) -> fmq.Question | None:
        """Return the question that was asked about a transaction, and forget it."""
        with self._lock:
            return self._asked.pop(tx_id, None)

    def _run(self) -> None:
        while topics := self._clients.wait_for_topics():
            try:
                for question in self._engine.feedback.ask(self._producer, topics, wait=ASK_SECONDS):
                    self._pass_on(question)
            except (fmq.Closed, fmq.Forked):
                return
            except Exception:
                # The next round may go better; until then nobody is asked.
                LOG.exception("cannot ask about undecided transactions")
                self._is_closed.wait(TROUBLE_SECONDS)

    def _pass_on(self, question: fmq.Question) -> None:
        try:
            messages = question.messages()
        except fmq.UnknownTransaction:
            return  # it was decided just now
        if len(messages) != 1:
            LOG.warning(
                "transaction %r has %d messages, and RocketMQ's clients know one: not asked about",
                *(question.tx_id, len(messages)),
            )
            return
        command = Command(
            status=OK,
            recover_orphaned_transaction_command=Recover(
                transaction_id=question.tx_id, message=outgoing(messages[0])
            ),
        )
        with self._lock:
            # The answer "unknown" needs the question. Without it the question is asked again.
            if len(self._asked) < ASKED_MAX:
                self._asked[question.tx_id] = question
        if not self._clients.send_to_producer(question.topics[0], command):
            self.forget(question.tx_id)

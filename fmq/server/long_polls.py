"""The requests of one client that may wait, its polls aside: READ, WAIT and ASK."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fmq.errors import FmqError
from fmq.feedback.question import Question
from fmq.server.host import Host
from fmq.steps.call_steps import Steps
from fmq.wire.batches import encode_batch, fitting
from fmq.wire.frames import Frame, Op
from fmq.wire.values import encode_values


class LongPolls:
    """The waiting requests of a session. Each is answered when there is something, or at its
    timeout.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parts = host.parts
        # What the client was asked, with the end of each lease, by number of the transaction.
        self._asked: dict[int, tuple[Question, float]] = {}
        self.serves: dict[int, Callable[[Frame, Any], Steps[bytes]]] = {
            Op.READ: self._on_read,
            Op.WAIT: self._on_wait,
            Op.ASK: self._on_ask,
        }

    def end(self) -> None:
        """Let other checkers get the questions that the client was asked."""
        asked, self._asked = self._asked, {}
        if asked:
            with suppress(FmqError):  # the engine has ended, and asks no questions
                self._parts.questions.give_back([each for each, _ in asked.values()])

    def asked(self, questions: list[Question]) -> None:
        """Note the questions that the client is asked. If it dies, others are asked."""
        now = self._host.monotonic()
        self._asked = {tx: each for tx, each in self._asked.items() if each[1] > now}
        self._asked.update({each.tx: (each, now + each.lease_seconds) for each in questions})

    def _on_read(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        topic, queue, offset, limit, timeout, *_ = said
        batch = yield from self._host.door.reading(topic, queue, offset, limit, timeout)
        return b"" if batch is None else encode_batch(fitting(batch))

    def _on_wait(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        places, timeout, *_ = said
        return encode_values((yield from self._host.door.waiting(places, timeout)))

    def _on_ask(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        keys, limit, wait = said
        wanted = [(each[0], each[1]) for each in keys]
        found = yield from self._parts.questions.taking(wanted, limit, wait)
        self.asked(found)
        return encode_values(found) if found else b""

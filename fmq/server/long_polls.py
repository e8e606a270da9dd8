"""The requests of one client that may wait: READ, ASK, and the polls of its consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fmq.errors import FmqError
from fmq.feedback.question import Question
from fmq.feedback.schedule import Key
from fmq.feedback.waiters import DueWakeup
from fmq.server.load import Load, check_held
from fmq.server.waiting_call import Waiting
from fmq.wire.batches import encode_batch, fitting
from fmq.wire.frames import Frame, Op
from fmq.wire.values import encode_values

if TYPE_CHECKING:
    from fmq.server.session import Session


class LongPolls:
    """The waiting requests of a session. Each is answered when there is something, or at its
    timeout.
    """

    def __init__(self, session: Session, load: Load) -> None:
        self._session = session
        self._load = load
        self._parts = session.host.parts
        self.waiting: set[Waiting[bytes]] = set()
        self._named: dict[int, Waiting[bytes]] = {}  # requests that the client may cancel, by name
        # The questions that the client was asked, by number, each with the end of its lease.
        self._asked: dict[int, tuple[Question, float]] = {}
        self.serves: dict[int, Callable[[Frame, Any], None]] = {
            Op.READ: self._on_read,
            Op.ASK: self._on_ask,
            Op.CANCEL: self._on_cancel,
        }

    def look_again(self) -> None:
        """Let each request look: they did not while the client was choked."""
        for waiting in [*self.waiting]:
            waiting.notify()

    def end(self) -> None:
        """End all requests without an answer."""
        for waiting in [*self.waiting]:
            waiting.cancel()
        asked, self._asked = self._asked, {}
        if asked:
            with suppress(FmqError):  # the engine has ended, and asks no questions
                self._parts.questions.give_back([each for each, _ in asked.values()])

    def asked(self, questions: list[Question]) -> None:
        """Note the questions that the client is asked. If it dies, others are asked."""
        now = self._parts.writer.clock.monotonic()
        self._asked = {tx: each for tx, each in self._asked.items() if each[1] > now}
        self._asked.update({each.tx: (each, now + each.lease_seconds) for each in questions})

    def _on_read(self, asked: Frame, said: list[Any]) -> None:
        topic, queue, offset, limit, timeout, *name = said
        messages, door = self._parts.messages, self._session.host.door

        def look() -> bytes | None:
            batch = door.read_batch(topic, queue, offset, limit, 0.0)
            return None if batch is None else encode_batch(fitting(batch))

        def listen(notify: Callable[[], None]) -> float:
            with self._parts.lock:
                messages.listen((topic,), notify)
            return float("inf")

        def stop(notify: Callable[[], None]) -> None:
            messages.stop_listening(notify, (topic,))

        self.wait(asked, timeout, look, listen, stop, _nothing, *name)

    def _on_cancel(self, asked: Frame, said: list[Any]) -> None:
        (name,) = said
        waiting = self._named.get(name)
        if waiting is not None:
            waiting.give_up()
        self._session.answer(asked)

    def _on_ask(self, asked: Frame, said: list[Any]) -> None:
        keys, limit, wait = said
        questions, wanted = self._parts.questions, [(each[0], each[1]) for each in keys]
        notices: list[DueNotice] = []

        def look() -> bytes | None:
            found = questions.take(wanted, limit, 0.0)
            self.asked(found)
            return encode_values(found) if found else None

        def listen(notify: Callable[[], None]) -> float:
            notices.append(DueNotice(wanted, notify))
            return questions.listen(notices[-1])

        def stop(notify: Callable[[], None]) -> None:
            questions.stop_listening(notices.pop())

        self.wait(asked, wait, look, listen, stop, _nothing)

    def wait(
        self,
        asked: Frame,
        timeout: float,
        look: Callable[[], bytes | None],
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
        pass_on: Callable[[], None],
        name: int | None = None,
    ) -> None:
        """Answer with what `look` finds, at the latest after `timeout` seconds.

        A client may give a request a `name`, which is a number, and cancel it by that. `Waiting`
        explains the other arguments.
        """
        clock = self._parts.writer.clock
        check_held("requests of one client that wait", self.waiting)
        session, is_choked = self._session, lambda: self._load.is_choked
        waiting = Waiting(
            self._session.host.loop, clock, timeout, is_choked, look, listen, stop, pass_on
        )

        def end(found: bytes | None, error: Exception | None) -> None:
            self.waiting.discard(waiting)
            if name is not None and self._named.get(name) is waiting:
                del self._named[name]
            if session.has_ended:
                return
            if error is not None:
                session.fail(asked, error)
            else:
                session.answer(asked, found or b"")
            session.host.flush()

        self.waiting.add(waiting)
        if name is not None:
            self._named[name] = waiting
        waiting.begin(end)


class DueNotice(DueWakeup):
    """Wakes a waiting request when a question is due."""

    __slots__ = ("_notify",)

    def __init__(self, keys: Iterable[Key], notify: Callable[[], None]) -> None:
        super().__init__(keys)
        self._notify = notify

    def __call__(self) -> None:
        """Let the request look. The caller holds the engine's lock."""
        self._notify()


def _nothing() -> None:
    pass

"""The parts that the sessions of one engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from fmq.assembly.parts import Parts
from fmq.feedback.open_questions import Baseline
from fmq.server.bad_connections import BadConnections
from fmq.server.handed_out import HandedOut, former_in
from fmq.server.server_turn import Turn
from fmq.server.wake_ups import Waits

if TYPE_CHECKING:
    from fmq.server.session import Session


class Timer(Protocol):
    """A call that will be made later, unless it is cancelled."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """What calls back: the event loop of asyncio, or that of a test."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...


class Host:
    """One engine, its clients, and the turn that collects their writes."""

    def __init__(
        self,
        door: Any,
        loop: Loop,
        incarnation: bytes,
    ) -> None:
        """`door` is the door of the engine. `incarnation` are random bytes, which differ for each
        process that serves.
        """
        self.door = door
        self.parts: Parts = door.parts
        parts = self.parts
        self.loop = loop
        self.incarnation = incarnation
        former = former_in(parts.directory)
        self.handed_out = HandedOut(parts.directory)
        if former is not None:
            until = parts.writer.clock.monotonic() + parts.writer.options.reclaim_seconds
            with parts.lock:
                parts.groups.hold_former(former.upto, until)
        self.turn = Turn(parts.commit_queue, door.after)
        self.waits = Waits(loop, parts.commit_queue, parts.writer.clock.monotonic)
        self.bad_connections = BadConnections(loop.call_later, parts.writer.clock.monotonic)
        # Questions that clients wait for in `settle`, by the number of the transaction.
        self.watched: dict[int, Baseline] = {}
        self.sessions: dict[bytes, Session] = {}  # by the id of the client
        self.failed: Callable[[], object] = lambda: None  # called when the engine has failed
        # Ends the process if it was started on demand.
        self.give_way: Callable[[], bool] = lambda: False
        self._is_scheduled = False
        self._orders_seen = 0  # how many orders there were at the last look
        self._dirty: set[Session] = set()  # sessions with answers to send

    def watch(self, baselines: Iterable[Baseline]) -> None:
        """Remember the questions that a client waits for in `settle`. Forget those decided
        before.
        """
        left = {tx: each for tx, each in self.watched.items() if not each.question.is_decided}
        self.watched = {**left, **{each.question.entry.tx: each for each in baselines}}

    def served(self) -> None:
        """Called when a session has served everything that has arrived from its client.

        With several clients, the orders of all are written together, at the end of this turn of the
        loop. A lone client's orders are written at once: waiting for the end of the turn would cost
        it a tenth of its time.
        """
        if not len(self.turn):
            self.flush()
        elif len(self.sessions) == 1:
            self.commit()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._end_turn)
            self.flush()

    def _end_turn(self) -> None:
        """Write the orders of this turn. If more orders of other clients are still coming, look
        once more first.

        Clients that were answered together send again one after the other. A look takes some
        microseconds, a sync that only few of them share takes hundreds.
        """
        orders = len(self.turn)
        if self._orders_seen < orders < len(self.sessions):
            self._orders_seen = orders
            self.loop.call_soon(self._end_turn)
            return
        self._is_scheduled = False
        self._orders_seen = 0
        self.commit()

    def commit(self) -> None:
        """Write the orders so far, and send the answers."""
        try:
            self.turn.commit()
        finally:
            self.flush()
            if self.parts.commit_queue.broken():
                self.failed()

    def close(self) -> None:
        """Write and answer the orders. Take back from all clients what they hold."""
        self.commit()
        for session in [*self.sessions.values()]:
            session.ended()
        self.bad_connections.say()
        self.handed_out.close()

    def answered(self, session: Session) -> None:
        """Note that `session` has an answer to send."""
        self._dirty.add(session)

    def flush(self) -> None:
        """Send all answers."""
        while self._dirty:
            self._dirty.pop().flush()

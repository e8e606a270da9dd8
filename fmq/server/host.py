"""The parts that the sessions of one engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from threading import Thread
from typing import Any, Protocol

from fmq.assembly.parts import Parts
from fmq.basics.results import ClientInfo
from fmq.feedback.open_questions import Baseline
from fmq.loops.event_loop import Loop
from fmq.loops.turn_writer import TurnOrder, TurnWriter
from fmq.loops.wake_ups import Waits
from fmq.server.bad_connections import BadConnections
from fmq.server.beats import Beats
from fmq.server.handed_out import HandedOut, former_in

DRAIN_LOOK_SECONDS = 0.02


class Connection(Protocol):
    """A session, as the host knows it."""

    close: Callable[[], None]
    has_ended: bool

    def drain(self) -> None:
        """From now on, serve only requests that settle messages in hand or transactions. Leave all
        others without an answer.
        """

    def has_in_hand(self) -> bool:
        """Return whether the client has messages that it may still ack."""
        ...

    def flush(self) -> None:
        """Send the answers that were collected."""

    def info(self) -> ClientInfo:
        """Return what is known of the client."""
        ...

    def ended(self) -> None:
        """Give back what the client held."""


class ClientOrders:
    """What the clients have ordered in one turn of the loop."""

    failure: BaseException | None = None

    def __init__(self, orders: list[TurnOrder]) -> None:
        self.orders = orders


def _in_thread(run: Callable[[], None]) -> None:
    Thread(target=run, name="fmq server", daemon=True).start()


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
        self.handed_out = HandedOut(parts.directory, former)
        # Until then clients of a killed server may come back for what they have in hand.
        self._former_until = -inf
        if former is not None:
            reclaim = parts.writer.options.reclaim_seconds
            self._former_until = parts.writer.clock.monotonic() + reclaim
            with parts.lock:
                parts.groups.holds.hold_former(former.upto, self._former_until)
        self.commit_queue = parts.commit_queue
        self.monotonic, self.time_us = parts.writer.clock.monotonic, parts.writer.clock.time_us
        self.turn = TurnWriter(loop, parts.commit_queue, self.monotonic, door.after)
        self.turn.ended = self._turn_ended
        # Starts the work that is done apart from the loop.
        self.start: Callable[[Callable[[], None]], object] = _in_thread
        self._orders: list[TurnOrder] = []
        self._ordering: set[bytes] = set()  # the clients that have given these orders
        self.waits = Waits(loop, parts.commit_queue, self.monotonic)
        self.bad_connections = BadConnections(loop.call_later, self.monotonic)
        # Questions that clients wait for in `settle`, by the number of the transaction.
        self.watched: dict[int, Baseline] = {}
        self.sessions: dict[bytes, Connection] = {}  # the connections, by the id of the client
        self.failed: Callable[[], object] = lambda: None  # called when the engine has failed
        # Ends the process if it was started on demand.
        self.give_way: Callable[[], bool] = lambda: False
        self.parts.clients = self._clients
        self.parts.on_failed = self._engine_failed
        # Ends a process that may be stopped from outside; None once it was called.
        self.end: Callable[[], None] | None = None
        self.is_draining = False
        self.beats = Beats(
            loop, self.monotonic, self.apart, door.beat, self._beat_failed, self._owned_until
        )
        self._is_scheduled = False
        self._orders_seen = 0  # how many orders there were when this turn was last looked at
        self._dirty: set[Connection] = set()  # connections that have answers to send

    def _owned_until(self, until: float) -> None:
        with self.parts.lock:
            self.parts.groups.hand_out_until(until, self.monotonic())

    def _beat_failed(self) -> None:
        self.failed()

    def _engine_failed(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is served any more
            self.loop.call_soon_threadsafe(self.failed)

    def _clients(self) -> list[ClientInfo]:
        """Return the clients that are connected. Any thread may call it."""
        return [session.info() for session in [*self.sessions.values()]]

    def watch(self, baselines: Iterable[Baseline]) -> None:
        """Remember the questions that a client waits for in `settle`. Forget those decided
        before.
        """
        left = {tx: each for tx, each in self.watched.items() if not each.question.is_decided}
        self.watched = {**left, **{each.question.entry.tx: each for each in baselines}}

    def order(self, client: bytes, order: TurnOrder) -> None:
        """Have what `client` has ordered written at the end of the turn."""
        self._orders.append(order)
        self._ordering.add(client)

    def apart(
        self, work: Callable[[], Any], then: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Let a thread of its own do `work`, and call `then` on the loop with the result or the
        error.
        """

        def run() -> None:
            result = error = None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: no client waits any more
                self.loop.call_soon_threadsafe(then, result, error)

        self.start(run)

    def has_ordered(self, client: bytes) -> bool:
        """Return whether `client` has orders that are not planned yet."""
        return client in self._ordering

    def commit_own(self, client: bytes) -> None:
        """Plan the orders of `client`, because one of its calls is about to look.

        What others have ordered goes on waiting for more to share its sync.
        """
        if client in self._ordering:
            self.commit()

    def served(self) -> None:
        """Called when a session has served everything that has arrived from its client.

        With several clients, the orders of all are written together, at the end of this turn of the
        loop. A lone client's orders are written at once: waiting for the end of the turn would cost
        it a tenth of its time.
        """
        if not self._orders:
            self.flush()
        elif len(self.sessions) == 1:
            self.commit()
        else:
            self._schedule()
            self.flush()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Write the orders of this turn. If more orders of other clients are still coming, look
        once more first.

        Clients that were answered together send again one after the other. A look takes some
        microseconds, a sync that only few of them share takes hundreds.
        """
        orders = len(self._orders)
        if self._orders_seen < orders < len(self.sessions):
            self._orders_seen = orders
            self.loop.call_soon(self._end_turn)
            return
        self._is_scheduled = False
        self._orders_seen = 0
        self.commit()

    def commit(self) -> None:
        """Plan what was ordered so far. The clients get their answers once it is durable."""
        orders, self._orders = self._orders, []
        if orders:
            self._ordering.clear()
            self.turn.write(ClientOrders(orders))
        if self._dirty:
            self.flush()

    def _turn_ended(self, batch: object) -> None:
        """Send the answers to a turn, and go on with calls that have ordered more."""
        self.flush()
        if self._orders:
            self._schedule()
        if self.commit_queue.failure is not None and self.commit_queue.broken():
            self.failed()

    def stop(self, seconds: float) -> bool:
        """End this process once no client has messages in hand, or after `seconds`. Return False if
        it may not be stopped from outside.

        Until then a request that would begin something gets no answer: its client asks again, once
        another process serves.
        """
        if self.end is None:
            return self.is_draining
        if not self.is_draining:
            self.is_draining = True
            for session in [*self.sessions.values()]:
                session.drain()
        self._end_when_drained(self.monotonic() + seconds)
        return True

    def _end_when_drained(self, deadline: float) -> None:
        busy = any(session.has_in_hand() for session in self.sessions.values())
        if busy and self.monotonic() < deadline:
            self.loop.call_later(DRAIN_LOOK_SECONDS, self._end_when_drained, deadline)
        elif self.end is not None:  # a second stop may have ended the process
            end, self.end = self.end, None
            end()

    def close(self) -> None:
        """Write and answer the orders. Take back from all clients what they hold."""
        self.commit()
        self.turn.finish()
        while self._orders:
            self.commit()
            self.turn.finish()
        for session in [*self.sessions.values()]:
            session.ended()
        self.bad_connections.say()
        self.handed_out.close(keep=self.monotonic() < self._former_until)
        self.parts.clients = list

    def answered(self, session: Connection) -> None:
        """Note that `session` has an answer to send."""
        self._dirty.add(session)

    def flush(self) -> None:
        """Send all answers."""
        while self._dirty:
            self._dirty.pop().flush()

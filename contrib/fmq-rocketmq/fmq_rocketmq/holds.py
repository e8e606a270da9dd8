"""Receipt handles: which message a client holds, until when, and under which handle.

A handle names a delivery of this run of the server. After a restart the engine redelivers what was
not acked, so a handle of an earlier run is refused: the message is another client's by then.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import fmq
from fmq_rocketmq.protocol import Code
from fmq_rocketmq.refusals import Refused

RENEWED_SECONDS = 60.0  # the lease of a message that the server renews while its client lives
REMEMBERED_SECONDS = 60.0  # for how long a repeated ack still succeeds
RUN_CHARACTERS = 8


@dataclass(eq=False, slots=True)
class Hold:
    """One message that a client has."""

    handle: str
    delivery: fmq.Delivery
    consumer: fmq.AnyConsumer
    group: str
    topic: str
    client: str
    until: float
    renews: bool
    is_settled: bool = False
    """Acked or rejected. A repeat of the call succeeds."""


class Holds:
    """What all clients hold. Any thread may call it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, Hold] = {}
        self._run = secrets.token_hex(RUN_CHARACTERS // 2)

    def add(
        self, delivery: fmq.Delivery, consumer: fmq.AnyConsumer, client: str, seconds: float | None
    ) -> Hold:
        """Hold a delivery for `seconds`, or, if that is None, while its client lives. Raises
        LeaseLost.
        """
        lease = RENEWED_SECONDS if seconds is None else seconds
        delivery.extend(lease)
        hold = Hold(
            handle=f"{self._run}-{secrets.token_hex(12)}",
            delivery=delivery,
            consumer=consumer,
            group=consumer.group,
            topic=delivery.topic,
            client=client,
            until=self._clock() + lease,
            renews=seconds is None,
        )
        with self._lock:
            self._held[hold.handle] = hold
        return hold

    def find(self, handle: str, group: str, topic: str) -> Hold:
        """Return what a handle names. Raises Refused."""
        with self._lock:
            hold = self._held.get(handle)
        if hold is not None and (hold.group, hold.topic) == (group, topic):
            return hold
        if hold is None and not handle.startswith(self._run):
            why = "is of an earlier run of the server, which has redelivered what was not acked"
        else:
            why = (
                f"names no message that the group {group!r} holds of {topic!r}: its time has ended"
            )
        raise Refused(
            Code.INVALID_RECEIPT_HANDLE, f"the receipt handle {why}. Nothing was changed."
        )

    def extend(self, hold: Hold, seconds: float) -> None:
        """Hold a message for `seconds` from now on. Raises LeaseLost."""
        hold.delivery.extend(seconds)
        hold.until, hold.renews = self._clock() + seconds, False

    def drop(self, hold: Hold) -> None:
        """Forget a message that was given back."""
        with self._lock:
            self._held.pop(hold.handle, None)

    def of_client(self, client: str) -> list[Hold]:
        """Return what a client holds."""
        with self._lock:
            return [each for each in self._held.values() if each.client == client]

    def count(self) -> int:
        """Return how many messages are held, or were acked a short time ago."""
        with self._lock:
            return len(self._held)

    def keep(self, is_live: Callable[[str], bool]) -> None:
        """Renew the messages of live clients, forget those whose time has ended, and let the engine
        see that this process still works on the rest.
        """
        now = self._clock()
        with self._lock:
            held = [*self._held.values()]
        longest: dict[int, Hold] = {}
        for hold in held:
            if hold.is_settled:
                if now > hold.until + REMEMBERED_SECONDS:
                    self.drop(hold)
            elif hold.renews and is_live(hold.client):
                self._renew(hold, RENEWED_SECONDS)
            elif now > hold.until:
                self.drop(hold)
            else:
                known = longest.get(id(hold.consumer))
                if known is None or known.until < hold.until:
                    longest[id(hold.consumer)] = hold
        # A member that neither polls, acks nor extends for a minute is put out of its group, and
        # what it has goes to others. Its client may think for longer than that.
        for hold in longest.values():
            self._renew(hold, hold.until - now)

    def _renew(self, hold: Hold, seconds: float) -> None:
        try:
            if seconds > 0:
                hold.delivery.extend(seconds)
                hold.until = self._clock() + seconds
        except fmq.FmqError:
            if not hold.is_settled:  # an ack may have come first
                self.drop(hold)


def release_all(holds: Iterable[Hold]) -> None:
    """Give messages back to others at once, without counting the attempt."""
    for hold in holds:
        try:
            hold.delivery.release(delay=0.0, count=False)
        except fmq.FmqError:
            continue  # it is acked, or its lease has ended

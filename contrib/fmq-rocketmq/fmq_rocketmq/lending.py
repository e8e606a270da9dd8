"""Receipt handles: a message is lent to a client for a time, in the journal of the engine.

A handle has the ticket of fmq, so it needs nothing in the memory of this process. It is good until
the message is handed out again, also after a restart of the server, and the message stays invisible
for its time. Only what the server renews while a client lives is known here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

import fmq
from fmq_rocketmq.protocol import Code
from fmq_rocketmq.refusals import Refused

RENEWED_SECONDS = 60.0  # for how long a message is lent that the server renews
PREFIX = "fmq1."


@dataclass(slots=True)
class Renewed:
    """What the server lends to a client again and again, as long as the client lives."""

    group: str
    ticket: str
    client: str
    until: float


class Lending:
    """What is lent to clients. Any thread may call it."""

    def __init__(self, engine: fmq.WritingEngine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._renewed: dict[str, Renewed] = {}  # by handle

    def lend(
        self, delivery: fmq.Delivery, group: fmq.Group, client: str, seconds: float | None
    ) -> str | None:
        """Lend a message for `seconds`, or, if that is None, while its client lives. Return the
        handle; None if another client has the message by now.
        """
        ticket = delivery.ticket
        handle = f"{PREFIX}{ticket}.{_mark(group.name, delivery.topic)}"
        lease = RENEWED_SECONDS if seconds is None else seconds
        try:
            group.release_ticket(ticket, delay=lease)
        except fmq.LeaseLost:
            return None
        if seconds is None:
            with self._lock:
                self._renewed[handle] = Renewed(group.name, ticket, client, self._clock() + lease)
        return handle

    def forget(self, handle: str) -> None:
        """Renew a message no longer."""
        with self._lock:
            self._renewed.pop(handle, None)

    def end(self, client: str) -> None:
        """Give back at once what the server would renew for a client. These attempts do not
        count.
        """
        with self._lock:
            found = [item for item in self._renewed.items() if item[1].client == client]
        for handle, each in found:
            self.forget(handle)
            with suppress(fmq.FmqError):  # it is acked, or lent to another client
                self._engine.group(each.group).release_ticket(each.ticket, delay=0.0, count=False)

    def keep(self, is_live: Callable[[str], bool]) -> None:
        """Renew what live clients have, and forget the rest when its time has ended."""
        now = self._clock()
        with self._lock:
            found = [*self._renewed.items()]
        for handle, each in found:
            if not is_live(each.client):
                if now > each.until:
                    self.forget(handle)
            elif each.until - now < RENEWED_SECONDS / 2:
                try:
                    group = self._engine.group(each.group)
                    group.release_ticket(each.ticket, delay=RENEWED_SECONDS)
                    each.until = now + RENEWED_SECONDS
                except fmq.FmqError:
                    self.forget(handle)

    def count(self) -> int:
        """Return how many messages are renewed."""
        with self._lock:
            return len(self._renewed)


def ticket_of(handle: str, group: str, topic: str) -> str:
    """Return the ticket in a handle. Raises Refused if it is none of this group and topic."""
    ticket, _, mark = handle.removeprefix(PREFIX).rpartition(".")
    if not handle.startswith(PREFIX) or mark != _mark(group, topic):
        raise Refused(
            Code.INVALID_RECEIPT_HANDLE,
            f"the receipt handle {handle[:80]!r} names no message that the group {group!r} has of "
            f"{topic!r}. Nothing was changed.",
        )
    return ticket


def _mark(group: str, topic: str) -> str:
    names = f"{group}\0{topic}".encode()
    return f"{crc32(names):08x}"

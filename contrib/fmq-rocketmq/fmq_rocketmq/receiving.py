"""Calls that take: receive, ack, change how long a message is invisible, forward to the dead
letters.

All clients of a group are one member of the group in fmq, by topic. The engine hands each message
to one of them, and in a FIFO group the next message of a key when those before it are settled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fmq
from fmq import filters
from fmq_rocketmq.clients import Clients
from fmq_rocketmq.lending import Lending, ticket_of
from fmq_rocketmq.messages import outgoing
from fmq_rocketmq.names import group_name, topic_name
from fmq_rocketmq.protocol import Code, FilterType, message
from fmq_rocketmq.refusals import OK, Refused, status_of

ATTEMPTS_MAX = 17
BATCH_MAX = 256
INVISIBLE_SECONDS_MAX = 12 * 3600.0
POLL_SECONDS_MAX = 30.0
ANSWER_SECONDS = 0.5  # what is left of a client's deadline for the way back
CONSUMERS_MAX = 4096
FILTER_SECONDS = 60.0  # for how long nobody has to ask with a filter until it may be another one

Received = message("ReceiveMessageResponse")
Acked = message("AckMessageResponse")
AckedEntry = message("AckMessageResultEntry")
Changed = message("ChangeInvisibleDurationResponse")
Forwarded = message("ForwardMessageToDeadLetterQueueResponse")
Status = message("Status")


class Receiving:
    """Hands out the messages of one engine, and settles them."""

    def __init__(
        self,
        engine: fmq.WritingEngine,
        clients: Clients,
        *,
        fifo_groups: Collection[str] = (),
        polls_max: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """At most `polls_max` receives wait at the same time. Beyond that they do not wait."""
        self.lending = Lending(engine, clock)
        self._engine = engine
        self._clients = clients
        self._fifo_groups = frozenset(fifo_groups)
        self._polls = threading.BoundedSemaphore(polls_max)
        self._lock = threading.Lock()
        self._consumers: dict[tuple[str, str], tuple[filters.Filter | None, fmq.AnyConsumer]] = {}
        self._asked_at: dict[tuple[str, str], float] = {}  # by pair, with its present filter
        self._clock, self._began = clock, clock()
        self._is_closed = False
        self._syncs_itself = engine.options.sync == "always"

    # --- receiving ------------------------------------------------------------------------------

    def receive(self, request: Any, client: str, context: Any) -> Iterator[Any]:
        """Yield a status, the messages that there are, and the time."""
        topic, group = topic_name(request.message_queue.topic), group_name(request.group)
        if request.batch_size < 1:
            raise Refused(Code.BAD_REQUEST, "batch_size is 1 or more. Nothing was taken.")
        # The server renews what a push consumer has, and a simple consumer names a time.
        seconds = None if request.auto_renew else _invisible(request)
        wait = _poll_seconds(request, context.time_remaining())
        consumer = self._consumer(group, topic, _filter_of(request.filter_expression))
        found = self._poll(consumer, min(request.batch_size, BATCH_MAX), wait)
        if not context.is_active():
            for each in found:  # the client has gone while it waited
                each.release(delay=0.0, count=False)
            return
        taker = self._engine.group(group)
        lent = [
            (each, handle)
            for each in found
            if (handle := self.lending.lend(each, taker, client, seconds)) is not None
        ]
        if not lent:
            text = "no new message"
            yield Received(status=Status(code=Code.MESSAGE_NOT_FOUND, message=text))
            return
        yield Received(status=OK)
        for each, handle in lent:
            yield Received(message=_handed(each, handle, seconds))
        now = Received()
        now.delivery_timestamp.GetCurrentTime()
        yield now

    def _poll(self, consumer: fmq.AnyConsumer, limit: int, wait: float) -> list[fmq.Delivery]:
        waits = wait > 0 and self._polls.acquire(blocking=False)
        try:
            return consumer.poll(limit=limit, timeout=wait if waits else 0.0)
        except (fmq.UnknownGroup, fmq.UnknownTopic, fmq.Closed):
            self._forget(consumer)  # a person has deleted it; the next receive makes it anew
            raise
        finally:
            if waits:
                self._polls.release()

    def _consumer(self, group: str, topic: str, wanted: filters.Filter | None) -> fmq.AnyConsumer:
        """Return the member of the group for this topic. A new filter takes the place of one with
        which nobody has asked for a while. Raises FilterDiffers if somebody has.
        """
        with self._lock:
            if self._is_closed:
                raise Refused(Code.INTERNAL_SERVER_ERROR, "the server ends. Nothing was taken.")
            now, key = self._clock(), (group, topic)
            known = self._consumers.get(key)
            if known is not None and known[0] == wanted:
                self._asked_at[key] = now
                return known[1]
            if known is None and len(self._consumers) >= CONSUMERS_MAX:
                raise Refused(
                    Code.TOO_MANY_REQUESTS,
                    f"this server has {CONSUMERS_MAX:,} pairs of group and topic, which is its "
                    "limit. Nothing was taken.",
                )
            if now - self._asked_at.get(key, self._began) > FILTER_SECONDS:
                # A new version of the program: nobody asks with the old filter any more.
                with suppress(fmq.UnknownGroup):
                    self._engine.group(group).set_filter(topic, wanted)
            made = self._engine.consumer(
                topic,
                group=group,
                filter=wanted,
                ordered=group in self._fifo_groups,
                # The client's delay between two attempts is how long a message stays invisible.
                retry=fmq.Retry(ATTEMPTS_MAX, backoff=0.0),
            )
            self._consumers[key] = wanted, made
            self._asked_at[key] = now
        if known is not None:
            known[1].close()  # a person has set another filter for the group
        return made

    def _forget(self, consumer: fmq.AnyConsumer) -> None:
        with self._lock:
            for key, (_, known) in [*self._consumers.items()]:
                if known is consumer:
                    del self._consumers[key]

    # --- settling -------------------------------------------------------------------------------

    def ack(self, request: Any, client: str) -> Any:
        """Ack messages. All acks are durable on return, with one sync."""
        topic, group = topic_name(request.topic), group_name(request.group)
        if not request.entries:
            raise Refused(Code.BAD_REQUEST, "the request names no message. Nothing was changed.")
        statuses = []
        # A single ack syncs by itself, and so shares its sync with other threads.
        alone = len(request.entries) == 1
        for each in request.entries:
            try:
                ticket = ticket_of(each.receipt_handle, group, topic)
                self._engine.group(group).ack_ticket(ticket, sync=alone)
                self.lending.forget(each.receipt_handle)
                statuses.append(OK)
            except (Refused, fmq.FmqError) as error:
                statuses.append(status_of(_about_handle(error)))
        if not alone:
            self._engine.sync()
        entries = [
            AckedEntry(
                message_id=each.message_id, receipt_handle=each.receipt_handle, status=status
            )
            for each, status in zip(request.entries, statuses, strict=True)
        ]
        return Acked(status=_joined(statuses), entries=entries)

    def change(self, request: Any, client: str) -> Any:
        """Let a message be invisible for another time from now on."""
        seconds = _seconds(request.invisible_duration)
        if not 0 <= seconds <= INVISIBLE_SECONDS_MAX:
            raise _illegal_time(seconds)
        with self._settling(request) as (group, ticket):
            group.release_ticket(ticket, delay=seconds, count=not request.suspend)
        return Changed(status=OK, receipt_handle=request.receipt_handle)

    def forward(self, request: Any, client: str) -> Any:
        """Make a message a dead letter of its group."""
        with self._settling(request) as (group, ticket):
            group.reject_ticket(ticket, reason="forwarded by a RocketMQ client")
            if not self._syncs_itself:
                self._engine.sync()
        return Forwarded(status=OK)

    @contextmanager
    def _settling(self, request: Any) -> Iterator[tuple[fmq.Group, str]]:
        """Yield the group and the ticket that a request names. What it does with them ends the
        renewal.
        """
        topic, name = topic_name(request.topic), group_name(request.group)
        ticket = ticket_of(request.receipt_handle, name, topic)
        try:
            yield self._engine.group(name), ticket
        except (fmq.UnknownGroup, fmq.BadOption) as error:
            raise _about_handle(error) from None
        self.lending.forget(request.receipt_handle)

    # --- the end --------------------------------------------------------------------------------

    def client_ends(self, client: str) -> None:
        """Give back what the server would renew for a client. What a simple consumer has stays
        invisible for the time that it has named.
        """
        self.lending.end(client)

    def keep(self) -> None:
        """Renew leases. The server calls it every few seconds."""
        self.lending.keep(self._clients.is_live)
        self._clients.forget_silent()

    def drain(self) -> None:
        """Let all polls end, and take nothing new."""
        with self._lock:
            self._is_closed = True
            consumers = [each for _, each in self._consumers.values()]
        for consumer in consumers:
            consumer.drain(timeout=0.0)

    def close(self) -> None:
        """Leave all groups. What is not acked is redelivered."""
        for _, consumer in self._consumers.values():
            consumer.close()


def _about_handle(error: Exception) -> Exception:
    """Return the error for a client whose handle names what is not there."""
    if isinstance(error, (fmq.UnknownGroup, fmq.BadOption)):
        return Refused(Code.INVALID_RECEIPT_HANDLE, str(error))
    return error


def _handed(delivery: fmq.Delivery, handle: str, seconds: float | None) -> Any:
    made = outgoing(
        delivery,
        receipt_handle=handle,
        queue_offset=delivery.offset,
        delivery_attempt=delivery.attempt,
    )
    if seconds is not None:
        made.system_properties.invisible_duration.FromNanoseconds(int(seconds * 1e9))
    return made


def _filter_of(expression: Any) -> filters.Filter | None:
    """Return the filter of an expression; None if it wants all messages. Raises BadFilter."""
    if expression.expression in ("", "*"):
        return None
    if expression.type == FilterType.SQL:
        return filters.sql(expression.expression)
    return filters.tags(expression.expression)


def _invisible(request: Any) -> float:
    seconds = _seconds(request.invisible_duration)
    if not 0 < seconds <= INVISIBLE_SECONDS_MAX:
        raise _illegal_time(seconds)
    return seconds


def _illegal_time(seconds: float) -> Refused:
    return Refused(
        Code.ILLEGAL_INVISIBLE_TIME,
        f"{seconds:g} s: a message is invisible for more than 0 s and at most "
        f"{INVISIBLE_SECONDS_MAX / 3600:g} hours. Nothing was changed.",
    )


def _poll_seconds(request: Any, deadline: float | None) -> float:
    """Return how long a receive waits: as the client says, but less than until its deadline."""
    wait = _seconds(request.long_polling_timeout)
    if wait < 0:
        raise Refused(Code.ILLEGAL_POLLING_TIME, f"{wait:g} s: is less than 0. Nothing was taken.")
    left = POLL_SECONDS_MAX if deadline is None else deadline - ANSWER_SECONDS
    return max(0.0, min(wait, left, POLL_SECONDS_MAX))


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _joined(statuses: list[Any]) -> Any:
    """Return the status of a request: that of all its entries, if they have the same."""
    if len({each.code for each in statuses}) == 1:
        return statuses[0]
    return Status(code=Code.MULTIPLE_RESULTS, message="the entries differ")

"""A transport of kombu on fmq, for Celery: `Celery(broker="fmq:///path/to/directory")`.

A queue of kombu's is a topic. The consumer of a worker holds a message until the worker acks it. If
the worker dies, the message is redelivered. A message that is published inside of a block of the
same directory belongs to the block. Needs the extra `kombu`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty
from threading import Condition, RLock
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import fmq
from fmq import Consumer, Delivery, RemoteConsumer
from fmq.arguments.options import SECONDS_MAX
from fmq.basics.clock import SystemClock, as_datetime
from fmq.compat.handle import Handle, engine_of, send
from fmq.compat.kombu_loop import LoopWaits
from fmq.errors import (
    BadOption,
    Closed,
    FmqError,
    GroupExists,
    LeaseLost,
    NotAStore,
    NotServed,
    OutcomeUnknown,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)

try:
    from kombu.transport import TRANSPORT_ALIASES, virtual
    from kombu.utils.json import dumps, loads
except ImportError as error:
    raise ImportError(
        "fmq.compat.kombu needs kombu: pip install 'fmq-engine[kombu]'. Nothing was changed."
    ) from error

GROUP = "kombu"
BINDINGS = "kombu/binding/"
WAIT_SECONDS = 0.2  # seconds that one channel waits for a message while others have none
AT_ONCE = 10  # messages that a channel without a limit takes at once
# For so many seconds after a worker has left its own queue, messages still go there.
UNBOUND_SECONDS = 60
VOLATILE = b"volatile"
logger = logging.getLogger("fmq.compat.kombu")
clock = SystemClock()


def topic_of(queue: str) -> str:
    """Return the topic of a queue of kombu's."""
    return f"kombu.{queue}"


class FmqQoS(virtual.QoS):
    """The messages that a channel has handed out. fmq holds them, so kombu has nothing to put
    back.
    """

    def ack(self, delivery_tag: str) -> None:
        """Ack a message, durably."""
        self.channel.settle(delivery_tag, Delivery.ack)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or move it to the dead letters of the group."""
        settle = Delivery.release if requeue else _bury
        self.channel.settle(delivery_tag, settle)
        self._quick_ack(delivery_tag)


def _bury(delivery: Delivery) -> None:
    delivery.reject("rejected by its worker")


class FmqChannel(virtual.Channel):
    """A channel. All its kombu consumers share one consumer of fmq."""

    QoS = FmqQoS
    do_restore = False
    supports_fanout = True

    def __init__(self, connection: Any, **named: Any) -> None:
        super().__init__(connection, **named)
        self._engine: Handle = connection.engine
        self._ready: set[str] = set()  # queues whose topic and group exist
        self._held: dict[str, Delivery] = {}  # unsettled messages, by delivery tag
        self._next: deque[Delivery] = deque()  # deliveries that were polled and not handed out yet
        self._no_ack: set[str] = set()
        self._joined: tuple[tuple[str, ...], Consumer | RemoteConsumer] | None = None
        # closed consumers that may still hold messages
        self._former: list[Consumer | RemoteConsumer] = []
        self._lock = RLock()

    # --- queues ---------------------------------------------------------------------------------

    def _new_queue(self, queue: str, **named: Any) -> None:
        if queue not in self._ready:
            topic = topic_of(queue)
            with suppress(TopicExists):
                self._engine.create_topic(topic, queues=1)
            with suppress(GroupExists):
                self._engine.create_group(GROUP, topic)
            self._ready.add(queue)
        arguments = named.get("arguments") or {}
        if named.get("auto_delete") or "x-expires" in arguments:
            self.connection.volatile.add(queue)

    def _has_queue(self, queue: str, **named: Any) -> bool:
        try:
            self._engine.topic(topic_of(queue))
        except UnknownTopic:
            return False
        return True

    def _size(self, queue: str) -> int:
        topic = topic_of(queue)
        return sum(info.unread for info in self._engine.groups(GROUP) if info.topic == topic)

    def _purge(self, queue: str) -> int:
        count = self._size(queue)
        if count:
            self._engine.group(GROUP).seek(topic_of(queue), to="latest")
        return count

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **named: Any
    ) -> None:
        """Delete a queue with its messages and bindings."""
        if if_empty and self._size(queue):
            return
        for exchange, routing_key, _ in [*self.state.queue_bindings(queue)]:
            self._unbind(exchange, routing_key, queue)
        self.state.queue_bindings_delete(queue)
        self._delete(queue)

    def _delete(self, queue: str, *args: Any, **named: Any) -> None:
        self._ready.discard(queue)
        with suppress(UnknownTopic):
            self._engine.topic(topic_of(queue)).delete()

    # --- bindings, which all processes share ------------------------------------------------------

    def _queue_bind(self, exchange: str, routing_key: str, pattern: object, queue: str) -> None:
        name = _binding(exchange, routing_key, queue)
        is_volatile = queue in self.connection.volatile
        if is_volatile or self._engine.mark(name) is None:
            tx = self._engine.transaction()
            tx.mark(name, clock.time_us(), VOLATILE if is_volatile else b"")
            tx.commit()

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **named: Any
    ) -> None:
        """Stop sending messages of an exchange to a queue."""
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        self._unbind(exchange, routing_key, queue)

    def _unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        tx = self._engine.transaction()
        tx.unmark(_binding(exchange, routing_key, queue))
        tx.commit()

    def get_table(self, exchange: str) -> list[tuple[str, Any, str]]:
        """Return the bindings of an exchange: routing key, pattern and queue.

        A queue of one worker or client counts only while that one consumes: after a kill no process
        would delete it, and its messages would pile up.
        """
        prefix = _prefix(exchange)
        found = self._engine.marks(prefix=prefix)
        table, kind, living = [], self.typeof(exchange), None
        for name, mark in found.items():
            routing_key, queue = map(unquote, name.removeprefix(prefix).split("/"))
            if mark.data == VOLATILE:
                living = self._living() if living is None else living
                if topic_of(queue) not in living and self._is_old(mark.value):
                    self._unbind(exchange, routing_key, queue)
                    self._delete(queue)
                    continue
            table.append(kind.prepare_bind(queue, exchange, routing_key, None))
        return table

    def _living(self) -> set[str]:
        """Return the topics that have consumers now."""
        try:
            members = self._engine.group(GROUP).members()
        except UnknownGroup:
            return set()
        return {topic for member in members for topic in member.topics}

    def _is_old(self, bound_us: int) -> bool:
        return clock.time_us() - bound_us > UNBOUND_SECONDS * 1_000_000

    # --- messages -------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **named: Any) -> None:
        """Send a message, with the transaction whose block is running, or at once."""
        self._new_queue(queue)
        extras: dict[str, Any] = {}
        if priority := self._get_message_priority(message):
            extras["priority"] = priority
        expiration = message["properties"].get("expiration")
        # Celery's worker must see an expired task: it stores the result REVOKED for those who wait.
        if expiration and not (message["headers"] or {}).get("expires"):
            extras["expires_at"] = as_datetime(clock.time_us() + round(float(expiration) * 1000))
        send(self._engine, topic_of(queue), dumps(message).encode(), **extras)

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **named: Any
    ) -> None:
        for _, _, queue in self.get_table(exchange):
            self._put(queue, message)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """Return one message, for `basic_get`. Raises Empty."""
        self._new_queue(queue)
        consumer = self._engine.consumer(topic_of(queue), group=GROUP, lease_seconds=SECONDS_MAX)
        found = consumer.poll(limit=1)
        if not found:
            consumer.close()
            raise Empty
        self._former.append(consumer)
        return self._hand_out(found[0])

    def basic_get(self, queue: str, no_ack: bool = False, **named: Any) -> Any:
        """Return one message; None if there is none."""
        message = super().basic_get(queue, no_ack=no_ack, **named)
        if message is not None and no_ack:
            self.settle(message.delivery_tag, Delivery.ack)
        return message

    def _hand_out(self, delivery: Delivery) -> dict[str, Any]:
        """Return a message in kombu's form, with a new tag each time."""
        message: dict[str, Any] = loads(delivery.body.decode())
        properties, tag = message["properties"], str(uuid4())
        properties["delivery_tag"] = tag
        if delivery.attempt > 1:
            message["redelivered"] = True
            properties.setdefault("delivery_info", {})["redelivered"] = True
        self._held[tag] = delivery
        return message

    def settle(self, tag: str, settle: Callable[[Delivery], object]) -> None:
        """Ack, release or reject the message with this tag. Any thread may call this."""
        delivery = self._held.pop(tag, None)
        if delivery is None:
            return
        try:
            settle(delivery)
        except LeaseLost as error:
            logger.warning("a task will be done again: %s", error)
        finally:
            self.connection.settled()

    # --- consuming ------------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **named: Any
    ) -> None:
        """Consume from a queue."""
        self._new_queue(queue)
        if no_ack:
            self._no_ack.add(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **named)

    def has_room(self) -> bool:
        """Return whether the channel consumes, and may hold more messages."""
        return bool(self._consumers) and self.qos.can_consume()

    def has_more(self) -> bool:
        """Return whether the channel has polled messages that it may hand out now."""
        return bool(self._next) and self.has_room()

    @property
    def is_volatile(self) -> bool:
        """Return whether its queues are consumed by this process only. Tasks use another
        channel.
        """
        return all(queue in self.connection.volatile for queue in self._active_queues)

    def drain(self, timeout: float) -> bool:
        """Hand out one message, waiting up to `timeout` seconds. Return whether there was one."""
        if not self._next:
            self._next.extend(self.fetch(timeout))
        if not self._next:
            return False
        delivery = self._next.popleft()
        queue = delivery.topic.removeprefix(topic_of(""))
        message = self._hand_out(delivery)
        if queue in self._no_ack:
            self.settle(message["properties"]["delivery_tag"], Delivery.ack)
        self.connection._deliver(message, queue)
        return True

    def fetch(self, timeout: float) -> list[Delivery]:
        """Take messages to be handed out, waiting up to `timeout` seconds."""
        limit = self.qos.can_consume_max_estimate() or AT_ONCE
        consumer = self._joined_consumer()
        if consumer is None:
            return []  # the last queue was cancelled meanwhile
        try:
            return consumer.poll(limit=limit, timeout=timeout)
        except Closed:
            if self._joined is not None and self._joined[1] is consumer:
                raise
            return []  # the consumer was cancelled meanwhile

    def take_over(self, found: list[Delivery]) -> None:
        """Hand out what another thread has fetched, or give it back."""
        self._next.extend(found)
        self._give_back_cancelled()

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """Hand out all available messages. Raises Empty if there are none."""
        if not self.has_room() or not self.drain(timeout or 0.0):
            raise Empty

    def _joined_consumer(self) -> Consumer | RemoteConsumer | None:
        """Return the consumer of all queues that are consumed now; None if there are none."""
        topics = tuple(sorted({topic_of(queue) for queue in self._active_queues}))
        if not topics:
            return None
        with self._lock:
            if self._joined is not None and self._joined[0] == topics:
                return self._joined[1]
            if self._joined is not None:
                self._former.append(self._joined[1])
            consumer = self._engine.consumer(topics, group=GROUP, lease_seconds=SECONDS_MAX)
            self._joined = topics, consumer
            return consumer

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming from the queue of a consumer."""
        super().basic_cancel(consumer_tag)
        if self._next:
            self._give_back_cancelled()
        with self._lock:
            if not self._active_queues and self._joined is not None:
                self._former.append(self._joined[1])
                self._joined = None
        self._close_former()

    def _give_back_cancelled(self) -> None:
        """Give back messages that were polled for a consumer that is cancelled now."""
        active = {topic_of(queue) for queue in self._active_queues}
        for delivery in [each for each in self._next if each.topic not in active]:
            self._next.remove(delivery)
            with suppress(LeaseLost):
                delivery.release()

    def _close_former(self, *, all_of_them: bool = False) -> None:
        """Close former consumers that hold nothing any more."""
        holding = {id(each._consumer) for each in (*self._held.values(), *self._next)}
        with self._lock:
            former, self._former = self._former, []
            for consumer in former:
                if id(consumer._door) in holding and not all_of_them:
                    self._former.append(consumer)
                else:
                    with suppress(FmqError):
                        consumer.close()

    def close(self) -> None:
        """Give back what is not acked."""
        if not self.closed:
            super().close()
            with self._lock:
                if self._joined is not None:
                    self._former.append(self._joined[1])
                    self._joined = None
            self._close_former(all_of_them=True)
            self._held.clear()
            self._next.clear()


class Transport(virtual.Transport):
    """Implements kombu's transport with a directory of fmq."""

    Channel = FmqChannel
    driver_type = "fmq"
    driver_name = "fmq"
    default_port = 0
    polling_interval = WAIT_SECONDS
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (
        *virtual.Transport.connection_errors,
        *(NotServed, NotAStore, OutcomeUnknown, Closed, OSError),
    )

    def __init__(self, client: Any, **named: Any) -> None:
        super().__init__(client, **named)
        # queues that only one worker or client uses, as they were declared
        self.volatile: set[str] = set()
        self._settled = Condition()
        self._waits: LoopWaits | None = None  # None unless an event loop hands messages out
        self._engine: Handle | None = None
        self._close_engine: Callable[[], None] = lambda: None

    @property
    def engine(self) -> Handle:
        """Return the engine of transport_options={"engine": engine}, or a client of the
        directory.
        """
        if self._engine is None:
            where = self.client.transport_options.get("engine") or _path_of(self.client)
            self._engine, self._close_engine = engine_of(where)
        return self._engine

    def establish_connection(self) -> Any:
        """Connect now: if that fails, kombu tries the next address."""
        assert self.engine is not None
        return super().establish_connection()

    def driver_version(self) -> str:
        return fmq.__version__

    def close_connection(self, connection: Any) -> None:
        """Close the channels, which gives back what they hold, and the client."""
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.close()
        super().close_connection(connection)
        self._engine, close = None, self._close_engine
        self._close_engine = lambda: None
        close()

    def settled(self) -> None:
        """Note that a message was acked or given back, so a full channel has room."""
        with self._settled:
            self._settled.notify_all()
        waits = self._waits
        if waits is not None:
            waits.ring()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the event loop of a worker hand messages out from now on."""
        if self._waits is None:
            self._waits = LoopWaits(loop, self._look)
            # A remote control command may have come.
            loop.call_repeatedly(WAIT_SECONDS, self._waits.ring)
        self._waits.ring()

    def _look(self) -> None:
        """Hand out what there is, remote control first. The event loop calls this, so it waits
        nowhere.
        """
        waits = self._waits
        if waits is None:
            return
        for channel, found in waits.take():
            channel.take_over(found)
        control = [each for each in self.channels if each.is_volatile]
        while sum(each.drain(0.0) for each in control if each.has_room()):
            pass
        for channel in [*self.channels]:
            if channel in control:
                continue
            while channel.has_more():
                channel.drain(0.0)
            if channel.has_room():
                waits.ask(channel)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand out messages. Raises TimeoutError if none comes for `timeout` seconds."""
        deadline = clock.monotonic() + (SECONDS_MAX if timeout is None else timeout)
        while True:
            channels = [channel for channel in [*self.channels] if channel.has_room()]
            if self._drain(channels):
                return
            left = deadline - clock.monotonic()
            if left <= 0:
                raise TimeoutError
            self._wait(channels, min(left, self.polling_interval or WAIT_SECONDS))

    def _drain(self, channels: Iterable[FmqChannel]) -> bool:
        """Hand out the available messages of all channels. Return whether there were any.

        Handing out a task may wait until a process of the worker is idle. So remote control, which
        may revoke the next task, comes before each.
        """
        control = [channel for channel in channels if channel.is_volatile]
        found = sum(channel.drain(0.0) for channel in control)
        for channel in channels:
            if channel in control or not (channel.has_room() and channel.drain(0.0)):
                continue
            found += 1
            while channel.has_more():
                found += sum(each.drain(0.0) for each in control if each.has_room())
                found += channel.has_more() and channel.drain(0.0)
        return found > 0

    def _wait(self, channels: Iterable[FmqChannel], seconds: float) -> None:
        """Wait for a task, or until a task is done and makes room for another one."""
        for channel in channels:
            if not channel.is_volatile:
                channel.drain(seconds)
                return
        with self._settled:
            self._settled.wait(seconds)


def _path_of(client: Any) -> str:
    """Return the directory of a URL. Raises BadOption."""
    if client.hostname and client.hostname != "localhost":
        raise BadOption(
            f"fmq://{client.hostname}/...: a directory has no host. Nothing was opened; write "
            "fmq:///absolute/path."
        )
    path = (client.virtual_host or "").strip("/")
    if not path:
        raise BadOption("fmq://: name the directory, as in fmq:///absolute/path.")
    return f"/{path}"


def _prefix(exchange: str) -> str:
    return f"{BINDINGS}{quote(exchange, safe='')}/"


def _binding(exchange: str, routing_key: str, queue: str) -> str:
    return f"{_prefix(exchange)}{quote(routing_key, safe='')}/{quote(queue, safe='')}"


TRANSPORT_ALIASES.setdefault("fmq", "fmq.compat.kombu:Transport")

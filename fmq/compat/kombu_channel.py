"""A channel of kombu's: what it declares, publishes and hands out, by one consumer of fmq."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from threading import RLock
from typing import Any
from uuid import uuid4

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from fmq import Consumer, Delivery, RemoteConsumer
from fmq.arguments.options import SECONDS_MAX
from fmq.basics.clock import as_datetime
from fmq.compat.handle import Handle, send
from fmq.compat.kombu_bindings import GROUP, Bindings, clock, topic_of
from fmq.errors import Closed, FmqError, GroupExists, LeaseLost, TopicExists, UnknownTopic

AT_ONCE = 10  # messages that a channel without a limit takes at once
FmqConsumer = Consumer | RemoteConsumer
Polled = tuple[FmqConsumer, Delivery]
logger = logging.getLogger("fmq.compat.kombu")


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
        self._bindings = Bindings(self._engine)
        self._ready: set[str] = set()  # queues whose topic and group exist
        self._held: dict[str, Polled] = {}  # unsettled messages, by delivery tag
        self._next: deque[Polled] = deque()  # messages that were polled and not handed out yet
        self._no_ack: set[str] = set()
        self._joined: tuple[tuple[str, ...], FmqConsumer] | None = None
        # closed consumers that may still hold messages
        self._former: list[FmqConsumer] = []
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
            self._bindings.unbind(exchange, routing_key, queue)
        self.state.queue_bindings_delete(queue)
        self._delete(queue)

    def _delete(self, queue: str, *args: Any, **named: Any) -> None:
        self._ready.discard(queue)
        with suppress(UnknownTopic):
            self._engine.topic(topic_of(queue)).delete()

    # --- bindings -------------------------------------------------------------------------------

    def _queue_bind(self, exchange: str, routing_key: str, pattern: object, queue: str) -> None:
        is_volatile = queue in self.connection.volatile
        self._bindings.bind(exchange, routing_key, queue, is_volatile=is_volatile)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **named: Any
    ) -> None:
        """Stop sending messages of an exchange to a queue."""
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        self._bindings.unbind(exchange, routing_key, queue)

    def get_table(self, exchange: str) -> list[tuple[str, Any, str]]:
        """Return the bindings of an exchange: routing key, pattern and queue. Delete queues of
        workers and clients that are gone.
        """
        table, kind = [], self.typeof(exchange)
        for routing_key, queue, is_alive in self._bindings.of(exchange):
            if is_alive:
                table.append(kind.prepare_bind(queue, exchange, routing_key, None))
            else:
                self._bindings.unbind(exchange, routing_key, queue)
                self._delete(queue)
        return table

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
        return self._hand_out((consumer, found[0]))

    def basic_get(self, queue: str, no_ack: bool = False, **named: Any) -> Any:
        """Return one message; None if there is none."""
        message = super().basic_get(queue, no_ack=no_ack, **named)
        if message is not None and no_ack:
            self.settle(message.delivery_tag, Delivery.ack)
        return message

    def _hand_out(self, polled: Polled) -> dict[str, Any]:
        """Return a message in kombu's form, with a new tag each time."""
        _, delivery = polled
        message: dict[str, Any] = loads(delivery.body.decode())
        properties, tag = message["properties"], str(uuid4())
        properties["delivery_tag"] = tag
        if delivery.attempt > 1:
            message["redelivered"] = True
            properties.setdefault("delivery_info", {})["redelivered"] = True
        self._held[tag] = polled
        return message

    def settle(self, tag: str, settle: Callable[[Delivery], object]) -> None:
        """Ack, release or reject the message with this tag. Any thread may call this."""
        polled = self._held.pop(tag, None)
        if polled is None:
            return
        try:
            settle(polled[1])
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
        polled = self._next.popleft()
        queue = polled[1].topic.removeprefix(topic_of(""))
        message = self._hand_out(polled)
        if queue in self._no_ack:
            self.settle(message["properties"]["delivery_tag"], Delivery.ack)
        self.connection._deliver(message, queue)
        return True

    def fetch(self, timeout: float) -> list[Polled]:
        """Take messages to be handed out, waiting up to `timeout` seconds."""
        limit = self.qos.can_consume_max_estimate() or AT_ONCE
        consumer = self._joined_consumer()
        if consumer is None:
            return []  # the last queue was cancelled meanwhile
        try:
            return [(consumer, each) for each in consumer.poll(limit=limit, timeout=timeout)]
        except Closed:
            if self._joined is not None and self._joined[1] is consumer:
                raise
            return []  # the consumer was cancelled meanwhile

    def take_over(self, found: list[Polled]) -> None:
        """Hand out what another thread has fetched, or give it back."""
        self._next.extend(found)
        self._give_back_cancelled()

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """Hand out all available messages. Raises Empty if there are none."""
        if not self.has_room() or not self.drain(timeout or 0.0):
            raise Empty

    def _joined_consumer(self) -> FmqConsumer | None:
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
        for polled in [each for each in self._next if each[1].topic not in active]:
            self._next.remove(polled)
            with suppress(LeaseLost):
                polled[1].release()

    def _close_former(self, *, all_of_them: bool = False) -> None:
        """Close former consumers that hold nothing any more."""
        holding = {id(consumer) for consumer, _ in (*self._held.values(), *self._next)}
        with self._lock:
            former, self._former = self._former, []
            for consumer in former:
                if id(consumer) in holding and not all_of_them:
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

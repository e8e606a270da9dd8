"""What a client is told: the route of a topic, and the settings of its kind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import fmq
from fmq_rocketmq.clients import Clients, Stream
from fmq_rocketmq.messages import SERVED_TYPES
from fmq_rocketmq.names import group_name, topic_name
from fmq_rocketmq.protocol import Code, Permission, message
from fmq_rocketmq.receiving import ATTEMPTS_MAX
from fmq_rocketmq.refusals import OK, Refused

RECEIVE_BATCH = 32
POLL_SECONDS = 20
SEND_ATTEMPTS_MAX = 3
# RocketMQ's own, in seconds: how long a push consumer leaves a message after each failed attempt.
DELAYS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

Command = message("TelemetryCommand")
Settings = message("Settings")
Queue = message("MessageQueue")
Assignment = message("Assignment")
Route = message("QueryRouteResponse")
Assigned = message("QueryAssignmentResponse")


class Guide:
    """Answers what a client asks before it sends or takes."""

    def __init__(
        self,
        engine: fmq.WritingEngine,
        clients: Clients,
        own: Any,
        fifo_groups: Collection[str],
    ) -> None:
        """`own` are the endpoints of this server, for a client that does not say how it came."""
        self._engine = engine
        self._clients = clients
        self._own = own
        self._fifo_groups = frozenset(fifo_groups)

    def route(self, request: Any, client: str) -> Any:
        """Return the queues of a topic. A topic is made by its first message."""
        return Route(status=OK, message_queues=self._queues(request))

    def assignment(self, request: Any, client: str) -> Any:
        """Return all queues to each consumer of a group: they compete for the messages, and a
        receive from any queue brings messages of all.
        """
        group_name(request.group)
        queues = self._queues(request)
        return Assigned(status=OK, assignments=[Assignment(message_queue=each) for each in queues])

    def _queues(self, request: Any) -> list[Any]:
        name = topic_name(request.topic)
        try:
            count = len(self._engine.queues(name))
        except fmq.UnknownTopic:
            count = 0
        # The client has reached this server under these addresses, so it can again.
        ends = request.endpoints if request.endpoints.addresses else self._own
        found = []
        for number in range(max(count, 1)):
            made = Queue(topic=request.topic, id=number, permission=Permission.READ_WRITE)
            made.broker.name, made.broker.id = "fmq", 0
            made.broker.endpoints.CopyFrom(ends)
            made.accept_message_types.extend(SERVED_TYPES)
            found.append(made)
        return found

    def settings(self, asked: Any, stream: Stream) -> Any:
        """Return the settings of a client, for what it says of itself. Raises Refused."""
        made = Settings()
        made.CopyFrom(asked)
        made.metric.Clear()
        kind = asked.WhichOneof("pub_sub")
        if kind == "publishing":
            self._clients.publishes(stream, map(topic_name, asked.publishing.topics))
            made.publishing.max_body_size = self._engine.options.message_bytes_max
            made.publishing.validate_message_type = True
            made.backoff_policy.max_attempts = SEND_ATTEMPTS_MAX
            backoff = made.backoff_policy.exponential_backoff
            backoff.initial.FromMilliseconds(10)
            backoff.max.FromSeconds(1)
            backoff.multiplier = 2
        elif kind == "subscription":
            group = group_name(asked.subscription.group)
            made.subscription.fifo = group in self._fifo_groups
            made.subscription.receive_batch_size = RECEIVE_BATCH
            made.subscription.long_polling_timeout.FromSeconds(POLL_SECONDS)
            made.backoff_policy.max_attempts = ATTEMPTS_MAX
            for seconds in DELAYS:
                made.backoff_policy.customized_backoff.next.add().FromSeconds(seconds)
        else:
            raise Refused(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                "the settings say neither what the client publishes nor what it subscribes to.",
            )
        return Command(status=OK, settings=made)

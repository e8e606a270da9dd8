"""What tests need: a server with its engine, and a caller that makes single calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import grpc

import fmq
from fmq_rocketmq import protocol
from fmq_rocketmq.access import authorization
from fmq_rocketmq.protocol import Code, FilterType, MessageType, Resource, TransactionResolution
from fmq_rocketmq.server import Server, serve

CALL_SECONDS = 30.0


class Broker:
    """An engine in a directory, and a server in front of it. Both end with the `with` block."""

    def __init__(
        self, path: Path, options: fmq.Options | None = None, where: str = "127.0.0.1:0", **how: Any
    ) -> None:
        """`how` are further arguments of `serve`."""
        self._opened = path, options, where, how

    def __enter__(self) -> Self:
        path, options, where, how = self._opened
        self.engine: fmq.Engine = fmq.open(path, options)
        try:
            self.server: Server = serve(self.engine, where, **how)
        except BaseException:
            self.engine.close()
            raise
        return self

    @property
    def address(self) -> str:
        """The endpoint for clients: host and port."""
        return self.server.address

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.server.close()
        self.engine.close()


class Caller:
    """Makes single calls of MessagingService, as one client. It repeats nothing by itself."""

    def __init__(
        self,
        address: str,
        client: str = "caller",
        *,
        key: tuple[str, str] | None = None,
        tls_cert: bytes | None = None,
    ) -> None:
        """`key` is an access key with its secret. With `tls_cert`, in PEM, the server must have
        that certificate.
        """
        if tls_cert is None:
            self._channel = grpc.insecure_channel(address)
        else:
            trusts = grpc.ssl_channel_credentials(tls_cert)
            self._channel = grpc.secure_channel(address, trusts)
        self.client = client
        date = "20260101T000000Z"
        self.metadata = [("x-mq-client-id", client), ("x-mq-date-time", date)]
        if key is not None:
            self.metadata.append(("authorization", authorization(*key, date)))
        self._calls = {each.name: each for each in protocol.calls()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.close()

    def call(self, name: str, **fields: Any) -> Any:
        """Make a unary call with these fields."""
        asks, answers = self._classes(name)
        return answers.FromString(self.call_with_bytes(name, asks(**fields).SerializeToString()))

    def call_with_bytes(self, name: str, data: bytes) -> bytes:
        """Make a unary call with any bytes, and return those of the answer."""
        function = self._channel.unary_unary(f"/{protocol.SERVICE}/{name}")
        found: bytes = function(data, metadata=self.metadata, timeout=CALL_SECONDS)
        return found

    def stream(self, name: str, **fields: Any) -> list[Any]:
        """Make a call whose answer is a stream, and return all of it."""
        asks, answers = self._classes(name)
        function = self._channel.unary_stream(f"/{protocol.SERVICE}/{name}")
        data = asks(**fields).SerializeToString()
        found = function(data, metadata=self.metadata, timeout=CALL_SECONDS)
        return [answers.FromString(each) for each in found]

    def _classes(self, name: str) -> tuple[Any, Any]:
        call = self._calls[name]
        return protocol.class_of(call.input_type), protocol.class_of(call.output_type)

    # --- the calls that tests make most ---------------------------------------------------------

    def send(
        self,
        topic: str,
        *bodies: bytes,
        kind: int = MessageType.NORMAL,
        properties: dict[str, str] | None = None,
        **said: Any,
    ) -> Any:
        """Send messages in one request. `said` are system properties."""
        messages = []
        for body in bodies:
            made = protocol.Message(
                topic=Resource(name=topic), body=body, user_properties=properties or {}
            )
            system = {"message_id": uuid4().hex, "message_type": kind} | said
            for name, value in system.items():
                if name == "keys":
                    made.system_properties.keys.extend(value)
                elif name == "delivery_timestamp":
                    made.system_properties.delivery_timestamp.FromDatetime(value)
                else:
                    setattr(made.system_properties, name, value)
            messages.append(made)
        return self.call("SendMessage", messages=messages)

    def half(self, topic: str, body: bytes, **said: Any) -> Any:
        """Send the half message of a transaction. Return its entry."""
        answer = self.send(topic, body, kind=MessageType.TRANSACTION, **said)
        assert answer.status.code == Code.OK, answer
        return answer.entries[0]

    def end(self, tx_id: str, *, commits: bool | None, topic: str = "orders") -> Any:
        """Decide a transaction; None is the answer of a checker that does not know. Return the
        status.
        """
        decision = {True: "COMMIT", False: "ROLLBACK", None: "TRANSACTION_RESOLUTION_UNSPECIFIED"}
        return self.call(
            "EndTransaction",
            topic=Resource(name=topic),
            transaction_id=tx_id,
            resolution=TransactionResolution[decision[commits]],
        ).status

    def receive(
        self,
        topic: str,
        group: str = "group",
        *,
        limit: int = 32,
        invisible: float | None = 30.0,
        wait: float = 0.0,
        tags: str = "*",
        sql: str | None = None,
    ) -> list[Any]:
        """Return messages that are taken for `invisible` seconds; None lets the server renew them.

        Raises Answered if the call answers with another status than OK or that there are none.
        """
        queue = protocol.message("MessageQueue")(topic=Resource(name=topic))
        wanted = protocol.message("FilterExpression")(
            type=FilterType.SQL if sql else FilterType.TAG, expression=sql or tags
        )
        asks = self._classes("ReceiveMessage")[0](
            group=Resource(name=group),
            message_queue=queue,
            filter_expression=wanted,
            batch_size=limit,
            auto_renew=invisible is None,
        )
        asks.long_polling_timeout.FromNanoseconds(int(wait * 1e9))
        if invisible is not None:
            asks.invisible_duration.FromNanoseconds(int(invisible * 1e9))
        found = self.stream(
            "ReceiveMessage", **{field.name: value for field, value in asks.ListFields()}
        )
        for each in found:
            if each.HasField("status") and each.status.code not in (
                Code.OK,
                Code.MESSAGE_NOT_FOUND,
            ):
                raise Answered(each.status)
        return [each.message for each in found if each.HasField("message")]

    def ack(self, topic: str, *handles: str, group: str = "group") -> Any:
        """Ack messages by their handles."""
        made = protocol.message("AckMessageEntry")
        entries = [made(message_id="any", receipt_handle=each) for each in handles]
        where = {"group": Resource(name=group), "topic": Resource(name=topic)}
        return self.call("AckMessage", entries=entries, **where)

    def change(
        self, topic: str, handle: str, seconds: float, *, group: str = "group", **fields: Any
    ) -> Any:
        """Change for how long a message is invisible. Return the status."""
        where = {"group": Resource(name=group), "topic": Resource(name=topic)}
        asks = self._classes("ChangeInvisibleDuration")[0](receipt_handle=handle, **where, **fields)
        asks.invisible_duration.FromNanoseconds(int(seconds * 1e9))
        named = {field.name: value for field, value in asks.ListFields()}
        return self.call("ChangeInvisibleDuration", **named).status

    def telemetry(self) -> Telemetry:
        """Open a telemetry stream."""
        return Telemetry(self._channel, self.metadata)


class Answered(Exception):
    """A call has answered with a status that is no success."""

    def __init__(self, status: Any) -> None:
        super().__init__(f"{status.code} {status.message}")
        self.code = status.code
        self.text = status.message


class Telemetry:
    """A telemetry stream: sends what it is given, and yields commands."""

    def __init__(self, channel: Any, metadata: list[tuple[str, str]]) -> None:
        self._command = protocol.message("TelemetryCommand")
        self._more = threading.Condition()
        self._waiting: list[bytes] = []
        self._has_ended = False
        function = channel.stream_stream(f"/{protocol.SERVICE}/Telemetry")
        self._answers = function(self._requests(), metadata=metadata, timeout=CALL_SECONDS)

    def _requests(self) -> Iterator[bytes]:
        while True:
            with self._more:
                while not self._waiting:
                    if self._has_ended:
                        return
                    self._more.wait()
                data = self._waiting.pop(0)
            yield data

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes as a command."""
        with self._more:
            self._waiting.append(data)
            self._more.notify()

    def publishes(self, *topics: str) -> Any:
        """Say to which topics this client sends. Return the answer."""
        command = self._command()
        command.settings.publishing.topics.extend(Resource(name=each) for each in topics)
        # A message without any topic would say nothing of its kind.
        command.settings.publishing.validate_message_type = True
        self.send_bytes(command.SerializeToString())
        return self.next()

    def subscribes(self, group: str) -> Any:
        """Say that this client takes messages for a group. Return the answer."""
        command = self._command()
        command.settings.subscription.group.name = group
        self.send_bytes(command.SerializeToString())
        return self.next()

    def next(self) -> Any:
        """Return the next command. Raises StopIteration at the end of the stream."""
        return self._command.FromString(next(self._answers))

    def close(self) -> None:
        """End the stream."""
        with self._more:
            self._has_ended = True
            self._more.notify()
        self._answers.cancel()

"""The telemetry stream of a client: its settings are answered, and it is asked about transactions.

One thread reads what the client sends, and the thread of the call sends commands.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from fmq_rocketmq.clients import Clients, Stream
from fmq_rocketmq.protocol import Code, message
from fmq_rocketmq.refusals import Refused, status_of
from fmq_rocketmq.settings import Guide

LOG = logging.getLogger("fmq.rocketmq")
Command = message("TelemetryCommand")


class Telemetry:
    """The telemetry streams of a server."""

    def __init__(self, clients: Clients, guide: Guide, streams_max: int) -> None:
        self._clients = clients
        self._guide = guide
        self._room = threading.BoundedSemaphore(streams_max)

    def serve(self, requests: Iterator[bytes], client: str, context: Any) -> Iterator[Any]:
        """Yield commands for a client until it ends its stream. Raises Refused if there are too
        many.
        """
        if not self._room.acquire(blocking=False):
            raise Refused(
                Code.TOO_MANY_REQUESTS, "too many clients are connected to this server. Try later."
            )
        stream = self._clients.open(client)
        try:
            context.add_callback(stream.end)
            name = "fmq-rocketmq-telemetry"
            reader = (requests, stream, context)
            threading.Thread(target=self._read, args=reader, name=name, daemon=True).start()
            yield from stream.commands()
        finally:
            self._clients.close(stream)
            self._room.release()

    def _read(self, requests: Iterator[bytes], stream: Stream, context: Any) -> None:
        try:
            for data in requests:
                self._clients.note_call(stream.client)
                command = Command.FromString(data)
                # Other commands are answers to requests that this server never makes.
                if command.HasField("settings"):
                    stream.send(self._guide.settings(command.settings, stream))
        except DecodeError:
            refusal = Refused(Code.BAD_REQUEST, "the bytes are no TelemetryCommand.")
            stream.send(Command(status=status_of(refusal)))
        except Refused as error:
            stream.send(Command(status=status_of(error)))
        except Exception as error:
            if context.is_active():  # otherwise grpc says that the client has gone
                LOG.exception("a telemetry stream ends")
                stream.send(Command(status=status_of(error)))
        stream.end_after_rest()

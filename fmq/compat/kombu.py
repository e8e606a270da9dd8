"""A transport of kombu on fmq, for Celery: `Celery(broker="fmq:///path/to/directory")`.

A queue of kombu's is a topic. The consumer of a worker holds a message until the worker acks it. If
the worker dies, the message is redelivered. A message that is published inside of a block of the
same directory belongs to the block. Needs the extra `kombu`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Condition
from typing import Any

import fmq
from fmq.arguments.options import SECONDS_MAX
from fmq.compat.handle import Handle, engine_of
from fmq.compat.kombu_bindings import clock
from fmq.compat.kombu_loop import LoopWaits
from fmq.errors import BadOption, Closed, NotAStore, NotServed, OutcomeUnknown

try:
    from kombu.transport import TRANSPORT_ALIASES, virtual

    from fmq.compat.kombu_channel import FmqChannel
except ImportError as error:
    raise ImportError(
        "fmq.compat.kombu needs kombu: pip install 'fmq-engine[kombu]'. Nothing was changed."
    ) from error

WAIT_SECONDS = 0.2  # seconds that one channel waits for a message while others have none


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

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """Return no host: kombu would warn that an address without one means localhost."""
        return {}

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
        """Hand out the messages that there are, those of remote control first. The event loop calls
        this, so it never waits.
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
            if self._wait(channels, min(left, self.polling_interval or WAIT_SECONDS)):
                return

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

    def _wait(self, channels: Iterable[FmqChannel], seconds: float) -> bool:
        """Wait for a task, or until a task is done and makes room for another one. Return whether
        a task was handed out.
        """
        for channel in channels:
            if not channel.is_volatile:
                return channel.drain(seconds)
        with self._settled:
            self._settled.wait(seconds)
        return False


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


TRANSPORT_ALIASES.setdefault("fmq", "fmq.compat.kombu:Transport")

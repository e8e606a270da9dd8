"""The sockets of the engine process: an event loop that hands bytes to sessions."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Any

from fmq.errors import NotAllowed, NotServed
from fmq.recovery.layout import SOCKET
from fmq.server.doors import Door, Reach, open_doors
from fmq.server.frame_timer import HELLO_SECONDS
from fmq.server.host import Host
from fmq.server.load import ANSWER_BYTES_MAX
from fmq.server.session import Session
from fmq.wire.network import address_of, keep_alive
from fmq.wire.processes import STOPS, forget_socket, is_allowed, peer_uid, stop_listening

TURN_BYTES_MAX = 256 << 10  # limit of the bytes read of each client in one turn of the loop
# A client that leaves this many bytes of answers unread is cut off.
UNREAD_BYTES_CUT = 64 << 20
JOIN_SECONDS = 10.0
GIVE_WAY_SECONDS = 5.0  # for what clients have in hand, when another process waits for the lock
ANSWER_SECONDS = 1.0  # seconds that a client has to read its last answers
logger = logging.getLogger("fmq.server")


class ClientSocket(asyncio.BufferedProtocol):
    """One client's socket."""

    def __init__(self, listener: SocketListener, door: Door) -> None:
        self._listener = listener
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session, unless the client may not have one."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        listener, token = self._listener, self._door.token
        refusal = listener.refusal_of(self.socket)
        resume = transport.resume_reading
        what = listener.host, self._send, transport.close, resume, token, address_of(self.socket)
        self._session = session = Session(*what)
        listener.connections.add(self)
        if refusal is not None:
            session.refuse(refusal)
            return
        transport.set_write_buffer_limits(ANSWER_BYTES_MAX)
        if self.socket.family != socket.AF_UNIX:
            keep_alive(self.socket)

    def _send(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        transport.write(data)
        if transport.get_write_buffer_size() > UNREAD_BYTES_CUT:
            bad = self._listener.host.bad_connections
            bad.note("a client that reads no answers was cut off")
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes. They are used before another socket fills it."""
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand the bytes to the session."""
        session, transport = self._session, self._transport
        assert session is not None
        assert transport is not None
        session.received(bytes(self._listener.buffer[:nbytes]))
        if session.is_paused:
            transport.pause_reading()

    def pause_writing(self) -> None:
        """Stop reading while the client does not read its answers."""
        assert self._session is not None
        assert self._transport is not None
        self._session.choke()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again: the client has read its answers."""
        assert self._session is not None
        self._session.unchoke()

    def connection_lost(self, error: Exception | None) -> None:
        """Give back what the client held: its connection has ended."""
        self._listener.lost(self)
        if self._session is not None:
            self._session.ended()

    @property
    def socket(self) -> socket.socket:
        """The socket of the connection."""
        assert self._transport is not None
        made: socket.socket = self._transport.get_extra_info("socket")
        return made

    def close(self) -> None:
        """Close the connection once all answers are sent."""
        assert self._transport is not None
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        assert self._transport is not None
        self._transport.abort()


class SocketListener:
    """Serves one engine in a thread of its own, on the socket of its directory and on others."""

    def __init__(
        self, path: str, make_host: Callable[[asyncio.AbstractEventLoop], Host], reach: Reach
    ) -> None:
        """`make_host` gets the event loop of the thread."""
        self._path = path
        self._doors = open_doors(path, reach)
        self._connections_max = reach.connections_max
        self.buffer = memoryview(bytearray(TURN_BYTES_MAX))
        self.loop = asyncio.new_event_loop()
        self.host = make_host(self.loop)
        self.host.failed = self._engine_failed
        self.host.end = reach.on_stop
        self.loop.set_exception_handler(self._trouble)
        self.connections: set[ClientSocket] = set()
        self.has_ended = Event()
        self.failure: BaseException | None = None
        self._quiet_since = self.loop.time()
        self._stopping: asyncio.Event = asyncio.Event()
        self._left = asyncio.Event()  # set when a connection has ended
        self._thread = Thread(target=self._run, name="fmq server", daemon=True)
        self._thread.start()

    @property
    def addresses(self) -> list[object]:
        """The addresses at which it listens, as the sockets name them."""
        # The socket of the directory was renamed since it got the name that it knows.
        own = f"{self._path.rstrip('/')}/{SOCKET}"
        return [own if each.own_file else each.socket.getsockname() for each in self._doors]

    def refusal_of(self, client: socket.socket) -> NotAllowed | NotServed | None:
        """Return the reason why a client gets no session; None if it gets one."""
        if self.host.is_draining:
            return NotServed(f"{self._path}: {STOPS}. Nothing was changed.")
        if len(self.connections) >= self._connections_max:
            return NotServed(
                f"there are {self._connections_max:,} connections, and no more are taken. Nothing "
                "was changed; try again when a client has closed its own."
            )
        if client.family == socket.AF_UNIX and not is_allowed(peer_uid(client), self._path):
            return NotAllowed(
                f"{self._path}: the directory belongs to another user, and only that user and root "
                "may use it through its socket. Nothing was changed."
            )
        return None

    def lost(self, connection: ClientSocket) -> None:
        """Forget a connection that has ended."""
        self.connections.discard(connection)
        self._left.set()
        self._quiet_since = self.loop.time()

    def quiet_seconds(self) -> float:
        """Return for how many seconds there has been no connection."""
        return 0.0 if self.connections else self.loop.time() - self._quiet_since

    def _trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count what the system refuses, such as a descriptor for a connection, and failures of
        TLS.
        """
        error = context.get("exception")
        if isinstance(error, OSError):
            self.host.bad_connections.note(f"{context.get('message')}: {error}")
        else:
            loop.default_exception_handler(context)

    def _engine_failed(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            self.failure = error
            logger.exception("the server has ended")
        finally:
            for door in self._doors:
                door.socket.close()
            self.loop.close()
            self.has_ended.set()

    async def _serve(self) -> None:
        servers = [await self._open(door) for door in self._doors]
        try:
            await self._stopping.wait()
        finally:
            for server in servers:
                server.close()
            self.host.close()
            for connection in [*self.connections]:
                connection.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    while self.connections:
                        self._left.clear()
                        await self._left.wait()
            for connection in [*self.connections]:
                connection.abort()
            await asyncio.sleep(0)

    async def _open(self, door: Door) -> asyncio.Server:
        make = partial(ClientSocket, self, door)
        patience = None if door.context is None else HELLO_SECONDS
        # This call also takes Unix sockets. `create_unix_server` might remove the socket's file at
        # its end.
        return await self.loop.create_server(
            make, sock=door.socket, ssl=door.context, ssl_handshake_timeout=patience
        )

    def close(self) -> None:
        """Accept no connection, answer the requests that were made, and end."""
        if not self.has_ended.is_set():
            for door in self._doors:
                if door.own_file is not None:
                    stop_listening(self._path, door.own_file)
            with suppress(RuntimeError):  # the loop has ended by itself
                self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(JOIN_SECONDS)

    def gives_way(self, end: Callable[[], None]) -> None:
        """Have `end` called when another process waits for the lock of the directory, once no
        client has messages in hand, or after GIVE_WAY_SECONDS.
        """
        self.host.end = self.host.end or end
        self.host.give_way = partial(self.host.stop, GIVE_WAY_SECONDS)

    def forked(self) -> None:
        """Close this process's copies of the sockets, in the child of a fork."""
        for door in self._doors:
            forget_socket(door.socket)
        for connection in self.connections:
            forget_socket(connection.socket)

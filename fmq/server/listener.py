"""Sockets of the engine process: an event loop that hands bytes to sessions."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from fmq.processes import forget_socket, is_allowed, listen_in, peer_uid, stop_listening
from fmq.server.host import Host
from fmq.server.session import Session

CONNECTIONS_MAX = 4096
HELLO_SECONDS = 5.0
FRAME_SECONDS = 30.0  # for the rest of a frame that has begun
UNREAD_BYTES_MAX = 8 << 20  # of answers; then the client is not read any more
UNREAD_BYTES_CUT = 64 << 20
JOIN_SECONDS = 10.0
ANSWER_SECONDS = 1.0  # how long a client may take at the end to read its answers
logger = logging.getLogger("fmq.server")


class ClientSocket(asyncio.Protocol):
    """One client's socket."""

    def __init__(self, listener: SocketListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_frame = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session, unless the client may not have one."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        listener = self._listener
        why = listener.refusal_of(self.socket)
        self._session = session = Session(listener.host, self._send, transport.close)
        listener.connections.add(self)
        if why is not None:
            session.refuse(why)
            return
        transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        self._timer = listener.loop.call_later(HELLO_SECONDS, self._too_slow)

    def _send(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        transport.write(data)
        if transport.get_write_buffer_size() > UNREAD_BYTES_CUT:
            logger.warning("a client that reads no answers was cut off")
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the session."""
        session = self._session
        assert session is not None
        session.received(data)
        if session.is_known and (self._timer is not None or not session.is_between_frames):
            self._watch(session)

    def _watch(self, session: Session) -> None:
        """See that a frame that has begun is whole in time."""
        begun = not session.is_between_frames
        if begun and self._waits_for_frame:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits_for_frame = begun
        if begun:
            self._timer = self._listener.loop.call_later(FRAME_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        assert self._session is not None
        self._session.refuse("a connection was closed, because a frame did not arrive in time")

    def pause_writing(self) -> None:
        """Read no more while the client does not read its answers."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        assert self._transport is not None
        self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Give back what the client held."""
        if self._timer is not None:
            self._timer.cancel()
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
        """End the connection, once all answers are sent."""
        assert self._transport is not None
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        assert self._transport is not None
        self._transport.abort()


class SocketListener:
    """Serves one engine on the socket of its directory, in a thread of its own."""

    def __init__(self, path: str, make_host: Callable[[asyncio.AbstractEventLoop], Host]) -> None:
        """`make_host` gets the event loop of the thread."""
        self._path = path
        self.loop = asyncio.new_event_loop()
        self.host = make_host(self.loop)
        self.host.failed = self._engine_failed
        self.connections: set[ClientSocket] = set()
        self.has_ended = Event()
        self.failure: BaseException | None = None
        self._quiet_since = self.loop.time()
        self._stopping: asyncio.Event = asyncio.Event()
        self._left = asyncio.Event()  # a connection has ended
        self._socket = listen_in(path)
        self._thread = Thread(target=self._run, name="fmq server", daemon=True)
        self._thread.start()

    def refusal_of(self, client: socket.socket) -> str | None:
        """Return why a client may not have a session, or None."""
        if len(self.connections) >= CONNECTIONS_MAX:
            return f"there are {CONNECTIONS_MAX:,} connections, and no more are taken"
        if client.family == socket.AF_UNIX and not is_allowed(peer_uid(client), self._path):
            return "the directory belongs to another user"
        return None

    def lost(self, connection: ClientSocket) -> None:
        """Forget a connection that has ended."""
        self.connections.discard(connection)
        self._left.set()
        self._quiet_since = self.loop.time()

    def quiet_seconds(self) -> float:
        """Return for how long there has been no connection."""
        return 0.0 if self.connections else self.loop.time() - self._quiet_since

    def _engine_failed(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            self.failure = error
            logger.exception("the server has ended")
        finally:
            self._socket.close()
            self.loop.close()
            self.has_ended.set()

    async def _serve(self) -> None:
        server = await self.loop.create_unix_server(lambda: ClientSocket(self), sock=self._socket)
        try:
            await self._stopping.wait()
        finally:
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

    def close(self) -> None:
        """Take no more, answer what was asked, and end."""
        if not self.has_ended.is_set():
            stop_listening(self._path)
            with suppress(RuntimeError):  # the loop has just ended by itself
                self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(JOIN_SECONDS)

    def gives_way(self, end: Callable[[], None]) -> None:
        """Have `end` called when another process waits for the directory."""

        def give_way() -> bool:
            end()
            return True

        self.host.give_way = give_way

    def forked(self) -> None:
        """Close this process's copies of the sockets: it is the child of a fork."""
        for each in [self._socket, *(connection.socket for connection in self.connections)]:
            forget_socket(each)

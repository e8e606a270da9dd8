"""A connection that speaks TLS. One thread may read while another one writes.

An `ssl.SSLSocket` does not allow that, and a thread that reads waits for long. So the bytes go
through memory: a lock is held while they are encrypted or decrypted, and none while a thread waits.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from threading import Lock

from fmq.errors import NotAllowed
from fmq.wire.network import CONNECT_SECONDS
from fmq.wire.processes import receive_at_once, send_at_once

RECEIVE_BYTES = 1 << 18


class TlsWire:
    """Implements Wire with TLS over a socket."""

    def __init__(self, made: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Raises NotAllowed if the server cannot prove that it is `host`, OSError if it does not
        answer.
        """
        self._socket = made
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = Lock()  # held around each use of `_tls`
        self._sending = Lock()  # held by the thread that sends, so that bytes stay in order
        made.settimeout(CONNECT_SECONDS)
        try:
            self._shake_hands()
        except ssl.SSLError as error:
            made.close()
            if isinstance(error, ssl.SSLEOFError):
                raise
            raise NotAllowed(
                f"{host}: TLS with this server fails ({error}). Nothing was changed. Look whether "
                "tls_ca has the certificate that the server shows, and whether it speaks TLS."
            ) from error
        except BaseException:
            made.close()
            raise
        made.settimeout(None)
        self.forget = made.close
        self.fileno = made.fileno
        self._rest = b""  # encrypted bytes that `send_now` could not send

    def _shake_hands(self) -> None:
        done = False
        while not done:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            finally:
                self._socket.sendall(self._outgoing.read())
            if not done:
                self._fill()

    def _fill(self) -> None:
        data = self._socket.recv(RECEIVE_BYTES)
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        view = memoryview(data)
        with self._sending:
            if self._rest:
                rest, self._rest = self._rest, b""
                self._socket.sendall(rest)
            while view:
                with self._lock:
                    view = view[self._tls.write(view[:RECEIVE_BYTES]) :]
                    encrypted = self._outgoing.read()
                self._socket.sendall(encrypted)

    def send_now(self, data: bytes) -> bool:
        """Send what can be sent without waiting, and keep the rest. Return whether nothing
        is left.
        """
        with self._sending:
            with self._lock:
                view = memoryview(data)
                while view:
                    view = view[self._tls.write(view[:RECEIVE_BYTES]) :]
                encrypted = self._rest + self._outgoing.read()
            sent = 0
            if not self._rest:
                with suppress(BlockingIOError):
                    sent = send_at_once(self._socket, encrypted)
            self._rest = encrypted[sent:]
            return not self._rest

    def receive_now(self) -> bytes | None:
        """Return the next bytes; None if none have arrived."""
        found: list[bytes] = []
        while True:
            try:
                data = receive_at_once(self._socket, RECEIVE_BYTES)
            except BlockingIOError:
                return b"".join(found) or None
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
                try:
                    while True:
                        read = self._tls.read(RECEIVE_BYTES)
                        if not read:
                            return b"".join(found)
                        found.append(read)
                except ssl.SSLWantReadError:
                    pass  # only a part of a TLS record has arrived
                except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    return b"".join(found)

    def receive(self) -> bytes:
        """Return the next bytes; b"" at the end of the connection."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(RECEIVE_BYTES)
                except ssl.SSLWantReadError:
                    pass  # a reply that TLS itself has to send goes out with the next request
                except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    return b""
            self._fill()

    def close(self) -> None:
        """Close the connection. A thread that waits for bytes gets the end of the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

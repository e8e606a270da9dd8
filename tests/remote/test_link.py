"""The connection of one client among its threads."""

from __future__ import annotations

import socket
from threading import Thread

from fmq import Options
from fmq.clock import SystemClock
from fmq.errors import Closed
from fmq.remote.connecting import SocketWire
from fmq.remote.link import Link
from fmq.wire.frames import HEAD, VERSION, Op, frame
from fmq.wire.values import encode_values

LARGE = 8 << 20
PATIENCE_SECONDS = 20.0


class Server:
    """The other end of a connection, which reads nothing while its answers are not read."""

    def __init__(self) -> None:
        self.end, self._client_end = socket.socketpair()
        self.end.settimeout(PATIENCE_SECONDS)

    def dial(self) -> SocketWire:
        hello = [VERSION, "store", b"i", "path", Options(), LARGE]
        self.end.sendall(frame(Op.HELLO, 0, encode_values(hello)))
        return SocketWire(self._client_end)

    def take(self) -> tuple[int, int]:
        """Read one request; return its op and number."""
        size, op, _, _, request = HEAD.unpack(self._exactly(HEAD.size))
        self._exactly(size)
        return op, request

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.end.recv(size - len(data))
            assert piece
            data += piece
        return data


def test_answers_are_read_while_a_request_is_sent() -> None:
    """A large request is not taken before large answers are read, so neither may wait."""
    server = Server()
    link = Link(
        *("here", server.dial, bytes, SystemClock(), 0.0, list, lambda: None),
    )
    link.connect()
    assert server.take()[0] == Op.HELLO
    answers: list[int] = []

    def ask(op: Op, size: int) -> None:
        answers.append(len(link.ask(op, bytes(size))))

    readers = [Thread(target=ask, args=(Op.READ, 1), daemon=True) for _ in range(3)]
    for each in readers:
        each.start()
    asked = [server.take() for _ in readers]
    sender = Thread(target=ask, args=(Op.SEND, LARGE), daemon=True)
    sender.start()
    assert server.end.recv(HEAD.size, socket.MSG_PEEK | socket.MSG_WAITALL)  # it has begun to send
    for op, request in asked:
        server.end.sendall(frame(op, request, bytes(LARGE)))
    op, request = server.take()
    server.end.sendall(frame(op, request))
    for each in [*readers, sender]:
        each.join(PATIENCE_SECONDS)
    assert sorted(answers) == [0, LARGE, LARGE, LARGE]
    link.close(Closed(""))
    server.end.close()

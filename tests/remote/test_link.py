"""The connection of one client: shared by its threads, and without an answer."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from fmq import Options
from fmq.basics.clock import SystemClock
from fmq.errors import Closed, FmqError, Locked, NotAllowed, NotServed, OutcomeUnknown
from fmq.posix import RealDisk
from fmq.remote.dial import Dialer, SocketWire
from fmq.remote.link import Link
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.remote.wires import Wire, silence_of
from fmq.testing import FakeClock
from fmq.wire.frames import HEAD, ONCE, VERSION, Op, frame
from fmq.wire.processes import impatient
from fmq.wire.values import encode_values
from tests.remote.served import serving

LARGE = 8 << 20
PATIENCE_SECONDS = 60.0
RETRY_FOR = 4.0


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


class Ended:
    """A wire to an engine process that has said HELLO, takes one request, and is gone."""

    def __init__(self, taken: list[bytes]) -> None:
        hello = [VERSION, "store", b"i", "path", Options(), LARGE]
        self._arrived = [frame(Op.HELLO, 0, encode_values(hello))]
        self._taken = taken

    def send(self, data: bytes) -> None:
        self._taken.append(data)

    def receive(self) -> bytes:
        return self._arrived.pop() if self._arrived else b""

    def fileno(self) -> int:
        raise AssertionError("no event loop watches it")

    def send_now(self, data: bytes) -> bool:
        self.send(data)
        return True

    def receive_now(self) -> bytes | None:
        return self.receive()

    def close(self) -> None:
        pass

    forget = close


def link_to(dial: Callable[[], Wire], clock: FakeClock, explain: FmqError | None = None) -> Link:
    return Link("here", dial, bytes, clock, 30.0, list, lambda: explain)


@pytest.mark.parametrize("explained", [None, Locked("here", "process 1", served=False)])
@pytest.mark.parametrize("op", sorted(ONCE))
def test_a_write_that_may_be_durable_is_never_said_to_have_changed_nothing(
    op: Op, explained: FmqError | None
) -> None:
    """Its own thread is the one that tries to connect, and gives up."""
    wires: list[Wire] = [Ended([])]

    def dial() -> Wire:
        if not wires:
            raise ConnectionRefusedError
        return wires.pop()

    link = link_to(dial, FakeClock(), explained)
    link.connect()
    with pytest.raises(OutcomeUnknown):
        link.write(op, lambda sequence, waiting: (b"",))
    with pytest.raises(NotServed if explained is None else Locked):
        link.ask(Op.READ, b"")
    with pytest.raises(NotServed if explained is None else Locked, match="Nothing was changed"):
        link.write(op, lambda sequence, waiting: (b"",))  # it was never sent


def test_a_write_that_is_refused_when_it_is_repeated_may_be_durable() -> None:
    wires: list[Wire] = [Ended([])]

    def dial() -> Wire:
        if not wires:
            raise PermissionError
        return wires.pop()

    clock = FakeClock()
    link = link_to(dial, clock)
    link.connect()
    began = clock.monotonic()
    with pytest.raises(OutcomeUnknown, match="this user may not use"):
        link.write(Op.SEND, lambda sequence, waiting: (b"",))
    with pytest.raises(NotAllowed, match="Nothing was changed"):
        link.write(Op.SEND, lambda sequence, waiting: (b"",))
    assert clock.monotonic() == began, "it is refused at once"


@pytest.mark.parametrize(
    ("minutes", "jump", "sent"), [(10, 0, 2), (61, 0, 1), (61, -120, 1), (10, 120, 1), (10, -5, 2)]
)
def test_a_write_is_not_repeated_once_the_engine_may_have_forgotten_it(
    minutes: int, jump: int, sent: int
) -> None:
    """A receipt is kept for an hour. After that a repeat would be done a second time. The clock on
    the wall may jump meanwhile, by minutes.
    """
    taken: list[bytes] = []
    wires: list[Wire] = [Ended([]), Ended(taken), Ended(taken)]
    clock = FakeClock()

    def dial() -> Wire:
        if len(wires) == 2:
            clock.advance(minutes * 60.0)
            clock.set_wall_clock(clock.time_us() + jump * 60_000_000)
        if not wires:
            raise PermissionError
        return wires.pop()

    link = link_to(dial, clock)
    link.connect()
    with pytest.raises(OutcomeUnknown, match=r"too long|may not use"):
        link.write(Op.SEND, lambda sequence, waiting: (b"",))
    ops = [HEAD.unpack_from(data)[1] for data in taken]
    assert ops.count(Op.SEND) == sent


def test_a_client_of_a_stopped_process_waits_no_longer_than_retry_for(tmp_path: Path) -> None:
    """Its connection does not break, and another one is taken, too. It can go on afterwards."""
    path, clock, tries = tmp_path / "shop", SystemClock(), list[int]()
    dialer = Dialer(str(path), None, clock, starts=False, silence=silence_of(RETRY_FOR))

    def dial() -> Wire:
        tries.append(1)
        return dialer.dial()

    with serving(path) as served:
        client = RemoteEngine(LinkDoor(str(path), dial, RealDisk.random, clock, RETRY_FOR))
        client.send("t", b"1")
        assert client.read("t", offset=1, timeout=RETRY_FOR / 3) == []  # to wait is no silence
        served.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, served.process.pid, os.WSTOPPED)
        tries.clear()
        with pytest.raises(OutcomeUnknown, match="stopped"):
            client.send("t", b"2")
        assert len(tries) <= 3, "it is waited for twice, each try for a quarter of `retry_for`"
        served.process.send_signal(signal.SIGCONT)
        client.send("t", b"3")
        found = [message.body for message in client.read("t")]
        assert found in ([b"1", b"3"], [b"1", b"2", b"3"])
        client.close()


def test_a_client_waits_for_a_slow_process() -> None:
    """It says HELLO to another client meanwhile, so it is there."""
    server = Server()
    impatient(server._client_end, 0.05)
    first, hellos = [server.dial()], 0

    class Probe(Ended):
        def close(self) -> None:
            nonlocal hellos
            hellos += 1
            if hellos == 3:
                server.end.sendall(frame(Op.READ, 1, b"at last"))

    link = Link(
        *("here", lambda: first.pop() if first else Probe([]), bytes, SystemClock(), 0.0, list),
        lambda: None,
    )
    link.connect()
    assert link.ask(Op.READ, b"") == b"at last"
    assert hellos == 3
    link.close(Closed(""))
    server.end.close()


def test_a_close_ends_attempts_to_connect() -> None:
    """They hold the lock of the link, for up to `retry_for`."""
    server, tried = Server(), Event()
    first, said = [server.dial()], []

    def dial() -> Wire:
        if first:
            return first.pop()
        tried.set()
        raise ConnectionRefusedError

    link = Link("here", dial, bytes, SystemClock(), 3600.0, list, lambda: None)
    link.connect()
    server.end.close()

    def ask() -> None:
        with pytest.raises(Closed) as caught:
            link.ask(Op.READ, b"")
        said.append(str(caught.value))

    threads = [Thread(target=ask, daemon=True)]
    threads.append(Thread(target=link.close, args=[Closed("closed by hand")], daemon=True))
    threads[0].start()
    assert tried.wait(PATIENCE_SECONDS)
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert said == ["closed by hand"]

"""The connection of one client: frames are cut out of its bytes, served in order, and answered.

A session knows no socket. Its driver hands it the bytes that arrive, and sends the bytes of its
answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hmac import compare_digest
from typing import Any

from fmq.basics.clock import as_datetime
from fmq.basics.process import Process
from fmq.basics.results import ClientInfo
from fmq.errors import (
    FmqError,
    NotAllowed,
    NotServed,
    ProtocolError,
    StorageError,
)
from fmq.server.client_call import ClientCall
from fmq.server.consumer_requests import Consuming
from fmq.server.frame_timer import FrameTimer
from fmq.server.host import Host
from fmq.server.load import Load
from fmq.server.long_polls import LongPolls
from fmq.server.named_calls import NamedCalls
from fmq.server.writes import Writes
from fmq.steps.call_steps import Steps
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.frames import (
    FAILED,
    FIRST_BYTES_MAX,
    HELLO_BYTES_MAX,
    VALUES_BYTES_MAX,
    VERSION,
    BadFrame,
    Frame,
    Op,
    Splitter,
    frame,
)
from fmq.wire.requests import decode
from fmq.wire.values import encode_error, encode_values

SETTLES = {
    *(Op.CALL, Op.CANCEL, Op.COMMIT, Op.ACK, Op.ACK_ALL, Op.ADVANCE, Op.RELEASE, Op.REJECT),
    *(Op.EXTEND, Op.HOLD, Op.END_HOLD, Op.LEAVE, Op.DRAIN, Op.RELEASE_ID),
}
"""What a process that is being stopped still does for its clients."""


class Session:
    """A connection of one client."""

    def __init__(
        self,
        host: Host,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        room: Callable[[], None] = lambda: None,
        token: bytes | None = None,
        address: str | None = None,
    ) -> None:
        """`send` sends bytes to the client, and `close` ends the connection. `room` is called when
        a paused session takes bytes again. With a `token`, only clients that show it are served. A
        client over TCP has an `address`.
        """
        self.host = host
        self._send = send
        self.close = close
        self._room = room
        self._token = token
        self._address = address
        self._splitter = Splitter(FIRST_BYTES_MAX)
        self._frames: deque[Frame] = deque()  # complete frames that were not served yet
        self.load = Load()
        self.is_paused = False
        """Whether the driver is to read no more for now."""
        self.client = b""
        self._answers: list[bytes] = []
        self.has_ended = False
        self._timer = FrameTimer(host.loop, self._late)
        self.waiting: set[ClientCall] = set()  # calls that wait for messages
        # The waiting calls that the client may cancel, by name.
        self.named: dict[int, ClientCall] = {}

    def _begin(self, client: bytes, machine: str, pid: int) -> None:
        """Make the objects that serve requests. Before its HELLO a connection takes little
        memory.
        """
        host = self.host
        self._process = Process(machine, pid, self._address)
        self._since, self._asked_at, self._calls = host.time_us(), host.monotonic(), 0
        self._polls = LongPolls(host)
        self._consuming = Consuming(host, client, self.load, self._process)
        self._writes = Writes(host, client, self._consuming)
        self._serves: dict[int, Callable[[Frame, Any], bytes | Steps[bytes] | None]] = {
            Op.CALL: NamedCalls(host, client, self._polls).serve,
            Op.CANCEL: self._on_cancel,
            **self._writes.serves,
            **self._consuming.serves,
            **self._polls.serves,
        }
        self.client = client
        if host.is_draining:
            self.drain()

    def drain(self) -> None:
        """From now on, serve only requests that settle messages in hand or transactions. Leave all
        others without an answer.
        """
        for call in [*self.waiting]:
            call.cancel()
        kept = {op: serve for op, serve in self._serves.items() if op in SETTLES}
        self._serves = {**dict.fromkeys(self._serves, self._leave_open), **kept}

    def _leave_open(self, asked: Frame, said: Any) -> None:
        """Give no answer: the client asks the next engine process, once this one has ended."""
        self.load.answered(len(asked.payload), 0)

    def has_in_hand(self) -> bool:
        """Return whether the client has messages that it may still ack."""
        return self._consuming.has_in_hand()

    # --- what the driver calls ------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take bytes from the client. Raises nothing, whatever the bytes are."""
        if self.has_ended:
            return
        try:
            found = self._splitter.feed(data)
        except BadFrame as error:
            self._refuse_frame(error.asked, error)
            return
        self._frames.extend(found)
        self._go_on(moved=bool(found))

    def _go_on(self, *, moved: bool = False) -> None:
        """Serve the frames that have arrived, as far as the load allows."""
        frames, load = self._frames, self.load
        while True:
            while frames and not load.is_full(len(self.waiting)):
                self._serve(frames.popleft())
            self.host.served()
            if self.has_ended:
                return
            if not frames or load.is_full(len(self.waiting)):
                # Go on if the load has dropped: a lone client was answered at once.
                break
        was_paused = self.is_paused
        self.is_paused = bool(frames) or load.is_full(len(self.waiting))
        # While nothing is read, the client cannot be late.
        begun = not (self._splitter.is_empty or self.is_paused)
        if self.client and (begun or self._timer.is_running):
            self._timer.watch(begun=begun, moved=moved)
        if was_paused and not self.is_paused:
            self._room()

    def choke(self) -> None:
        """Serve nothing for now, because the client does not read its answers."""
        self.load.is_choked = self.is_paused = True
        if self.client:
            self._timer.stop()

    def unchoke(self) -> None:
        """Serve again: the client has read its answers."""
        self.load.is_choked = False
        for call in [*self.waiting]:
            call.look_again()
        self._go_on()

    def _late(self) -> None:
        self.refuse(NotServed("a connection was closed, because a frame did not arrive in time"))

    def ended(self) -> None:
        """Give back what the client held. Its connection has ended."""
        if self.has_ended:
            return
        self.has_ended = True
        self._timer.stop()
        self._frames.clear()
        if self.host.sessions.get(self.client) is self:
            del self.host.sessions[self.client]
        for call in [*self.waiting]:
            call.cancel()
        if self.client:
            self._polls.end()
            self._consuming.end()
            self._writes.end()

    def info(self) -> ClientInfo:
        """Return what is known of the client. Each call begins a new time for its rate."""
        now, calls = self.host.monotonic(), self.load.calls
        seconds, more = now - self._asked_at, calls - self._calls
        self._asked_at, self._calls = now, calls
        return ClientInfo(
            *(self.client.hex(), *self._process, as_datetime(self._since), calls),
            calls_per_second=more / seconds if seconds > 0 else 0.0,
            waiting=len(self.waiting),
            members=self._consuming.names(),
            transactions=self._writes.open_ids(),
        )

    def refuse(self, error: StorageError, asked: Frame | None = None) -> None:
        """Answer `asked` with an error, and close the connection. Without `asked`, the error
        answers no particular request.
        """
        self.host.bad_connections.note(str(error))
        op, request = (0, 0) if asked is None else (asked.op, asked.request)
        self._answers.append(frame(op, request, encode_error(error), flags=FAILED))
        self.flush()
        self.ended()
        self.close()

    def flush(self) -> None:
        """Send the collected answers."""
        answers, self._answers = self._answers, []
        if answers and not self.has_ended:
            self.load.sent()
            self._send(b"".join(answers))
            if self.is_paused and not self.load.is_full(len(self.waiting)):
                self.host.loop.call_soon(self._go_on)

    # --- requests -------------------------------------------------------------------------------

    def _serve(self, asked: Frame) -> None:
        self.load.asked(len(asked.payload))
        try:
            said = decode(asked.op, asked.payload)
            found: bytes | Steps[bytes] | None
            if self.client:
                found = self._serves[asked.op](asked, said)
            else:
                found = self._hello(asked, said)
        except Exception as error:
            self.failed(asked, error)
            return
        if isinstance(found, bytes):
            self.answer(asked, found)
        elif found is not None:
            ClientCall(self, asked, said, found).go_on()

    def failed(self, asked: Frame, error: Exception) -> None:
        """Answer a request with an error. If the error is none that fmq raises on purpose, close
        the connection, so that the other clients are not affected.
        """
        queue = self.host.commit_queue
        if isinstance(error, (FmqError, TypeError, OSError)):
            self.fail(asked, error)
        elif queue.broken():
            self.fail(asked, queue.failed_error())
            self.host.failed()
        else:
            self._refuse_frame(asked, error)

    def _refuse_frame(self, asked: Frame | None, error: Exception) -> None:
        """Close the connection, because a frame of it breaks the rules."""
        what = error if isinstance(error, BadFrame) else f"a request that cannot be read: {error!r}"
        text = f"a connection was closed, because of {what!s:.300}. Nothing was changed by it."
        self.refuse(ProtocolError(text), asked)

    def answer(self, asked: Frame, *payload: bytes, flags: int = 0) -> None:
        """Answer a request. The bytes are sent when this turn has served everything."""
        answer = frame(asked.op, asked.request, *payload, flags=flags)
        self.load.answered(len(asked.payload), len(answer))
        self._answers.append(answer)
        self.host.answered(self)

    def fail(self, asked: Frame, error: Exception) -> None:
        """Answer a request with an error."""
        self.answer(asked, encode_error(error), flags=FAILED)

    def _on_cancel(self, asked: Frame, said: list[Any]) -> bytes:
        (name,) = said
        call = self.named.get(name)
        if call is not None:
            call.give_up()
        return b""

    def _hello(self, asked: Frame, said: Any) -> bytes | None:
        if asked.op != Op.HELLO:
            raise BadFrame("a first frame that is no HELLO")
        version = said[0] if isinstance(said, list) and said else None
        if version != VERSION:
            text = (
                f"the client speaks version {version!r:.20} of the protocol, and this process "
                f"{VERSION}: use the same fmq in both. Nothing was changed."
            )
            self.refuse(ProtocolError(text), asked)
            return None
        if len(said) != 5:
            raise BadFrame("a HELLO with other fields")
        _, client, token, machine, pid = said
        if self._token is not None and not (
            isinstance(token, bytes) and compare_digest(token, self._token)
        ):
            text = "the client has not shown the token of the server. Nothing was changed."
            self.refuse(
                NotAllowed(f"{text} Copy the server's token file, and name the copy."), asked
            )
            return None
        if not isinstance(client, bytes) or len(client) != CLIENT_BYTES:
            raise BadFrame("a HELLO without the id of its client")
        if type(machine) is not str or type(pid) is not int:
            raise BadFrame("a HELLO that does not say where its client runs")
        before = self.host.sessions.pop(client, None)
        if before is not None:
            # What the client has sent over the older connection counts. What still arrives there
            # does not.
            before.ended()
            before.close()
        # A repeat is looked for among the planned requests only. So plan now what the older
        # connection has ordered.
        self.host.commit()
        self._begin(client, machine, pid)
        self.host.sessions[client] = self
        door, journal = self.host.door, self.host.parts.journal
        self._splitter.limit(journal.append_bytes_max + HELLO_BYTES_MAX, VALUES_BYTES_MAX)
        hello = [
            *(VERSION, self.host.parts.feedback.store, self.host.incarnation, door.path),
            *(door.options, journal.append_bytes_max),
        ]
        return encode_values(hello)

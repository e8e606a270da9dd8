"""The connection of one client, shared by its threads, and made again when it breaks.

If the connection breaks, the thread that reads makes a new one, and sends again the requests that
have no answer (open_requests.py).

One thread at a time reads, for all threads that wait. It hands each answer to the thread that
asked. Once it has its own answer, another waiting thread goes on reading. If an event loop uses the
client (fmq/aio), the loop reads instead, and requests may be sent without waiting for their
answers.

An engine process may be stopped without ending. Then its connection does not break. So if an answer
is late, the thread that reads sends a HELLO over another connection. If that is answered, the
process is only busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock, RLock, get_ident
from typing import Any

from fmq.arguments.options import Options
from fmq.basics.clock import Clock, sleep
from fmq.basics.lock_owner import is_mine
from fmq.errors import Closed, EngineFailed, FmqError, Nested, NotServed, ProtocolError
from fmq.remote.hello import Hello, Refused, is_served, say_hello
from fmq.remote.no_answer import no_answer, not_allowed, not_served, refused, unanswered
from fmq.remote.open_requests import Asked, OpenRequests, ToAsk
from fmq.remote.wires import Line, LoopReads, Wire, silence_of
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.frames import FAILED, ONCE, VERSION, BadFrame, Frame, Op, frame, repeated
from fmq.wire.values import decode_error, decode_values, encode_values

# No limit: the engine process is trusted, because it has our messages anyway.
FRAME_BYTES_MAX = (1 << 32) - 1
PAUSE_MIN, PAUSE_MAX = 0.01, 0.25  # seconds between two attempts to connect
# So long a client waits that follows an owner: its successor may serve already.
FOLLOWER_SILENCE_SECONDS = 2.0
# A waiting thread looks this often whether the loop still reads for it.
LOOK_SECONDS = 0.1


class Link:
    """The requests and answers of one client."""

    def __init__(
        self,
        where: str,
        dial: Callable[[], Wire],
        draw: Callable[[int], bytes],
        clock: Clock,
        retry_for: float,
        joined: Callable[[], list[tuple[int, bytes]]],
        explain: Callable[[], FmqError | None],
        token: bytes | None = None,
        *,
        follows: bool = False,
    ) -> None:
        """`dial` makes a connection. It raises OSError, or an FmqError if there can be none. `draw`
        returns random bytes. `joined` returns the handles of the consumers, each with the payload
        of its JOIN, for a new connection. `explain` returns a better error than NotServed, if it
        knows one. With `follows`, an engine that has failed is one whose successor may be asked:
        requests that it has refused wait for that, and are repeated there.
        """
        self._where = where
        self._dial = dial
        self._draw = draw
        self.clock = self._clock = clock
        self._retry_for = retry_for
        self._joined = joined
        self._explain = explain
        self._token = token
        self._follows = follows
        self._silence = silence_of(retry_for)
        if follows:
            self._silence = min(self._silence, FOLLOWER_SILENCE_SECONDS)
        self._silent = 0.0  # seconds of silence after which the last connection was dropped
        self._closed: Closed | None = None
        self._closing: Closed | None = None  # ends attempts to connect, which hold the lock
        self.loop: LoopReads | None = None
        self.loops: list[LoopReads] = []  # loops that may read once `loop` ends
        self._begin()
        self.hello = Hello(VERSION, "", b"", "", Options(), 0)

    def forked(self) -> None:
        """Begin anew as another client, in the child of a fork. The parent's connection is left
        alone.
        """
        if self._line is not None:
            self._line.wire.forget()
        self.loops.clear()
        # Do not ask the loop to stop: what it watches belongs to the parent, too.
        self.loop = None
        self._begin()

    def _begin(self) -> None:
        # Held while a request is noted and sent, so that requests keep their order. An RLock,
        # because that knows its owner.
        self._lock = RLock()
        self._client = self._draw(CLIENT_BYTES)
        self._line: Line | None = None
        self._requests = OpenRequests(self._clock)
        self._table = self._requests.lock
        self._reader = 0  # the thread that reads; 0 if there is none

    # --- asking ---------------------------------------------------------------------------------

    def call(self, name: str, *args: object, **named: object) -> Any:
        """Make a call by its name, and return the result."""
        return decode_values(self.ask(Op.CALL, encode_values([name, [*args], named])))

    def change(self, name: str, *args: object) -> Any:
        """Make a change of a group or topic, which is carried out only once. Return its result."""
        return decode_values(self.write(Op.CHANGE, _encode_change, name, args))

    def ask(self, op: Op, payload: bytes, *, handle: int = 0, patience: float = 0.0) -> bytes:
        """Send a request that may be repeated without harm, and return its answer.

        The answer may take `patience` seconds, for example if the request waits for messages.
        """
        return self.write(
            op, lambda sequence, waiting: (payload,), handle=handle, patience=patience
        )

    def write(
        self,
        op: Op,
        encode: Callable[..., Iterable[bytes]],
        *what: object,
        handle: int = 0,
        patience: float = 0.0,
    ) -> bytes:
        """Send a request, and return its answer. If it writes, it is carried out only once.
        `encode` makes the parts of its payload from its sequence, from the number of earlier ones
        without an answer, and from `what`.
        """
        # Each further function call of a send costs more than it seems: with many processes,
        # neither its code nor its data is in the caches of the processor.
        me = get_ident()
        if self._reader == me or is_mine(self._lock) or is_mine(self._table):
            # A signal handler calls this inside of another call of its thread.
            raise Nested
        with self._lock:
            if self._closed is not None:
                self.check()
            line = self._line or self._connect()
            asked = self._requests.note(op, encode, what, handle, patience)
            try:
                line.wire.send(asked.frame)
            except BaseException as error:
                self._break(line)
                if not isinstance(error, OSError):
                    self._requests.forget(asked)
                    raise
        try:
            self._wait(asked, me)
        finally:
            if not asked.is_done:
                self._requests.forget(asked)
        if asked.error is not None:
            raise asked.error
        return asked.answer

    def begin(self, requests: Iterable[ToAsk], *, waits: bool) -> tuple[bool, list[Asked]]:
        """Send several requests without waiting for their answers. The `then` of each is called
        with its answer.

        Return whether all were sent, and the requests. Without `waits`, nothing is done if another
        thread is connecting or sending. If the result is False with requests in it, the call
        `send_rest` sends what is left of them.
        """
        if not self._lock.acquire(blocking=waits):
            return False, []
        found: list[Asked] = []
        try:
            if self._line is None and not waits:
                return False, []
            try:
                self.check()
                line = self._line or self._connect()
            except FmqError as error:
                for each in requests:
                    each.then(b"", error)
                return True, []
            for each in requests:
                try:
                    found.append(self._requests.note(*each))
                except Exception as error:
                    each.then(b"", error)
            data = b"".join([asked.frame for asked in found])
            try:
                if not waits:
                    return line.wire.send_now(data), found
                line.wire.send(data)
            except OSError:
                self._break(line)  # the requests are sent again over the next connection
            return True, found
        finally:
            self._lock.release()

    def send_rest(self) -> None:
        """Send what `begin` could not send without waiting."""
        with self._lock:
            line = self._line
            if line is not None:
                try:
                    line.wire.send(b"")
                except OSError:
                    self._break(line)

    def check(self) -> None:
        """Raise if the client is closed."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)

    # --- reading --------------------------------------------------------------------------------

    def _wait(self, asked: Asked, me: int) -> None:
        """Return when `asked` has its answer. Read for all threads meanwhile, if no other thread
        does.
        """
        while not asked.is_done:
            wake = None
            with self._table:
                if asked.is_done:
                    return
                loop = self.loop
                if self._reader or (loop is not None and loop.reads_for(me)):
                    wake = asked.wake = Lock()
                    wake.acquire()
                else:
                    self._reader = me
            if wake is not None:
                # The loop may have stopped without ending its reading.
                wake.acquire(timeout=-1 if loop is None else LOOK_SECONDS)
                continue
            try:
                while not asked.is_done:
                    self._read()
            except FmqError as error:
                if asked.op not in ONCE:
                    raise
                if not asked.is_done:
                    raise unanswered(asked.op, str(error)) from error
                # If `asked` is done, it has an error already. That says that the request may have
                # been carried out.
            finally:
                with self._table:
                    self._reader = 0
                    for other in self._requests.waiting.values():
                        if other is not asked and other.wake is not None:
                            if other.wake.locked():
                                other.wake.release()  # wake the next thread, to read
                            break

    def _read(self) -> None:
        """Read once: hand out the answers that came, or connect again."""
        line = self._line
        if line is None:
            with self._lock:
                self.check()
                if self._line is None:
                    self._connect()
            return  # let the caller look again: its request may have got an error
        try:
            data = line.wire.receive()
            self._take(line, data)
        except BlockingIOError:
            if self._is_alive():
                return
            data = b""
        except (OSError, BadFrame):
            data = b""
        except BaseException:
            self._break(line)  # an answer may be lost: its request is sent again
            raise
        if not data:
            self._break(line)

    def _is_alive(self) -> bool:
        """Return whether to wait on after a silence: whether the engine process answers a HELLO."""
        if not self._requests.is_one_late():
            return True
        stranger = self._draw(CLIENT_BYTES)
        if is_served(self._dial, stranger, self._token, self.hello.incarnation):
            return True
        self._silent = 2 * self.silence
        return False

    def _take(self, line: Line, data: bytes) -> None:
        """Hand out the answers that are complete with `data`. Raises BadFrame, or OSError if the
        connection is of no use any more.
        """
        for answer in line.splitter.feed(data):
            asked = self._requests.waiting.get(answer.request)
            if asked is None or asked.op != answer.op:
                continue  # the caller has stopped waiting for this answer
            error = self._error_of(answer) if answer.flags & FAILED else None
            if self._follows and isinstance(error, EngineFailed):
                raise ConnectionResetError(str(error))
            self._requests.end(asked, answer.payload, error)

    def read_now(self, line: Line) -> None:
        """Hand out the answers that have arrived, unless a thread is reading. The loop that reads
        calls this.
        """
        if self._reader:
            return
        try:
            data = line.wire.receive_now()
            if data is None:
                return
            self._take(line, data)
        except (OSError, BadFrame):
            data = b""
        if not data:
            self._break(line)

    def look_for_server(self, line: Line) -> None:
        """Drop a connection that the loop reads, if an answer is late and the engine process does
        not answer a HELLO. A thread calls this.
        """
        if not self._is_alive():
            self._break(line)

    @property
    def silence(self) -> float:
        """Return the seconds without an answer after which the engine process is asked for a sign
        of life.
        """
        return self._silence

    def has(self, line: Line) -> bool:
        """Return whether `line` is still the connection of this client."""
        return self._line is line

    @property
    def waits(self) -> bool:
        """Return whether requests wait and there is no connection."""
        return self._line is None and bool(self._requests.waiting)

    def reconnect(self) -> None:
        """Connect again if there is no connection. Raises NotServed."""
        with self._lock:
            if self._line is None and self._closed is None:
                self._connect()

    def be_read_by(self, loop: LoopReads | None) -> None:
        """Let an event loop read from now on. None: threads read again."""
        with self._table:
            self.loop = loop
            line = self._line
        if loop is not None and line is not None:
            loop.met(line)

    def _error_of(self, answer: Frame) -> Exception:
        try:
            return decode_error(answer.payload)
        except BadFrame as problem:
            return NotServed(f"{self._where}: an answer that cannot be read: {problem}")

    def _break(self, line: Line) -> None:
        """Drop a connection that has failed."""
        if self._line is line:
            self._line = None
        self._discard(line)

    def _discard(self, line: Line) -> None:
        if self.loop is None or not self.loop.drop(line):
            line.wire.close()

    # --- connecting -----------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect for the first time."""
        with self._lock:
            self._connect()

    def _connect(self) -> Line:
        """Connect, and send again the requests without an answer. Raises NotServed. The caller
        holds the lock of this link.
        """
        silent, self._silent = self._silent, 0.0
        deadline = self._clock.monotonic() + self._retry_for - silent
        pause = PAUSE_MIN
        while True:
            if self._closing is not None:
                raise self._closing.with_traceback(None)
            try:
                self._line = line = self._greet()
                if self.loop is not None:
                    self.loop.met(line)
                return line
            except FmqError as error:  # another attempt to connect would fail in the same way
                raise self._give_up(OSError(str(error)), error) from error
            except PermissionError as error:
                raise self._give_up(error, not_allowed(self._where, error)) from error
            except OSError as error:
                # After a timeout, the next attempt may wait for an answer as long as this one did.
                least = self.silence if isinstance(error, BlockingIOError) else pause
                if self._clock.monotonic() + least > deadline:
                    raise self._give_up(error) from error
            sleep(self._clock, pause)
            pause = min(2 * pause, PAUSE_MAX)

    def _greet(self) -> Line:
        wire = self._dial()
        try:
            answer, splitter = say_hello(wire, self._client, self._token)
            if answer.flags & FAILED:
                error = decode_error(answer.payload)
                if isinstance(error, NotServed):
                    raise Refused(str(error))
                raise error
            self.hello = Hello(*decode_values(answer.payload))
            self._requests.append_bytes_max = self.hello.append_bytes_max
            splitter.limit(FRAME_BYTES_MAX)
            again = [frame(Op.JOIN, 0, said, handle=handle) for handle, said in self._joined()]
            for asked in self._requests.too_old():
                why = f"{self._where}: the connection was broken for too long"
                self._requests.end(asked, b"", unanswered(asked.op, why))
            again += [repeated(asked.frame) for asked in [*self._requests.waiting.values()]]
            if again:
                wire.send(b"".join(again))
        except (BadFrame, TypeError) as error:
            wire.close()
            raise ProtocolError(
                f"{self._where}: what answers there is no engine process of fmq's ({error}). "
                "Nothing was changed. Look whether the address is right, and whether TLS is needed "
                "(tls_ca)."
            ) from error
        except BaseException:
            wire.close()
            raise
        return Line(wire, splitter)

    def _give_up(self, error: OSError, refusal: FmqError | None = None) -> FmqError:
        """Give an error to each request that waits. Return the error for the call itself."""
        what = self._where, self._retry_for, error
        if isinstance(error, Refused):
            refusal = refused(*what)
        why = no_answer(*what) if refusal is None else str(refusal)
        for asked in [*self._requests.waiting.values()]:
            self._requests.end(asked, b"", unanswered(asked.op, why))
        if refusal is None and not isinstance(error, BlockingIOError):
            refusal = self._explain()
        return refusal or not_served(*what)

    # --- ending ---------------------------------------------------------------------------------

    def close(self, refusal: Closed) -> None:
        """Close the connection. Waiting calls get `refusal`."""
        self._closing = self._closing or refusal
        with self._lock:
            if self._closed is not None:
                return
            self._closed = refusal
            line, self._line = self._line, None
            for asked in [*self._requests.waiting.values()]:
                self._requests.end(asked, b"", Closed(str(refusal)))
        if line is not None:
            self._discard(line)


def _encode_change(
    sequence: int, waiting: int, name: str, args: Sequence[object]
) -> tuple[bytes, ...]:
    return (encode_values([sequence, waiting, name, [*args]]),)

"""One client of an engine: its requests become calls and orders, and are answered.

It knows no socket. A driver hands it the bytes that arrive, and sends those that it gives.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sized
from functools import partial
from hmac import compare_digest

from fmq.errors import (
    FmqError,
    LeaseLost,
    NotAllowed,
    NotServed,
    ProtocolError,
    StorageError,
    TooMany,
)
from fmq.server.calls import CALLS
from fmq.server.frame_timer import FrameTimer
from fmq.server.host import Host
from fmq.server.load import Load
from fmq.server.members import DueNotice, Member, Waiting
from fmq.server.received import append_of, begin
from fmq.server.turn import WriteOrder
from fmq.store.extension import Request, extension_of
from fmq.store.journal import Append
from fmq.store.kinds import MESSAGE, PRE_MESSAGE, TX_MESSAGE, Kind
from fmq.tx.buffer import TransactionBuffer
from fmq.tx.names import check_count, check_seconds
from fmq.tx.requests import CLIENT_BYTES, Done
from fmq.tx.sender import receipts_of
from fmq.wire.batches import encode_batch, fitting
from fmq.wire.claims import AckAsked, decode_ack
from fmq.wire.frames import (
    AGAIN,
    FAILED,
    HELLO_BYTES_MAX,
    VALUES_BYTES_MAX,
    VERSION,
    BadFrame,
    Frame,
    Op,
    Splitter,
    frame,
)
from fmq.wire.runs import decode_runs
from fmq.wire.sends import decode_send, encode_sent
from fmq.wire.transactions import Collected, decode_collected
from fmq.wire.values import decode_values, encode_error, encode_values

HELD_MAX = 1024  # consumers, ids of open transactions, and requests that wait, of each one client
logger = logging.getLogger("fmq.server")


class Session:
    """A connection of one client."""

    def __init__(
        self,
        host: Host,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        room: Callable[[], None] = lambda: None,
        token: bytes | None = None,
    ) -> None:
        """`send` takes bytes for the client, and `close` ends the connection. `room` is called when
        the session has paused, and takes bytes again. With a `token` only clients that know it are
        served.
        """
        self._host = host
        self._parts = host.parts
        self._send = send
        self._close = close
        self._room = room
        self._token = token
        self._splitter = Splitter(HELLO_BYTES_MAX)
        self._frames: deque[Frame] = deque()  # that are whole, and not served yet
        self._load = Load()
        self.is_paused = False
        """Whether the driver is to read no more for now."""
        self._client = b""
        self._answers: list[bytes] = []
        self._members: dict[int, Member] = {}
        self._open: dict[str, TransactionBuffer] = {}  # holds the ids of open transactions
        self._waiting: set[Waiting] = set()
        self._has_ended = False
        self._timer = FrameTimer(host.loop, self._late)
        self._serves: dict[int, Callable[[Frame], None]] = {
            Op.SEND: self._on_send,
            Op.COMMIT: self._on_commit,
            Op.PREPARE: self._on_prepare,
            Op.CALL: self._on_call,
            Op.READ: self._on_read,
            Op.JOIN: self._on_join,
            Op.POLL: self._on_poll,
            Op.ACK: self._on_ack,
            Op.RELEASE: self._on_release,
            Op.LEAVE: self._on_leave,
            Op.ASK: self._on_ask,
            Op.HOLD: self._on_hold,
            Op.END_HOLD: self._on_end_hold,
            Op.TAKE_ID: self._on_take_id,
            Op.RELEASE_ID: self._on_release_id,
        }

    # --- what the driver calls ------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take bytes of the client. Raises nothing, whatever they are."""
        if self._has_ended:
            return
        try:
            found = self._splitter.feed(data)
        except BadFrame as error:
            self._refuse_frame(error.asked, error)
            return
        self._frames.extend(found)
        self._go_on(moved=bool(found))

    def _go_on(self, *, moved: bool = False) -> None:
        """Serve what has arrived, as far as the load allows."""
        frames, load = self._frames, self._load
        while frames and not load.is_full(len(self._waiting)):
            self._serve(frames.popleft())
        self._host.flush()
        if self._has_ended:
            return
        was_paused = self.is_paused
        self.is_paused = bool(frames) or load.is_full(len(self._waiting))
        # The client is not late while nothing is read.
        begun = not (self._splitter.is_empty or self.is_paused)
        if self._client and (begun or self._timer.is_running):
            self._timer.watch(begun=begun, moved=moved)
        if was_paused and not self.is_paused:
            self._room()

    def choke(self) -> None:
        """Serve nothing for now: the client does not read its answers."""
        self._load.is_choked = self.is_paused = True
        if self._client:
            self._timer.stop()

    def unchoke(self) -> None:
        """Go on."""
        self._load.is_choked = False
        for waiting in [*self._waiting]:
            waiting.notify()
        self._go_on()

    def _late(self) -> None:
        self.refuse(NotServed("a connection was closed, because a frame did not arrive in time"))

    def ended(self) -> None:
        """Give back what the client held: the connection has ended."""
        if self._has_ended:
            return
        self._has_ended = True
        self._timer.stop()
        self._frames.clear()
        if self._host.sessions.get(self._client) is self:
            del self._host.sessions[self._client]
        for waiting in [*self._waiting]:
            waiting.cancel()
        for member in self._members.values():
            member.leave()
        self._members.clear()
        for tx_id in [*self._open]:
            self._release_id(tx_id)

    def refuse(self, error: StorageError, asked: Frame | None = None) -> None:
        """Answer `asked` with an error, or no request in particular, and close."""
        logger.warning("%s", error)
        op, request = (0, 0) if asked is None else (asked.op, asked.request)
        self._answers.append(frame(op, request, encode_error(error), flags=FAILED))
        self.flush()
        self.ended()
        self._close()

    def flush(self) -> None:
        """Send the answers that were collected."""
        answers, self._answers = self._answers, []
        if answers and not self._has_ended:
            self._load.sent()
            self._send(b"".join(answers))
            if self.is_paused and not self._load.is_full(len(self._waiting)):
                self._host.loop.call_soon(self._go_on)

    # --- requests -------------------------------------------------------------------------------

    def _serve(self, asked: Frame) -> None:
        self._load.asked(len(asked.payload))
        serve = self._serves.get(asked.op) if self._client else self._hello
        try:
            if serve is None:
                raise BadFrame(f"an op {asked.op} that this version does not know")
            serve(asked)
        except (FmqError, TypeError) as error:
            self._fail(asked, error)
        except Exception as error:  # whatever it is, the other clients are not to notice
            self._refuse_frame(asked, error)

    def _refuse_frame(self, asked: Frame | None, error: Exception) -> None:
        """Close the connection, which has brought a frame that breaks the rules."""
        what = error if isinstance(error, BadFrame) else f"a request that cannot be read: {error!r}"
        text = f"a connection was closed, because of {what!s:.300}. Nothing was changed by it."
        self.refuse(ProtocolError(text), asked)

    def _answer(self, asked: Frame, *payload: bytes, flags: int = 0) -> None:
        answer = frame(asked.op, asked.request, *payload, flags=flags)
        self._load.answered(len(asked.payload), len(answer))
        self._answers.append(answer)
        self._host.answered(self)

    def _fail(self, asked: Frame, error: Exception) -> None:
        self._answer(asked, encode_error(error), flags=FAILED)

    def _hello(self, asked: Frame) -> None:
        if asked.op != Op.HELLO:
            raise BadFrame("a first frame that is no HELLO")
        said = decode_values(asked.payload)
        version = said[0] if isinstance(said, list) and said else None
        if version != VERSION:
            text = (
                f"the client speaks version {version!r:.20} of the protocol, and this process "
                f"{VERSION}: use the same fmq in both. Nothing was changed."
            )
            self.refuse(ProtocolError(text), asked)
            return
        if len(said) != 3:
            raise BadFrame("a HELLO with other fields")
        _, client, token = said
        if self._token is not None and not (
            isinstance(token, bytes) and compare_digest(token, self._token)
        ):
            text = "the client has not shown the token of the server. Nothing was changed."
            self.refuse(
                NotAllowed(f"{text} Copy the server's token file, and name the copy."), asked
            )
            return
        if not isinstance(client, bytes) or len(client) != CLIENT_BYTES:
            raise BadFrame("a HELLO without the id of its client")
        before = self._host.sessions.pop(client, None)
        if before is not None:
            before.ended()  # what it has sent counts, but nothing that still comes
            before._close()
        self._host.commit()
        # What was planned and not yet written is not found by its request.
        self._parts.commit_queue.flush()
        self._client = client
        self._host.sessions[client] = self
        engine, journal = self._host.engine, self._parts.journal
        self._splitter.limit(journal.append_bytes_max + HELLO_BYTES_MAX, VALUES_BYTES_MAX)
        hello = [
            *(VERSION, self._parts.feedback.store, self._host.incarnation, engine.path),
            *(engine.options, journal.append_bytes_max),
        ]
        self._answer(asked, encode_values(hello))

    def _order(
        self,
        asked: Frame,
        plan: Callable[[], object],
        done: Callable[[], None],
        sync: bool | None,
        refused: Callable[[Exception], None] | None = None,
    ) -> None:
        refused = refused or partial(self._fail, asked)
        self._host.order(WriteOrder(plan, done, refused, sync))

    def _done_before(self, asked: Frame, sequence: int) -> list[Done]:
        """Return what has carried out a request that the client repeats."""
        if not asked.flags & AGAIN:
            return []
        return self._parts.ledger.requests.find(self._client, sequence)

    # --- sending --------------------------------------------------------------------------------

    def _on_send(self, asked: Frame) -> None:
        (sequence, waiting, sync, producer), at = decode_send(asked.payload)
        before = self._done_before(asked, sequence)
        if before:
            receipts = [(each.queue, each.offset, each.position, each.messages) for each in before]
            self._answer(asked, encode_sent(receipts))
            return
        parts = self._parts
        bytes_max = parts.writer.options.message_bytes_max
        runs = decode_runs(asked.payload, at, MESSAGE, producer, bytes_max)
        if not runs:
            raise BadFrame("a SEND of nothing")
        extension = extension_of(Request(self._client, sequence, waiting))
        for run in runs:
            parts.router.choose_queue(run.topic, None, run.queue)
            run.extension = extension

        def done() -> None:
            receipts = [(run.queue, run.offset, run.position, run.count) for run in runs]
            self._answer(asked, encode_sent(receipts))

        self._order(asked, partial(parts.writer.send, Append(runs)), done, sync)

    # --- transactions ---------------------------------------------------------------------------

    def _on_commit(self, asked: Frame) -> None:
        collected, messages = decode_collected(asked.payload)
        if self._done_before(asked, collected.sequence):
            receipts = self._host.engine.outcome(collected.tx_id).receipts
            self._answer(asked, encode_values([*receipts]))
            return
        buffer, append = self._transaction(collected, TX_MESSAGE, messages)
        plan = partial(self._parts.manager.plan_commit, (buffer, append))

        def done() -> None:
            self._parts.manager.release(buffer)
            self._answer(asked, encode_values(receipts_of(append.records)))

        self._order(asked, plan, done, collected.sync, partial(self._undone, asked, buffer))

    def _on_prepare(self, asked: Frame) -> None:
        collected, messages = decode_collected(asked.payload)
        before = self._done_before(asked, collected.sequence)
        if before:
            self._answer(asked, encode_values(before[0].position))
            return
        buffer, append = self._transaction(collected, PRE_MESSAGE, messages)
        plan = partial(self._parts.manager.plan_prepare, (buffer, append))

        def done() -> None:
            self._parts.manager.release(buffer)
            self._answer(asked, encode_values(buffer.number))

        self._order(asked, plan, done, True, partial(self._undone, asked, buffer))

    def _transaction(
        self, collected: Collected, kind: Kind, messages: bytes
    ) -> tuple[TransactionBuffer, Append]:
        """Return a transaction that holds the deliveries it acks, and its append."""
        self._host.commit()  # in the order in which the client has asked
        self._release_id(collected.tx_id)
        buffer = begin(collected, self._parts)
        try:
            for handle, claim, first, end in collected.acks:
                buffer.ack(self._member(handle).part(claim, first, end))
            request = Request(self._client, collected.sequence, collected.waiting)
            return buffer, append_of(kind, buffer, messages, request, self._parts)
        except BaseException:
            self._give_up(buffer)
            raise

    def _give_up(self, buffer: TransactionBuffer) -> None:
        buffer.give_back()
        self._parts.manager.release(buffer)

    def _undone(self, asked: Frame, buffer: TransactionBuffer, error: Exception) -> None:
        self._give_up(buffer)
        self._fail(asked, error)

    def _on_take_id(self, asked: Frame) -> None:
        (tx_id,) = decode_values(asked.payload)
        _check_held("open transactions of one client", self._open)
        self._host.commit()
        self._open[tx_id] = self._parts.manager.buffer_for(tx_id, None, None)
        self._answer(asked)

    def _on_release_id(self, asked: Frame) -> None:
        (tx_id,) = decode_values(asked.payload)
        self._release_id(tx_id)
        self._answer(asked)

    def _release_id(self, tx_id: str) -> None:
        """Let an id that the client has taken be used: by itself now, or by others."""
        held = self._open.pop(tx_id, None)
        if held is not None:
            self._parts.manager.release(held)

    # --- calls by name --------------------------------------------------------------------------

    def _on_call(self, asked: Frame) -> None:
        name, args, named = decode_values(asked.payload)
        call = CALLS.get(name)
        if call is None:
            raise BadFrame(f"a call of {name!r:.40}")
        self._host.commit()  # in the order in which the client has asked
        self._answer(asked, encode_values(call(self._host, *args, **named)))

    # --- reading and consuming ------------------------------------------------------------------

    def _on_read(self, asked: Frame) -> None:
        topic, queue, offset, limit, timeout = decode_values(asked.payload)
        messages, engine = self._parts.messages, self._host.engine

        def look() -> bytes | None:
            batch = engine.read_batch(topic, queue=queue, offset=offset, limit=limit)
            return None if batch is None else encode_batch(fitting(batch))

        def listen(notify: Callable[[], None]) -> float:
            with self._parts.lock:
                messages.listen((topic,), notify)
            return float("inf")

        def stop(notify: Callable[[], None]) -> None:
            messages.stop_listening(notify, (topic,))

        self._wait(asked, timeout, look, listen, stop)

    def _wait(
        self,
        asked: Frame,
        timeout: float,
        look: Callable[[], bytes | None],
        listen: Callable[[Callable[[], None]], float],
        stop: Callable[[Callable[[], None]], None],
    ) -> None:
        """Answer with what `look` finds, at the latest after `timeout` seconds."""
        timeout = check_seconds("timeout", timeout)
        clock = self._parts.writer.clock
        _check_held("requests of one client that wait", self._waiting)
        is_choked = lambda: self._load.is_choked  # noqa: E731
        waiting = Waiting(self._host.loop, clock, timeout, is_choked, look, listen, stop)

        def end(found: bytes | None, error: Exception | None) -> None:
            self._waiting.discard(waiting)
            if self._has_ended:
                return
            if error is not None:
                self._fail(asked, error)
            else:
                self._answer(asked, found or b"")
            self._host.flush()

        self._waiting.add(waiting)
        waiting.begin(end)

    def _on_ask(self, asked: Frame) -> None:
        keys, limit, wait = decode_values(asked.payload)
        questions, wanted = self._parts.questions, [(each[0], each[1]) for each in keys]
        limit = check_count("limit", limit)
        notices: list[DueNotice] = []

        def look() -> bytes | None:
            found = questions.take(wanted, limit, 0.0)
            return encode_values(found) if found else None

        def listen(notify: Callable[[], None]) -> float:
            notices.append(DueNotice(wanted, notify))
            return questions.listen(notices[-1])

        def stop(notify: Callable[[], None]) -> None:
            questions.stop_listening(notices.pop())

        self._wait(asked, wait, look, listen, stop)

    def _member(self, handle: int) -> Member:
        member = self._members.get(handle)
        if member is None:
            raise LeaseLost(
                "the consumer is not known to this engine process, which may be another one than "
                "before. Nothing was changed; what it had is redelivered."
            )
        return member

    def _on_join(self, asked: Frame) -> None:
        topics, group, lease, claims = decode_values(asked.payload)
        if asked.handle not in self._members:
            _check_held("consumers of one client", self._members)
        consumer = self._host.engine.consumer(topics, group=group, lease_seconds=lease)
        old = self._members.pop(asked.handle, None)
        if old is not None:
            old.leave()
        self._members[asked.handle] = member = Member(
            consumer, self._parts.writer, self._host.handed_out
        )
        for claim in claims:
            member.claim_again(*claim)
        self._answer(asked)

    def _on_poll(self, asked: Frame) -> None:
        limit, timeout = decode_values(asked.payload)
        member = self._member(asked.handle)
        self._host.commit()
        self._wait(asked, timeout, partial(member.poll, limit), member.listen, member.stop)

    def _on_ack(self, asked: Frame) -> None:
        ack = decode_ack(asked.payload)
        member = self._member(asked.handle)
        if asked.flags & AGAIN and self._is_acked(member.group, ack):
            self._answer(asked)
            return
        plan = member.plan_ack(ack.claim, ack.first, ack.end)
        self._order(asked, plan, partial(self._answer, asked), ack.sync)

    def _is_acked(self, group: str, ack: AckAsked) -> bool:
        with self._parts.lock:
            acked = self._parts.ledger.acked.get((group, ack.topic, ack.queue))
            return acked is not None and acked.gap(ack.first, ack.end) is None

    def _on_release(self, asked: Frame) -> None:
        claim, first, end = decode_values(asked.payload)
        self._host.commit()
        self._member(asked.handle).release(claim, first, end)
        self._answer(asked)

    def _on_hold(self, asked: Frame) -> None:
        claim, first, end = decode_values(asked.payload)
        self._host.commit()
        self._member(asked.handle).hold(claim, first, end)
        self._answer(asked)

    def _on_end_hold(self, asked: Frame) -> None:
        claim, first, end = decode_values(asked.payload)
        self._host.commit()
        self._member(asked.handle).end_hold(claim, first, end)
        self._answer(asked)

    def _on_leave(self, asked: Frame) -> None:
        self._host.commit()
        member = self._members.pop(asked.handle, None)
        if member is not None:
            member.leave()
        self._answer(asked)


def _check_held(what: str, held: Sized) -> None:
    """Raise TooMany if a client holds as many as it may."""
    if len(held) >= HELD_MAX:
        raise TooMany(what, len(held) + 1, HELD_MAX, "fixed by the protocol", "close some first")

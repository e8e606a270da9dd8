"""The requests of one client that carry messages, and the ids of its open transactions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fmq.consume.groups.sieve import filter_of
from fmq.faces.table import GROUP_CHANGES
from fmq.server.client_transaction import append_of, begin
from fmq.server.consumer_requests import Consuming
from fmq.server.host import Host
from fmq.server.load import check_room_for
from fmq.steps.call_steps import Durable, Steps
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.bytes.kinds import MESSAGE, PRE_MESSAGE, TIMER, TX_MESSAGE, Append, Kind, Run
from fmq.store.bytes.timing import timing_in, with_timing
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.due import from_client
from fmq.tx.ledger.done_requests import Done
from fmq.tx.looks.receipts import receipts_of
from fmq.wire.frames import AGAIN, BadFrame, Frame, Op
from fmq.wire.requests import ChangeAsked
from fmq.wire.runs import decode_runs
from fmq.wire.sends import RecallAsked, SendAsked, encode_sent, sent_as
from fmq.wire.transaction_frames import Collected
from fmq.wire.values import encode_values


class Writes:
    """The sends, commits and prepares of a session. Each is carried out only once."""

    def __init__(self, host: Host, client: bytes, consuming: Consuming) -> None:
        self._host = host
        self._client = client
        self._consuming = consuming
        self._parts = host.parts
        # Buffers that hold the ids of open transactions.
        self._open: dict[str, TransactionBuffer] = {}
        self.serves: dict[int, Callable[[Frame, Any], bytes | Steps[bytes]]] = {
            Op.SEND: self._on_send,
            Op.RECALL: self._on_recall,
            Op.COMMIT: self._on_commit,
            Op.PREPARE: self._on_prepare,
            Op.TAKE_ID: self._on_take_id,
            Op.RELEASE_ID: self._on_release_id,
            Op.CHANGE: self._on_change,
        }

    def open_ids(self) -> tuple[str, ...]:
        """Return the ids that open transactions of the client hold."""
        return tuple(self._open)

    def end(self) -> None:
        """Release the ids of open transactions."""
        for tx_id in [*self._open]:
            self._release_id(tx_id)

    def _done_before(self, asked: Frame, sequence: int) -> list[Done]:
        """Return the records that have carried out a request, if the client repeats it."""
        if not asked.flags & AGAIN:
            return []
        found = self._parts.ledger.requests.find(self._client, sequence)
        for done in found:
            self._parts.writer.catch_up(done.position)
        return found

    # --- sending --------------------------------------------------------------------------------

    def _on_send(self, asked: Frame, said: tuple[SendAsked, int]) -> Steps[bytes]:
        (sequence, waiting, sync, producer), at = said
        before = self._done_before(asked, sequence)
        parts = self._parts
        message_ids = parts.manager.message_ids
        bytes_max = parts.writer.options.message_bytes_max
        runs = decode_runs(asked.payload, at, MESSAGE, producer, bytes_max)
        if not runs:
            raise BadFrame("a SEND of nothing")
        if before:
            receipts = [
                (each.queue, each.offset, each.position, each.messages, each.due_us)
                for each in before
            ]
            positions = {each.position for each in before}
            receipts += map(sent_as, message_ids.sent_before(runs, positions))
            return encode_sent(receipts)
        request = Request(self._client, sequence, waiting)
        extension = extension_of(request)
        for run in runs:
            parts.router.choose_queue(run.topic, None, run.queue)
            extras = run.extension
            if extras and (timing := timing_in(extras)) is not None:
                timing = from_client(timing, parts.writer.clock.time_us())
                run.kind, extras = TIMER, with_timing(extras, timing)
            run.extension = extension_of(request, extras) if extras else extension
        parts.delays.check(runs)
        yield Durable(message_ids.planner(runs), runs, sync)
        return encode_sent(map(sent_as, receipts_of(runs)))

    def _on_recall(self, asked: Frame, said: RecallAsked) -> Steps[bytes]:
        sequence, waiting, timing = said
        if self._done_before(asked, sequence):
            return b"\x01"
        extension = extension_of(Request(self._client, sequence, waiting))
        plan = partial(self._parts.delays.plan_recall, timing)
        return b"\x01" if (yield Durable(plan, extension)) else b"\x00"

    # --- transactions ---------------------------------------------------------------------------

    def _on_commit(self, asked: Frame, said: tuple[Collected, int]) -> Steps[bytes]:
        collected, at = said
        manager = self._parts.manager
        if before := self._done_before(asked, collected.sequence):
            outcome = manager.decisions.outcome_at(before[0].position, collected.tx_id)
            receipts = [*outcome.receipts]
            positions = {each.position for each in receipts}
            runs = self._runs_of(collected, TX_MESSAGE, asked.payload, at)
            receipts += manager.message_ids.sent_before(runs, positions)
            return encode_values(receipts)
        what = collected, TX_MESSAGE, asked.payload, at, manager.plan_commit
        buffer, append = yield from self._written(*what)
        return encode_values(receipts_of([*append, *buffer.left_out]))

    def _on_prepare(self, asked: Frame, said: tuple[Collected, int]) -> Steps[bytes]:
        collected, at = said
        manager = self._parts.manager
        if before := self._done_before(asked, collected.sequence):
            runs = self._runs_of(collected, PRE_MESSAGE, asked.payload, at)
            left_out = manager.message_ids.sent_before(runs, set())
            return encode_values([before[0].position, left_out])
        what = collected, PRE_MESSAGE, asked.payload, at, manager.plan_prepare
        buffer, _ = yield from self._written(*what)
        return encode_values([buffer.number, [*buffer.left_out]])

    def _runs_of(self, collected: Collected, kind: Kind, payload: bytes, at: int) -> list[Run]:
        """Return the runs of a transaction that was carried out before."""
        bytes_max = self._parts.writer.options.message_bytes_max
        return decode_runs(payload, at, kind, "", bytes_max, collected.tx_id)

    def _written(
        self,
        collected: Collected,
        kind: Kind,
        payload: bytes,
        at: int,
        plan: Callable[[tuple[TransactionBuffer, Append]], None],
    ) -> Steps[tuple[TransactionBuffer, Append]]:
        """Write a transaction, and return it with its append. The transaction holds the deliveries
        that it acks, and gives them back if it is refused.
        """
        if collected.acks:
            # Earlier orders of the client may be about the messages that the transaction acks.
            self._host.commit_own(self._client)
        self._release_id(collected.tx_id)
        parts = self._parts
        buffer = begin(collected, parts)
        try:
            for handle, claim, first, end in collected.acks:
                buffer.ack(self._consuming.member(handle).part(claim, first, end))
            request = Request(self._client, collected.sequence, collected.waiting)
            append = append_of(kind, buffer, payload, at, request, parts)
            parts.manager.message_ids.load_for(append)
            yield Durable(plan, (buffer, append), True if kind == PRE_MESSAGE else collected.sync)
        except BaseException:
            buffer.give_back()
            raise
        finally:
            parts.manager.release(buffer)
        return buffer, append

    # --- groups and topics ----------------------------------------------------------------------

    def _on_change(self, asked: Frame, said: ChangeAsked) -> Steps[bytes]:
        sequence, waiting, name, args = said
        # Requests of a client take effect in the order of its asking.
        self._host.commit_own(self._client)
        if not self._done_before(asked, sequence):
            if name in ("make_group", "set_filter") and args[-1]:
                # Refuse the filter here if it cannot be read: each poll of the group has to read
                # it.
                filter_of(args[-1])
            request = Request(self._client, sequence, waiting)
            changes = self._parts.changes
            yield from changes.writing(GROUP_CHANGES[name](changes, *args), request)
        return encode_values(None)

    def _on_take_id(self, asked: Frame, said: list[str]) -> bytes:
        (tx_id,) = said
        check_room_for("open transactions of one client", self._open)
        self._host.commit_own(self._client)
        self._open[tx_id] = self._parts.manager.buffer_for(tx_id, None, None)
        return b""

    def _on_release_id(self, asked: Frame, said: list[str]) -> bytes:
        (tx_id,) = said
        self._release_id(tx_id)
        return b""

    def _release_id(self, tx_id: str) -> None:
        """Allow an id that the client has taken to be used again."""
        held = self._open.pop(tx_id, None)
        if held is not None:
            self._parts.manager.release(held)

"""The requests of one client that carry messages, and the ids of its open transactions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fmq.consume.groups.sieve import filter_of
from fmq.errors import FmqError
from fmq.faces.table import GROUP_CHANGES
from fmq.server.client_transaction import append_of, begin
from fmq.server.consumer_requests import Consuming
from fmq.server.load import check_held
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.bytes.kinds import MESSAGE, PRE_MESSAGE, TIMER, TX_MESSAGE, Append, Kind, Run
from fmq.store.bytes.timing import timing_in, with_timing
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.due import from_client
from fmq.tx.commands.sender import receipts_of
from fmq.tx.ledger.done_requests import Done
from fmq.wire.frames import AGAIN, BadFrame, Frame, Op
from fmq.wire.requests import CallAsked, ChangeAsked
from fmq.wire.runs import decode_runs
from fmq.wire.sends import RecallAsked, SendAsked, encode_sent, sent_as
from fmq.wire.transaction_frames import Collected
from fmq.wire.values import encode_values

if TYPE_CHECKING:
    from fmq.server.session import Session


DECISIONS = {
    "commit_prepared": Kind.COMMIT,
    "confirm_prepared": Kind.COMMIT,
    "roll_back_prepared": Kind.ROLLBACK,
}
"""What clients call by these names to decide what they have prepared."""


class Writes:
    """The sends, commits and prepares of a session. Each is carried out only once."""

    def __init__(self, session: Session, consuming: Consuming) -> None:
        self._session = session
        self._consuming = consuming
        self._host = session.host
        self._parts = session.host.parts
        # Id -> a transaction that holds the id until the client sends the rest.
        self._open: dict[str, TransactionBuffer] = {}
        self.serves: dict[int, Callable[[Frame, Any], None]] = {
            Op.SEND: self._on_send,
            Op.RECALL: self._on_recall,
            Op.COMMIT: self._on_commit,
            Op.PREPARE: self._on_prepare,
            Op.TAKE_ID: self._on_take_id,
            Op.RELEASE_ID: self._on_release_id,
            Op.CHANGE: self._on_change,
        }

    def end(self) -> None:
        """Release the ids of open transactions."""
        for tx_id in [*self._open]:
            self._release_id(tx_id)

    def _done_before(self, asked: Frame, sequence: int) -> list[Done]:
        """Return the records that have carried out a request, if the client repeats it."""
        if not asked.flags & AGAIN:
            return []
        found = self._parts.ledger.requests.find(self._session.client, sequence)
        for done in found:
            self._parts.writer.catch_up(done.position)
        return found

    # --- sending --------------------------------------------------------------------------------

    def _on_send(self, asked: Frame, said: tuple[SendAsked, int]) -> None:
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
            self._session.answer(asked, encode_sent(receipts))
            return
        request = Request(self._session.client, sequence, waiting)
        extension = extension_of(request)
        for run in runs:
            parts.router.choose_queue(run.topic, None, run.queue)
            extras = run.extension
            if extras and (timing := timing_in(extras)) is not None:
                timing = from_client(timing, parts.writer.clock.time_us())
                run.kind, extras = TIMER, with_timing(extras, timing)
            run.extension = extension_of(request, extras) if extras else extension
        parts.delays.check(runs)

        def done() -> None:
            self._session.answer(asked, encode_sent(map(sent_as, receipts_of(runs))))

        plan = message_ids.planner(runs)
        self._session.order(asked, partial(plan, runs), done, sync)

    def _on_recall(self, asked: Frame, said: RecallAsked) -> None:
        sequence, waiting, timing = said
        if self._done_before(asked, sequence):
            self._session.answer(asked, b"\x01")
            return
        self._host.commit()
        delays = self._parts.delays
        extension = extension_of(Request(self._session.client, sequence, waiting))
        found = False

        def plan() -> None:
            nonlocal found
            found = delays.plan_recall(timing, extension)

        def done() -> None:
            self._session.answer(asked, b"\x01" if found else b"\x00")

        self._session.order(asked, plan, done, None)

    # --- transactions ---------------------------------------------------------------------------

    def _on_commit(self, asked: Frame, said: tuple[Collected, bytes]) -> None:
        collected, messages = said
        manager = self._parts.manager
        if before := self._done_before(asked, collected.sequence):
            outcome = manager.decisions.outcome_at(before[0].position, collected.tx_id)
            receipts = [*outcome.receipts]
            positions = {each.position for each in receipts}
            runs = self._runs_of(collected, TX_MESSAGE, messages)
            receipts += manager.message_ids.sent_before(runs, positions)
            self._session.answer(asked, encode_values(receipts))
            return
        buffer, append = self._transaction(collected, TX_MESSAGE, messages)
        plan = partial(manager.plan_commit, (buffer, append))
        manager.message_ids.has_ids(append)

        def done() -> None:
            manager.release(buffer)
            receipts = receipts_of([*append, *buffer.left_out])
            self._session.answer(asked, encode_values(receipts))

        self._session.order(asked, plan, done, collected.sync, partial(self._give_up, buffer))

    def _on_prepare(self, asked: Frame, said: tuple[Collected, bytes]) -> None:
        collected, messages = said
        before = self._done_before(asked, collected.sequence)
        message_ids = self._parts.manager.message_ids
        if before:
            left_out = message_ids.sent_before(
                self._runs_of(collected, PRE_MESSAGE, messages), set()
            )
            self._session.answer(asked, encode_values([before[0].position, left_out]))
            return
        buffer, append = self._transaction(collected, PRE_MESSAGE, messages)
        plan = partial(self._parts.manager.plan_prepare, (buffer, append))
        message_ids.has_ids(append)

        def done() -> None:
            self._parts.manager.release(buffer)
            answer = [buffer.number, [*buffer.left_out]]
            self._session.answer(asked, encode_values(answer))

        self._session.order(asked, plan, done, True, partial(self._give_up, buffer))

    def decide(self, asked: Frame, said: CallAsked) -> bool:
        """Order a decision of a prepared transaction by its own client, so that it shares a sync.

        Return False if `Session.call` has to answer instead: the transaction was decided before, or
        is unknown, or the client does not wait for the decision.
        """
        name, args, named = said
        tx_id, number, sync = _decision_of(*args, **named)
        queue = self._parts.commit_queue
        queue.waits(sync)  # raises TypeError for a wrong `sync`
        if name == "confirm_prepared" and not self._session.has_ordered():
            return False  # a posted decision waits for nothing
        found = self._parts.manager.decisions.planner(tx_id, DECISIONS[name], number)
        if found is None:
            return False
        ending, plan_ending = found
        is_planned = False

        def plan() -> None:
            nonlocal is_planned
            is_planned = plan_ending(ending)

        def done() -> None:
            if not is_planned:  # another call has decided the transaction first
                try:
                    self._session.call(asked, said)
                except FmqError as error:
                    self._session.fail(asked, error)
                return
            receipts = receipts_of(ending.runs) if name == "commit_prepared" else None
            self._session.answer(asked, encode_values(receipts))

        self._session.order(asked, plan, done, sync)
        return True

    def _runs_of(self, collected: Collected, kind: Kind, messages: bytes) -> list[Run]:
        """Return the runs of a transaction that was carried out before."""
        bytes_max = self._parts.writer.options.message_bytes_max
        return decode_runs(messages, 0, kind, "", bytes_max, collected.tx_id)

    def _transaction(
        self, collected: Collected, kind: Kind, messages: bytes
    ) -> tuple[TransactionBuffer, Append]:
        """Return the buffer of a transaction, which holds the deliveries that it acks, and its
        append.
        """
        if collected.acks:
            self._session.commit_own()  # the client may have ordered acks of these messages before
        self._release_id(collected.tx_id)
        buffer = begin(collected, self._parts)
        try:
            for handle, claim, first, end in collected.acks:
                buffer.ack(self._consuming.member(handle).part(claim, first, end))
            request = Request(self._session.client, collected.sequence, collected.waiting)
            return buffer, append_of(kind, buffer, messages, request, self._parts)
        except BaseException:
            self._give_up(buffer)
            raise

    def _give_up(self, buffer: TransactionBuffer) -> None:
        buffer.give_back()
        self._parts.manager.release(buffer)

    # --- groups and topics ----------------------------------------------------------------------

    def _on_change(self, asked: Frame, said: ChangeAsked) -> None:
        sequence, waiting, name, args = said
        self._host.commit()  # keep the order in which the client has asked
        if not self._done_before(asked, sequence):
            if name in ("make_group", "set_filter") and args[-1]:
                # Refuse it here if it cannot be read: each poll of the group has to read it.
                filter_of(args[-1])
            request = Request(self._session.client, sequence, waiting)
            GROUP_CHANGES[name](self._parts.group_changes.asked_by(request), *args)
        self._session.answer(asked, encode_values(None))

    def _on_take_id(self, asked: Frame, said: list[str]) -> None:
        (tx_id,) = said
        check_held("open transactions of one client", self._open)
        self._host.commit()
        self._open[tx_id] = self._parts.manager.buffer_for(tx_id, None, None)
        self._session.answer(asked)

    def _on_release_id(self, asked: Frame, said: list[str]) -> None:
        (tx_id,) = said
        self._release_id(tx_id)
        self._session.answer(asked)

    def _release_id(self, tx_id: str) -> None:
        """Allow an id that the client has taken to be used again."""
        held = self._open.pop(tx_id, None)
        if held is not None:
            self._parts.manager.release(held)


def _decision_of(tx_id: str, number: int, sync: bool | None = None) -> tuple[str, int, bool | None]:
    """Return the arguments of a call that decides. Raises TypeError as the call would."""
    return tx_id, number, sync

"""A transaction that a client has collected: it is checked and becomes an append."""

from __future__ import annotations

from functools import partial

from fmq.assembly.parts import Parts
from fmq.store.bytes.extension import Request
from fmq.store.bytes.kinds import PRE_MESSAGE, TIMER, TX_MESSAGE, Append, Kind
from fmq.store.bytes.timing import timing_in
from fmq.tx.commands.appends import one_phase, two_phases
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.due import from_client
from fmq.tx.commands.marks import MarkBuffer
from fmq.wire.frames import BadFrame
from fmq.wire.runs import decode_runs
from fmq.wire.transaction_frames import Collected


def begin(collected: Collected, parts: Parts) -> TransactionBuffer:
    """Return an empty buffer for the transaction. Raises the error that refuses it."""
    names = collected.tx_id, collected.producer, collected.check_after
    buffer = parts.manager.buffer_for(*names, named=collected.is_named)
    try:
        buffer.bound = bool(collected.is_bound)
        for mark in collected.marks:
            buffer.change_mark("mark", partial(_change, *mark))
    except BaseException:
        parts.manager.release(buffer)
        raise
    return buffer


def _change(
    name: str, value: int, data: bytes | None, expect: int | None, marks: MarkBuffer
) -> int:
    return marks.remove(name, expect) if data is None else marks.set(name, value, data, expect)


def append_of(
    kind: Kind,
    buffer: TransactionBuffer,
    payload: bytes,
    at: int,
    request: Request,
    parts: Parts,
) -> Append:
    """Return the append that commits or prepares the transaction in `buffer`, with the messages
    that begin at `payload[at]`.
    """
    options = parts.writer.options
    names = buffer.producer, options.message_bytes_max, buffer.tx_id
    runs = decode_runs(payload, at, kind, *names)
    for run in runs:
        parts.router.choose_queue(run.topic, None, run.queue)
        if run.extension and (timing := timing_in(run.extension)) is not None:
            if from_client(timing, parts.writer.clock.time_us()) != timing:
                raise BadFrame("a transaction with a message that is due from now on")
            run.kind = TIMER if kind == TX_MESSAGE else kind
    count = sum(run.count for run in runs)
    if count > options.transaction_messages_max:
        parts.manager.limits.refuse(buffer.tx_id, 0, 0, count)
    buffer.request = request
    if kind == PRE_MESSAGE:
        return two_phases(buffer, runs)
    return one_phase(buffer, runs)

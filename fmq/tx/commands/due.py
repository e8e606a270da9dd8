"""The time at which a message is due, from what a caller says: a delay in seconds, or a time."""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import NoReturn

from fmq.arguments.names import check_seconds, check_time
from fmq.basics.clock import as_text, as_us
from fmq.basics.message import DelayedReceipt, Receipt
from fmq.errors import BadOption
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.timing import FROM_NOW, Timing
from fmq.store.index.due_runs import Due

DELAY_SECONDS_MAX = 10 * 366 * 24 * 3600
"""Ten years."""


def check_due(
    delay: float | None, deliver_at: datetime | None, now_us: int, *, relative: bool = False
) -> Timing | None:
    """Return when a message is due; None if at once. Raises TypeError or BadOption.

    With `relative` the engine process adds its own time to a delay.
    """
    if delay is not None:
        if deliver_at is not None:
            _refuse(f"delay={delay!r} and deliver_at={deliver_at!r}", "only one of them is given")
        seconds = check_seconds("delay", delay)
        if not 0 <= seconds <= DELAY_SECONDS_MAX:
            what = f"must be from 0 to {DELAY_SECONDS_MAX:,} seconds, which is ten years"
            _refuse(f"delay={delay!r}", what)
        if not seconds:
            return None
        delay_us = ceil(seconds * 1_000_000)  # rounded up: never earlier than asked
        return Timing(delay_us, FROM_NOW) if relative else Timing(now_us + delay_us)
    if deliver_at is None:
        return None
    if check_time("deliver_at", deliver_at).tzinfo is None:
        what = "has no time zone, so it is not known when that is: give it one, such as "
        _refuse(f"deliver_at={deliver_at!r}", what + "datetime.now(UTC) + timedelta(hours=1)")
    due_us = as_us(deliver_at)
    if due_us > now_us + DELAY_SECONDS_MAX * 1_000_000:
        _refuse(f"deliver_at={as_text(deliver_at)}", "must be within the next ten years")
    return Timing(due_us) if due_us > now_us else None


def timing_of(receipt: Receipt) -> Timing | None:
    """Return the timing of a timer's receipt. Return None if the message was published at once."""
    if not isinstance(receipt, Receipt):
        raise TypeError(
            f"recall takes the receipt of a send with a delay, not {type(receipt).__name__}. "
            "Nothing was changed."
        )
    if not isinstance(receipt, DelayedReceipt):
        return None
    return Timing(receipt.due_us, receipt.position)


def delayed_receipt(due: Due, run: Run) -> DelayedReceipt:
    """Return the receipt of the messages of a TIMER that waits."""
    return DelayedReceipt(run.topic, run.queue, None, due.number, run.count, due.due_us)


def from_client(timing: Timing, now_us: int) -> Timing:
    """Return a client's timing by the clock of the engine. Raises BadOption."""
    due_us = timing.due_us + (now_us if timing.number == FROM_NOW else 0)
    # A client may run on another machine, whose clock is ahead.
    if timing.number not in (0, FROM_NOW) or due_us > now_us + 2 * DELAY_SECONDS_MAX * 1_000_000:
        _refuse(f"due at {due_us}", "must be within the next ten years")
    return Timing(due_us)


def _refuse(what: str, rule: str) -> NoReturn:
    raise BadOption(f"{what}: {rule}. Nothing was changed.")

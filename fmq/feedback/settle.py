"""Asking about everything that is undecided now, in the caller's thread, without waiting."""

from __future__ import annotations

from collections.abc import Mapping

from fmq.clock import Clock
from fmq.feedback.answers import Checker
from fmq.feedback.loop import CheckLoop
from fmq.feedback.service import Asked, Feedback
from fmq.results import Settled
from fmq.tx.state import State


def settle(
    feedback: Feedback, checkers: Mapping[str, Checker], clock: Clock, timeout: float
) -> Settled:
    """Ask about what `checkers` may know, and wait for what others are being asked about."""
    deadline = clock.monotonic() + timeout
    everything = feedback.hurry(checkers)
    loop = CheckLoop(feedback, checkers, limit=1, pause=0.0, clock=clock, gave_up=feedback.give_up)
    left = [
        asked for asked in everything if asked.open.producer in checkers and not asked.open.parked
    ]
    while left and (seconds := deadline - clock.monotonic()) > 0:
        if feedback.has_ended(left[-1]):
            left.pop()
        elif not loop.once(wait=0.0):
            feedback.pause(left[-1], checkers, seconds)  # somebody else has been asked
    feedback.catch_up()
    return _report(everything)


def _report(everything: list[Asked]) -> Settled:
    found: dict[State | None, list[str]] = {
        State.COMMITTED: [],
        State.ROLLED_BACK: [],
        State.UNDECIDED: [],
        None: [],  # not asked about
    }
    for each, tries in everything:
        state = each.entry.state
        unasked = state is State.UNDECIDED and each.tries == tries
        found[None if unasked else state].append(each.tx_id)
    return Settled(*map(tuple, found.values()))

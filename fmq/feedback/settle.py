"""Asking about everything that is undecided now, in the caller's thread, without waiting."""

from __future__ import annotations

from collections.abc import Mapping

from fmq.clock import Clock
from fmq.feedback.book import Open
from fmq.feedback.loop import CheckLoop
from fmq.feedback.question import Checker, Settled
from fmq.feedback.service import Feedback


def settle(
    feedback: Feedback, checkers: Mapping[str, Checker], clock: Clock, timeout: float
) -> Settled:
    """Ask about what `checkers` may know, and wait for what others are being asked about."""
    deadline = clock.monotonic() + timeout
    everything = feedback.hurry(checkers)
    asked = [(each, n) for each, n in everything if each.producer in checkers and not each.parked]
    loop = CheckLoop(feedback, checkers, limit=1, pause=0.0, clock=clock)
    failed: set[int] = set()  # their checkers raised: nothing more is to be had from them now
    while any(each.entry.tx not in failed for each in feedback.unanswered(asked)):
        left = deadline - clock.monotonic()
        if left <= 0:
            break
        answered = loop.once(wait=0.0)
        failed |= {question.tx for question, answer in answered if answer is None}
        if not answered:
            feedback.pause(list(checkers), left)  # somebody else has been asked
    return _report(feedback, everything, feedback.unanswered(asked), failed)


def _report(
    feedback: Feedback, everything: list[tuple[Open, int]], silent: list[Open], failed: set[int]
) -> Settled:
    asked_in_vain = {each.entry.tx for each in silent} - failed
    found: dict[str, list[str]] = {"committed": [], "rolled back": [], "undecided": []}
    unasked = []
    for each, answers in everything:
        state = feedback.state_of(each)
        untold = each.answers == answers and each.entry.tx not in failed
        if state == "undecided" and (untold or each.entry.tx in asked_in_vain):
            unasked.append(each.tx_id)
        else:
            found[state].append(each.tx_id)
    committed, rolled_back, unknown = map(tuple, found.values())
    return Settled(committed, rolled_back, unknown, tuple(unasked))

"""Settle: ask about each transaction that is undecided now, in the caller's thread."""

from __future__ import annotations

from collections.abc import Mapping

from fmq.basics.clock import Clock
from fmq.basics.results import Settled
from fmq.feedback.answers import Checker
from fmq.feedback.loop import CheckLoop
from fmq.feedback.needs import B, Questions
from fmq.feedback.schedule import QuestionKey
from fmq.feedback.service import Feedback
from fmq.tx.ledger.state import State


def settle(
    feedback: Feedback,
    questions: Questions[B],
    checkers: Mapping[str, Checker],
    clock: Clock,
    timeout: float,
) -> Settled:
    """Ask `checkers` about all transactions that their producers left undecided. Return a report.

    A question that another thread is asking is waited for, and not asked again.
    """
    deadline = clock.monotonic() + timeout
    everything = questions.make_all_due(checkers)
    keys: list[QuestionKey] = [(producer, None) for producer in checkers]
    loop = CheckLoop(feedback, checkers, limit=1, pause=0.0, clock=clock, gave_up=questions.end_try)
    left = [each for each in everything if each.producer in checkers and not each.parked]
    while left and (seconds := deadline - clock.monotonic()) > 0:
        if questions.has_ended(left[-1]):
            left.pop()
        elif not loop.once(wait=0.0):
            # another thread has leased the question, so wait for its end
            questions.wait_for_end(left[-1], keys, seconds)
    questions.finish_decisions()
    found: dict[State | None, list[str]] = {
        State.COMMITTED: [],
        State.ROLLED_BACK: [],
        State.UNDECIDED: [],
        None: [],  # transactions that no checker was asked about
    }
    for each, state in zip(everything, questions.became(everything), strict=True):
        found[state].append(each.tx_id)
    return Settled(*map(tuple, found.values()))

"""Sending as RocketMQ does: prepare, call the program's own part, decide by its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from fmq.basics.message import Body, Message
from fmq.basics.results import Outcome
from fmq.errors import BadOption, FmqError, RollBack
from fmq.errors.notes import add_note
from fmq.feedback.answers import ANSWERS, Answer, is_answer
from fmq.feedback.needs import Questions
from fmq.tx.commands.buffer import Phase
from fmq.tx.commands.transaction import Transaction

Local = Callable[[Transaction], Answer | None]
"""The program's own part, which returns whether it succeeded; None: that is not known."""


def send_with(
    tx: Transaction,
    messages: Iterable[tuple[str, Body | Message]],
    local: Local,
    questions: Questions[Any],
) -> Outcome:
    """Prepare `messages`, call `local`, and decide as `local` answers. Return the outcome.

    If `local` raises RollBack, roll back. Any other exception leaves open what the program's
    database did. So the transaction stays undecided, and its checker is asked at once.
    """
    try:
        for topic, message in _pairs(messages):
            tx.send_many(topic, (message,))
        tx.prepare()
    except BaseException:
        if tx.phase is Phase.OPEN:
            tx.rollback()
        raise
    try:
        decision = local(tx)
        if decision is None:
            decision = "unknown"
        if not is_answer(decision):
            raise BadOption(f"local() returned {decision!r}: must be one of {', '.join(ANSWERS)}")
    except RollBack:
        tx.rollback()
        raise
    except BaseException as error:
        if tx.phase is Phase.PREPARED:
            add_note(
                error,
                f"transaction {tx.tx_id!r} was prepared before this exception and stays "
                "undecided; its checker is asked.",
            )
            _ask_about(tx, questions)
        raise
    if decision == "commit":
        tx.commit()
    elif decision == "rollback":
        tx.rollback()
    else:
        _ask_about(tx, questions)
    return tx.outcome()


def _pairs(messages: object) -> Iterator[tuple[str, Any]]:
    advice = 'send_in_transaction([("orders", b"...")], local). Nothing was changed.'
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Iterable):
        raise TypeError(
            f"messages are pairs of topic and body, not {type(messages).__name__}: write {advice}"
        )
    for pair in messages:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"a message is a pair of topic and body here, not {pair!r:.40}: write {advice}"
            )
        yield pair[0], pair[1]


def _ask_about(tx: Transaction, questions: Questions[Any]) -> None:
    """Have the checker asked at once, unless the transaction is decided or the engine has ended."""
    with suppress(FmqError):
        questions.make_due(tx.tx_id)

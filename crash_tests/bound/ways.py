"""The ways to place an order and to find out its outcome: the shipped way, and wrong ones.

The wrong ways are what people write, and controls: each must be found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fmq
from crash_tests.bound.database import Database
from crash_tests.bound.steps import Blow, Stage, Step
from fmq.bind.drivers import binding_of
from fmq.feedback.answers import Checker

PRODUCER = "checkout"
TOPICS = ("orders", "emails")


class Refused(Exception):
    """The caller believes that the order was not placed. It may be wrong."""


@dataclass(frozen=True, slots=True)
class Shop:
    """Everything that placing an order needs."""

    engine: fmq.Engine
    database: Database
    connection: Any
    stage: Stage

    def send(self, tx: fmq.Transaction, order: str) -> None:
        for topic in TOPICS:
            tx.send(topic, order.encode())


def bound(shop: Shop, order: str) -> None:
    with shop.engine.transaction(tx_id=order, producer=PRODUCER, bind=shop.connection) as tx:
        shop.database.insert(shop.connection, order)
        shop.send(tx, order)
    if shop.stage.aims_at(Step.CONFIRMING):
        tx.commit()  # the confirmation is posted; this call has it written


def two_commits(shop: Shop, order: str) -> None:
    """Place an order without a marker, in two commits."""
    shop.database.insert(shop.connection, order)
    shop.connection.commit()
    shop.stage.reached(Step.COMMITTED)
    with shop.engine.transaction(tx_id=order) as tx:
        shop.send(tx, order)


def rolled_back_if_it_raised(shop: Shop, order: str) -> None:
    """Place an order rightly, but take an error of COMMIT for a rollback."""
    binding = binding_of(shop.connection)
    tx = shop.engine.transaction(tx_id=order, producer=PRODUCER)
    tx._buffer.bound = True
    binding.begin()
    shop.database.insert(shop.connection, order)
    shop.send(tx, order)
    binding.insert_marker(shop.engine.feedback.store, order)
    tx.prepare()
    try:
        binding.commit()
    except shop.database.error as error:
        tx.rollback()
        raise Refused from error
    tx.commit()


def behind_the_fence(database: Database) -> Checker:
    return fmq.bind.checker_of(database.address)


def plain_select(database: Database) -> Checker:
    """Find the outcome with a plain SELECT: without a row it counts as rolled back. That is
    wrong.
    """

    def check(question: fmq.Question) -> fmq.Answer:
        marked = database.look(question.store, question.tx_id) == "C"
        return "commit" if marked else "rollback"

    return check


@dataclass(frozen=True, slots=True)
class Way:
    """One way to place orders. For a wrong way, it also says what must show the error."""

    name: str
    place: Callable[[Shop, str], None] = bound
    checker: Callable[[Database], Checker] = behind_the_fence
    shown_by: tuple[Blow, Step] | None = None


RIGHT = Way("as it ships")
NO_MARKER = Way("no marker", two_commits, shown_by=(Blow.PRODUCER, Step.COMMITTED))
PLAIN_SELECT = Way("a plain SELECT", checker=plain_select, shown_by=(Blow.ASKED, Step.PREPARED))
RAISED = Way(
    "rolled back because COMMIT raised",
    rolled_back_if_it_raised,
    shown_by=(Blow.CONNECTION, Step.COMMITTING),
)

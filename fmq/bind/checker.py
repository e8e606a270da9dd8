"""Checkers that ask a database what became of a bound transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fmq.bind.bind_errors import Unreachable
from fmq.bind.drivers import database_at
from fmq.feedback.answers import Answer, Checker
from fmq.feedback.question import Question


def checker_of(address: object) -> Callable[[Question], Answer]:
    """Return a checker that asks the database at `address`, such as "sqlite:///shop.db".

    A relative path follows three slashes, an absolute one four. PostgreSQL is
    "postgresql://host/name". "django://default" names an alias of Django's DATABASES. An address
    with a driver, such as "postgresql+psycopg://...", is one of SQLAlchemy's. Its engines are
    addresses, too.
    """
    return for_bound_only(database_at(address).check)


def for_bound_only(checker: Checker) -> Checker:
    """Return a checker that asks `checker` about bound transactions only.

    Others have no marker, so the absence of one proves nothing. The answer is "unknown" for them,
    and while the database cannot be reached.
    """

    def answer(question: Question) -> Answer:
        with suppress(Unreachable):
            return checker(question) if question.bound else "unknown"
        return "unknown"

    return answer

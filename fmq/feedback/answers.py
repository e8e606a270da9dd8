"""What a producer may answer, and the function that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fmq.feedback.question import Question

Answer = Literal["commit", "rollback", "unknown"]
"""What a checker may say."""
ANSWERS = ("commit", "rollback", "unknown")

Checker = Callable[[Question], Answer]
"""The user's function that knows what its database did."""


def is_answer(said: object) -> bool:
    """Whether `said` is one of ANSWERS; an array compares each of its elements."""
    return isinstance(said, str) and said in ANSWERS


def check_callable(what: str, function: object) -> None:
    """TypeError, if `function` is none: one that cannot be called when its time has come."""
    if not callable(function):
        raise TypeError(
            f"{what}={function!r}: is a function, not {type(function).__name__}. "
            "Nothing was changed."
        )

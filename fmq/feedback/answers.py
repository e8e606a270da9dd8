"""What a checker may answer, and the type of its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fmq.feedback.question import Question

Answer = Literal["commit", "rollback", "unknown"]
"""What a checker may return."""
ANSWERS = ("commit", "rollback", "unknown")

Checker = Callable[[Question], Answer]
"""The user's function that knows what its database did."""


def is_answer(value: object) -> bool:
    """Return whether `value` is one of ANSWERS."""
    # Look at the type first: a numpy array would compare each of its elements.
    return isinstance(value, str) and value in ANSWERS


def check_callable(what: str, function: object) -> None:
    """Raise TypeError unless `function` can be called."""
    if not callable(function):
        raise TypeError(
            f"{what}={function!r}: must be a function, not {type(function).__name__}. "
            "Nothing was changed."
        )

"""What a producer may answer, and the function that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fmq.feedback.question import Question

Answer = Literal["commit", "rollback", "unknown"]
"""What a checker may say."""
ANSWERS = ("commit", "rollback", "unknown")

Checker = Callable[["Question"], Answer]
"""The user's function that knows what its database did."""

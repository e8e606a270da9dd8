"""A schedule as data: the few choices in which it differs from the default.

By default a thread goes on until it must wait, or ends. A choice says that at a seam another one
goes on; one that stops a thread which could have gone on is a preemption. A seam is named by what
stands in the source there, so that a schedule outlives what is changed elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Choice:
    """The thread `stopped`, when it is at `place` for the n-th time, lets `goes_on` go on.

    If none is stopped, as none has begun or the last one has ended, both are "".
    """

    stopped: str
    place: str
    nth: int
    goes_on: str
    preempts: bool = True  # whether the thread that stopped could have gone on

    @property
    def seam(self) -> tuple[str, str, int]:
        return self.stopped, self.place, self.nth

    def as_json(self) -> list[Any]:
        return [self.stopped, self.place, self.nth, self.goes_on, self.preempts]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices, and whether each line is a seam, too."""

    lines: bool  # whether each line where threads meet is a seam
    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return f"{self.preemptions} preemptions"

    @property
    def preemptions(self) -> int:
        return sum(choice.preempts for choice in self.choices)

    def as_json(self) -> dict[str, Any]:
        return {"lines": self.lines, "choices": [each.as_json() for each in self.choices]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(data["lines"], tuple(Choice(*each) for each in data["choices"]))

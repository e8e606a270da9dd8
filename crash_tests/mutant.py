"""A bug to plant: a text that one file of fmq has, and what takes its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: `old` becomes `new`. `arguments` make the harness meet it, or `tests` fail of it."""

    name: str
    old: str
    new: str
    arguments: str = ""
    more: tuple[tuple[str, str], ...] = ()  # further replacements that belong to it
    tests: str = ""  # what pytest is given, if it is not the harness that finds the bug

"""A bug to plant: a text in one file of fmq, and the text that replaces it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: `old` becomes `new`. With `arguments` the harness must find it, or else `tests` must
    fail.
    """

    name: str
    old: str
    new: str
    arguments: str = ""
    more: tuple[tuple[str, str], ...] = ()  # further replacements that belong to it
    tests: str = ""  # the arguments of pytest, if tests and not the harness find the bug

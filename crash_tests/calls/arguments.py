"""Random arguments of calls: mostly valid ones, and now and then wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from fmq import Message, filters

KEPT = ("kept", "kept too")  # never trimmed, made again or deleted
PASSING = ("a", "b", "c")
TOPICS = (*KEPT, *PASSING)
GROUPS = ("g", "h", "i")
MARKS = ("m", "n")
IDS = tuple(f"id {number}" for number in range(6))
PRODUCERS = ("", "p", "q")
ODD_SHARE = 0.03  # of all arguments
TEXTS = ("", "\ud800", "x" * 300, "\0", " ", "é" * 200, ".fmq", "a/b")
NUMBERS = (-1, 0, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 80, 10**400)
FRACTIONS = (0.5, -0.5, 1e300, float("inf"), float("-inf"), float("nan"), 1e-9)
KINDS: tuple[Any, ...] = (None, True, b"x", [], {}, object(), ("a",), {"a"}, "x", 1, 0.0, 1.0)
TIMES = (
    datetime(1, 1, 1),  # noqa: DTZ001 - without a zone
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1969, 1, 1, tzinfo=UTC),
)


class Arguments:
    """Draws arguments, and knows whether any of those of one call is odd."""

    def __init__(self, random: Random, now_us: Any) -> None:
        self.random = random
        self.is_odd = False
        self._now_us = now_us  # what time it is

    def begin(self) -> None:
        """Forget the arguments of the call before."""
        self.is_odd = False

    def _or_odd(self, usual: Any, *kinds: Sequence[Any]) -> Any:
        if self.random.random() >= ODD_SHARE:
            return usual
        self.is_odd = True
        return self.random.choice(self.random.choice((KINDS, *kinds)))

    def chance(self, share: float) -> bool:
        """Return True in this share of the calls."""
        return self.random.random() < share

    def one_of(self, usual: Sequence[Any]) -> Any:
        """Return one of these, or a text or something else that is odd."""
        return self._or_odd(self.random.choice(usual), TEXTS, NUMBERS)

    def topic(self) -> Any:
        """Return a topic to use."""
        return self.one_of((*TOPICS, "a", "a"))  # so that many meet in one of them

    def passing(self) -> Any:
        """Return a topic to change or to delete."""
        found = self.one_of((*PASSING, "a", "a"))
        return "a" if isinstance(found, str) and found in KEPT else found

    def group(self) -> Any:
        """Return a group."""
        return self.one_of((*GROUPS, "g", "g"))

    def number(self, low: int, high: int) -> Any:
        """Return a whole number."""
        return self._or_odd(self.random.randint(low, high), NUMBERS, FRACTIONS, TEXTS)

    def seconds(self, *usual: float) -> Any:
        """Return how long."""
        return self._or_odd(self.random.choice(usual), NUMBERS, FRACTIONS, TEXTS)

    def flag(self) -> Any:
        """Return a flag that may be None."""
        return self._or_odd(self.random.choice((None, None, True, False)), TEXTS)

    def queue(self) -> Any:
        """Return a queue; it may be one that the topic does not have yet."""
        return self.number(0, self.random.choice((0, 0, 1, 3)))

    def time(self, *seconds: float) -> Any:
        """Return a time that is so far from now."""
        at = datetime.fromtimestamp(self._now_us() / 1_000_000, UTC)
        at += timedelta(seconds=self.random.choice(seconds))
        return self._or_odd(at, TIMES, NUMBERS)

    def body(self, name: bytes = b"") -> Any:
        """Return a body."""
        size = self.random.choice((0, 10, 10, 100, 100, 700, 1900))
        body = name + b"." * self.random.randint(0, size)
        return self._or_odd(body, (b"x" * 5000, bytearray(b"buffer"), memoryview(b"view")), TEXTS)

    def message(self, name: bytes = b"") -> Any:
        """Return a body, or a Message."""
        if self.random.random() < 0.5:
            return self.body(name)
        return Message(self.body(name), **self.properties())

    def properties(self) -> dict[str, Any]:
        """Return what a message has beside its body."""
        found: dict[str, Any] = {}
        if self.chance(0.3):
            found["key"] = self.one_of(("k", "l", "m", None))
        if self.chance(0.3):
            found["tag"] = self.one_of(("t", "u", None))
        if self.chance(0.2):
            usual = {"n": str(self.random.randint(0, 9))}
            odd = (
                {"": ""},
                {"a": 1},
                {1: "a"},
                {"a": "\ud800"},
                {"a" * 300: "b"},
                {"a": "9" * 999},
            )
            found["headers"] = self._or_odd(usual, odd)
        if self.chance(0.15):
            found["message_id"] = self.one_of(IDS)
        if self.chance(0.15):
            found["priority"] = self.number(0, 9)
        if self.chance(0.1):
            found["expires_at"] = self.time(1, 5, 100)
        return found

    def timing(self) -> dict[str, Any]:
        """Return when it is to be visible, if not at once."""
        if self.chance(0.85):
            return {}
        if self.chance(0.5):
            return {"delay": self.seconds(0.5, 1, 3, 30)}
        return {"deliver_at": self.time(-1, 0.5, 2, 20)}

    def filter(self) -> Any:
        """Return a filter, or None."""
        usual = (None, filters.tags("t"), filters.tags("t || u"), filters.sql("n > 4"))
        return self._or_odd(self.random.choice(usual), TEXTS)

    def place(self) -> Any:
        """Return where a group is to begin."""
        usual = self.random.choice(("earliest", "latest", self.random.randint(0, 9), None))
        return self._or_odd(self.time(-9, -1, 0) if usual is None else usual, NUMBERS, TEXTS)

"""Which pending changes survive a power cut: every choice that is worth a test.

Nothing but a sync orders anything, so any subset of what is pending may survive, and one
write may survive in part. Few changes are tried in all subsets; of many, the shapes that find
bugs: each prefix, all but one, only one, and some at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any, Self

from fmq.testing.changes import Change, Tear

ALL_SUBSETS_MAX = 5
RANDOM_SUBSETS = 16


@dataclass(frozen=True, slots=True)
class Torn:
    """The change that was being written when the power failed, and what is left of it."""

    number: int
    cut: int
    tear: Tear


@dataclass(frozen=True, slots=True)
class Loss:
    """What is left of the pending changes: some in full, one in part, the others not at all."""

    kept: frozenset[int] = frozenset()
    torn: Torn | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the loss as JSON, to store it with a failure. `from_json` reads it."""
        torn = self.torn
        return {
            "kept": sorted(self.kept),
            "torn": None if torn is None else [torn.number, torn.cut, torn.tear.value],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        torn = None
        if data["torn"] is not None:
            number, cut, tear = data["torn"]
            torn = Torn(number, cut, Tear(tear))
        return cls(frozenset(data["kept"]), torn)


def losses(pending: Sequence[Change], random: Random) -> Iterator[Loss]:
    """Yield each loss worth a test, simple ones first. Several may leave equal bytes."""
    numbers = [change.number for change in pending]
    for kept in _subsets(numbers, random):
        yield Loss(frozenset(kept))
    for i, change in enumerate(pending):
        before = frozenset(numbers[:i])
        others = before.union(numbers[i + 1 :])
        for cut, tear in change.tears(random):
            torn = Torn(change.number, cut, tear)
            yield Loss(before, torn)
            if others != before:
                yield Loss(others, torn)


def _subsets(numbers: list[int], random: Random) -> Iterator[Sequence[int]]:
    count = len(numbers)
    if count <= ALL_SUBSETS_MAX:
        for size in range(count + 1):
            yield from combinations(numbers, size)
        return
    for size in range(count + 1):
        yield numbers[:size]
    for i in range(count):
        yield numbers[i : i + 1]
        yield numbers[:i] + numbers[i + 1 :]
    for _ in range(RANDOM_SUBSETS):
        yield _some(numbers, random)


def random_loss(pending: Sequence[Change], random: Random) -> Loss:
    """Return one loss. The losses that often find bugs are together as likely as all others."""
    numbers = [change.number for change in pending]
    tears = [(change, cut) for change in pending for cut in change.tears(random)]
    match random.choice(("none", "all", "prefix", "some", "torn", "torn")):
        case "none":
            return Loss()
        case "all":
            return Loss(frozenset(numbers))
        case "torn" if tears:
            change, (cut, tear) = random.choice(tears)
            before = [number for number in numbers if number < change.number]
            kept = random.choice((before, _some(numbers, random)))
            return Loss(frozenset(kept) - {change.number}, Torn(change.number, cut, tear))
        case "prefix":
            return Loss(frozenset(numbers[: random.randint(0, len(numbers))]))
    return Loss(frozenset(_some(numbers, random)))


def _some(numbers: list[int], random: Random) -> list[int]:
    return [number for number in numbers if random.random() < 0.5]

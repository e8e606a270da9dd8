"""Makes workloads from seeds: mixed steps that mostly make sense one after another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

from crash_tests.budget import Budget
from crash_tests.sweep import sweep
from crash_tests.tally import Tally
from crash_tests.workload import Step, Workload

SEEDS = 10


class Seeds:
    """One seed after another, from the budget's on."""

    name = "seeds"

    def run(self, budget: Budget) -> Tally:
        return sweep(self.name, self._from(budget), budget)

    def _from(self, budget: Budget) -> Iterator[Workload]:
        rounds = SEEDS if budget.is_unlimited else budget.rounds
        for number in count() if rounds is None else range(rounds):
            yield generate(budget.seed + number)


def generate(seed: int, length: int = 16) -> Workload:
    """Return a workload made from `seed`, the same on every machine."""
    random = Random(seed)
    options: dict[str, Any] = {
        "segment_bytes": random.choice((3072, 4096, 4096, 8192)),
        "checkpoint_bytes": random.choice((1024, 2048, 4096, 100_000)),
        "reference_bytes_min": random.choice((1, 64, 64, 10_000)),
    }
    if random.random() < 0.4:
        options["relocate_bytes"] = random.choice((3000, 6000))
    if random.random() < 0.5:
        options["retain_bytes"] = random.choice((1, 2, 3)) * options["segment_bytes"]
    if random.random() < 0.25:
        options["sync"] = random.choice(("interval", "never"))
    if random.random() < 0.2:
        options["compress_bytes_min"] = 64
    if random.random() < 0.3:
        options["first_segment_bytes"] = 2048
    maker = Maker(random, options["segment_bytes"])
    steps = [maker.step() for _ in range(length)]
    return Workload(f"seed {seed}", steps, options, fresh=random.random() < 0.1)


class Maker:
    """Draws steps that mostly make sense one after another."""

    def __init__(self, random: Random, segment_bytes: int) -> None:
        self._random = random
        self._segment_bytes = segment_bytes
        self._transactions = 0
        self._prepared: list[str] = []
        self._filled = False  # just now: the end of a segment is where most goes wrong

    def step(self) -> Step:
        random = self._random
        kinds, weights = zip(*WEIGHTS.items(), strict=True)
        kind = random.choices(kinds, weights)[0]
        if self._filled and random.random() < 0.5:
            kind = random.choice(AT_THE_END)
        self._filled = kind == "fill"
        match kind:
            case "send" | "lazy" | "sure":
                return [kind, *self._lane(), self._size()]
            case "fill":
                return [kind, *self._lane()]
            case "many":
                return [kind, *self._lane(), random.randint(1, 4), self._size() // 3 + 8]
            case "tx" | "lazy tx" | "prepare":
                return self._transaction(kind)
            case "commit" | "lazy commit" | "sure commit" | "rollback" | "decide" if self._prepared:
                name = self._prepared.pop(random.randrange(len(self._prepared)))
                if kind == "decide":
                    return [kind, name, random.choice(("commit", "rollback"))]
                return [kind, name]
            case "consume":
                limit = random.randint(1, 4)
                return [kind, random.choice("gh"), limit, random.randint(0, limit)]
            case "batch":
                return [kind, random.choice("gh"), random.randint(1, 6)]
            case "clock":
                return [kind, random.choice((0.2, 1.0, 31.0))]
            case "checkpoint" | "sync" | "reopen" | "kill":
                return [kind]
            case _:
                return ["read", *self._lane()]

    def _lane(self) -> list[Any]:
        return list(self._random.choice((("a", 0), ("a", 0), ("b", 0), ("b", 1), ("c", 0))))

    def _size(self) -> int:
        most = (self._segment_bytes - 600) // 2
        return self._random.choice((12, 40, 70, 200, most // 2, most))

    def _transaction(self, kind: str) -> Step:
        random = self._random
        self._transactions += 1
        name = f"t{self._transactions}"
        runs = [
            [*self._lane(), random.randint(1, 2), random.choice((12, 40, 80, 150))]
            for _ in range(random.randint(1, 3))
        ]
        if kind == "prepare":
            self._prepared.append(name)
        return [kind, name, runs, random.choice((None, None, "g", "h"))]


AT_THE_END = ("checkpoint", "reopen", "kill", "prepare")
WEIGHTS = {
    "send": 6,
    "lazy": 1,
    "sure": 0.5,
    "many": 2,
    "fill": 1.2,
    "tx": 2.5,
    "lazy tx": 0.5,
    "prepare": 4,
    "commit": 2,
    "lazy commit": 0.7,
    "sure commit": 0.3,
    "rollback": 1.5,
    "decide": 1,
    "consume": 2,
    "batch": 1,
    "read": 1,
    "checkpoint": 1.5,
    "sync": 0.3,
    "clock": 0.7,
    "reopen": 0.7,
    "kill": 1,
}

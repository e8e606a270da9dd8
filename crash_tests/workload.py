"""Workloads as data: lists of steps, written by hand or made from a seed.

    ["send", topic, queue, size]                 ["lazy", topic, queue, size]   sync=False
    ["many", topic, queue, count, size]          ["read", topic, queue]
    ["tx", name, [[topic, queue, count, size]...], group or null]      one phase
    ["prepare", name, [...], group or null]      with a group: acks what it can poll
    ["commit", name]  ["rollback", name]         by the transaction, or decide if it is lost
    ["decide", name, "commit" or "rollback"]
    ["consume", group, limit, acks]              polls, acks the first few one by one
    ["batch", group, limit]                      polls a batch and acks it as one
    ["export"]  ["end export"]                   pins the oldest segment, as another process may
    ["checkpoint"]  ["sync"]  ["clock", seconds]  ["reopen"]  ["kill"]

A step that makes no sense where it stands, as shrinking leaves them, does nothing. Limits are
tiny, so that a short workload crosses segments, checkpoints, relocation and retention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Step = list[Any]

TINY = {
    "segment_bytes": 4096,
    "checkpoint_bytes": 1024,
    "reference_bytes_min": 64,
    "topic_queues": {"b": 2},
    "lease_seconds": 30.0,
}
GROUPS = {"g": ["a", "b"], "h": ["a"]}


@dataclass(frozen=True, slots=True)
class Workload:
    """Steps, and the options that they run with."""

    name: str
    steps: list[Step]
    options: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False  # whether the directory is made by the workload, too

    def all_options(self) -> dict[str, Any]:
        return {**TINY, **self.options}

    def groups(self) -> set[str]:
        """Those that it reads as, and one that it may never have heard of."""
        reading = {step[1] for step in self.steps if step[0] in ("consume", "batch")}
        acking = {step[3] for step in self.steps if step[0] in ("tx", "prepare") and step[3]}
        return {"g"} | reading | acking

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "steps": self.steps,
            "options": self.options,
            "fresh": self.fresh,
        }


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "send",
            [["send", "a", 0, 40], ["many", "b", 1, 3, 30], ["lazy", "a", 0, 20], ["sync"]],
            fresh=True,
        ),
        Workload(
            "one-phase",
            [
                ["tx", "t1", [["a", 0, 2, 40], ["b", 1, 1, 90]], None],
                ["tx", "t2", [["b", 0, 1, 10], ["c", 0, 2, 10]], None],
            ],
        ),
        Workload(
            "large",  # bodies of several sectors, so that a tear leaves every head whole
            [
                ["tx", "t1", [["a", 0, 1, 1200], ["b", 1, 1, 300]], None],
                ["prepare", "t2", [["a", 0, 1, 1200]], None],
                ["commit", "t2"],
            ],
        ),
        Workload(
            "two-phase",
            [
                ["prepare", "t1", [["a", 0, 2, 30], ["b", 1, 1, 200]], None],
                ["send", "a", 0, 20],
                ["prepare", "t2", [["a", 0, 1, 100]], None],
                ["commit", "t1"],
                ["rollback", "t2"],
                ["send", "b", 0, 20],
            ],
            fresh=True,
        ),
        Workload(
            "roll",
            [
                ["prepare", "t1", [["a", 0, 1, 500], ["b", 0, 2, 20]], None],
                ["many", "a", 0, 2, 1100],
                ["send", "b", 1, 300],
                ["commit", "t1"],
                ["send", "a", 0, 1400],
                ["send", "a", 0, 1400],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "roll-without-a-checkpoint",
            [["send", "a", 0, 1800], ["send", "a", 0, 1800], ["send", "b", 0, 1800]],
            {"checkpoint_bytes": 100_000},
            fresh=True,
        ),
        Workload(
            "checkpoint",
            [
                ["prepare", "t1", [["a", 0, 1, 30]], None],
                ["prepare", "t2", [["b", 0, 1, 300]], None],
                ["commit", "t1"],
                ["checkpoint"],
                ["send", "a", 0, 60],
                ["checkpoint"],
                ["decide", "t2", "rollback"],
                ["checkpoint"],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "ack",
            [
                ["many", "a", 0, 4, 20],
                ["consume", "g", 2, 1],
                ["tx", "t1", [["b", 0, 1, 20]], "g"],
                ["batch", "h", 3],
                ["prepare", "t2", [["b", 1, 1, 20]], "h"],
                ["reopen"],
                ["consume", "g", 5, 5],
                ["decide", "t2", "rollback"],
                ["consume", "h", 5, 5],
            ],
        ),
        Workload(
            "retention",
            [
                ["prepare", "t1", [["a", 0, 1, 100]], None],
                ["commit", "t1"],
                *(["send", "a", 0, 1200] for _ in range(7)),
                ["read", "a", 0],
                ["send", "b", 1, 40],
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["tx", "t2", [["a", 0, 1, 20], ["b", 0, 1, 20]], None],
            ],
            {"retain_bytes": 12288},
        ),
        Workload(
            "retention-of-several",
            [
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["batch", "g", 1],
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["batch", "g", 20],
                ["send", "a", 0, 1800],
                ["send", "b", 0, 30],
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "retention-after-a-pin",
            [
                ["prepare", "t1", [["a", 0, 1, 100]], None],
                *(["send", "a", 0, 1800] for _ in range(10)),
                ["commit", "t1"],
                ["send", "a", 0, 1800],
                ["send", "b", 0, 30],
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "relocation",
            [
                ["prepare", "t1", [["a", 0, 2, 80], ["b", 0, 1, 20]], None],
                ["send", "b", 1, 1400],
                ["prepare", "t2", [["a", 0, 1, 20]], None],
                *(["send", "b", 1, 1400] for _ in range(5)),
                ["commit", "t1"],
                ["send", "b", 1, 1400],
                ["decide", "t2", "rollback"],
                ["send", "b", 1, 1400],
            ],
            {"relocate_bytes": 4000, "retain_bytes": 12288},
        ),
        Workload(
            "relocation-of-acks",
            [
                ["many", "a", 0, 4, 20],
                ["prepare", "t1", [["b", 0, 1, 20]], "g"],
                *(["send", "b", 1, 1400] for _ in range(5)),
                ["decide", "t1", "commit"],
                ["consume", "g", 5, 1],
            ],
            {"relocate_bytes": 6000},
        ),
        Workload(
            "export",
            [
                *(["send", "a", 0, 1800] for _ in range(3)),
                ["export"],
                *(["send", "a", 0, 1800] for _ in range(6)),
                ["end export"],
                *(["send", "a", 0, 1800] for _ in range(3)),
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "window",
            [
                ["tx", "t1", [["a", 0, 1, 20]], None],
                ["prepare", "t2", [["a", 0, 1, 20]], None],
                ["decide", "t2", "rollback"],
                ["clock", 50.0],
                ["kill"],
                ["send", "a", 0, 20],
            ],
            {"outcome_window_seconds": 60.0},
        ),
        Workload(
            "topics",
            [
                ["prepare", "t1", [["a", 0, 1, 20], ["b", 1, 1, 20]], None],
                ["checkpoint"],
                ["kill"],
                ["decide", "t1", "commit"],
                ["send", "a", 0, 20],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "kill",
            [
                ["send", "a", 0, 40],
                ["prepare", "t1", [["a", 0, 1, 80]], None],
                ["kill"],
                ["send", "a", 0, 40],
                ["commit", "t1"],
                ["kill"],
                ["read", "a", 0],
                ["send", "a", 0, 3900],
            ],
            fresh=True,
        ),
        Workload(
            "interval",
            [
                *(["many", "a", 0, 2, 60] for _ in range(3)),
                ["tx", "t1", [["a", 0, 1, 20], ["b", 0, 1, 20]], None],
                ["prepare", "t2", [["b", 1, 1, 300]], None],
                ["commit", "t2"],
                ["consume", "g", 3, 2],
                ["clock", 1],
                ["send", "b", 0, 3000],
                ["sync"],
            ],
            {"sync": "interval"},
        ),
        Workload(
            "never",
            [
                *(["send", "a", 0, 600] for _ in range(5)),
                ["prepare", "t1", [["b", 1, 1, 300]], None],
                ["commit", "t1"],
                ["send", "a", 0, 600],
                ["sync"],
                ["send", "a", 0, 3000],
                ["send", "a", 0, 600],
            ],
            {"sync": "never"},
        ),
        Workload(
            "sync-twice",
            [
                ["send", "a", 0, 100],
                ["checkpoint"],
                ["sync"],
                ["send", "a", 0, 100],
                ["sync"],
                ["send", "a", 0, 100],
            ],
            {"sync": "never"},
        ),
    )
}


def generate(seed: int, length: int = 16) -> Workload:
    """A workload made from `seed`, the same on every machine."""
    random = Random(seed)
    options: dict[str, Any] = {
        "segment_bytes": random.choice((3072, 4096, 4096, 8192)),
        "checkpoint_bytes": random.choice((1024, 2048, 4096, 100_000)),
        "reference_bytes_min": random.choice((1, 64, 64, 10_000)),
    }
    if random.random() < 0.4:
        options["relocate_bytes"] = random.choice((3000, 6000))
    if random.random() < 0.4:
        options["retain_bytes"] = random.choice((2, 3)) * options["segment_bytes"]
    if random.random() < 0.25:
        options["sync"] = random.choice(("interval", "never"))
    if random.random() < 0.2:
        options["compress_bytes_min"] = 64
    maker = _Maker(random, options["segment_bytes"])
    steps = [maker.step() for _ in range(length)]
    return Workload(f"seed {seed}", steps, options, fresh=random.random() < 0.1)


class _Maker:
    """Draws steps that mostly make sense one after the other."""

    def __init__(self, random: Random, segment_bytes: int) -> None:
        self._random = random
        self._segment_bytes = segment_bytes
        self._transactions = 0
        self._prepared: list[str] = []

    def step(self) -> Step:
        random = self._random
        kinds, weights = zip(*WEIGHTS.items(), strict=True)
        kind = random.choices(kinds, weights)[0]
        match kind:
            case "send" | "lazy":
                return [kind, *self._lane(), self._size()]
            case "many":
                return [kind, *self._lane(), random.randint(1, 4), self._size() // 3 + 8]
            case "tx" | "prepare":
                return self._transaction(kind)
            case "commit" | "rollback" | "decide" if self._prepared:
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


WEIGHTS = {
    "send": 6,
    "lazy": 1,
    "many": 2,
    "tx": 3,
    "prepare": 4,
    "commit": 3,
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

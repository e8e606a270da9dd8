"""The order of priorities is that of a model, whatever was sent, acked and released before."""

from __future__ import annotations

import random

import pytest

from fmq import Message
from tests.budget import SEED, within_budget
from tests.small import CrashDisk, check, opened


class Model:
    """What is left of a queue, with the rules of by_priority.py in words of lists and sorting."""

    def __init__(self) -> None:
        self.level: dict[int, int] = {}
        self.new: set[int] = set()  # never handed out, or not tried
        self.released: list[int] = []  # and not found by a poll yet
        self.again: list[tuple[int, int]] = []  # pairs of what it goes behind, and offset
        self.handed_out = 0

    def send(self, *priorities: int | None) -> None:
        for each in priorities:
            self.new.add(len(self.level))
            self.level[len(self.level)] = each or 0

    def poll(self, count: int) -> list[int]:
        """Return the next `count` offsets."""
        self.again += [(len(self.level), each) for each in sorted(self.released)]
        self.released.clear()
        found = []
        by_age = sorted(self.new)
        by_priority = sorted(self.new, key=lambda offset: (-self.level[offset], offset))
        for _ in range(count):
            oldest = self._first([each for each in by_age[: count + 1] if each in self.new])
            chosen = best = self._best([each for each in by_priority if each in self.new])
            if self.handed_out >= 9:
                chosen = oldest
            self.handed_out = 0 if chosen == oldest else self.handed_out + 1
            assert best >= 0
            self.new.discard(chosen)
            self.again = [each for each in self.again if each[1] != chosen]
            found.append(chosen)
        return found

    def _best(self, new: list[int]) -> int:
        levels = [self.level[each] for each in new[:1]]
        highest = max(levels + [self.level[each] for _, each in self.again])
        of_it = [each for each in new[:1] if self.level[each] == highest]
        return self._first(of_it, [each for each in self.again if self.level[each[1]] == highest])

    def _first(self, new: list[int], again: list[tuple[int, int]] | None = None) -> int:
        again = self.again if again is None else again
        if again and (not new or again[0][0] <= new[0]):
            return again[0][1]
        return new[0]


@pytest.mark.parametrize("seed", range(SEED, SEED + within_budget(2)))
def test_deliveries_by_priority_agree_with_a_model(seed: int) -> None:
    """Sends, polls, acks and releases, compared with a model."""
    draw, disk, model = random.Random(seed), CrashDisk(), Model()
    engine = opened(disk, segment_bytes=1 << 20)
    consumer = engine.consumer("t", group="g")
    engine.send("t", b"", priority=1)
    model.send(1)
    for _ in range(120):
        step = draw.choice(["send", "send many", "poll", "poll", "poll"])
        if step == "send":
            priority = draw.choice([None, 0, 3, 9])
            engine.send("t", b"", priority=priority)
            model.send(priority)
        elif step == "send many":
            priorities = draw.choices([0, 1, 9], k=draw.choice([1, 10, 3000]))
            engine.send_many("t", [Message(b"", priority=each) for each in priorities])
            model.send(*priorities)
        else:
            deliveries = consumer.poll(limit=draw.choice([1, 2, 15]))
            assert [each.offset for each in deliveries] == model.poll(len(deliveries)), f"{seed=}"
            for each in deliveries:
                if draw.random() < 0.7:
                    each.ack()
                else:
                    each.release(delay=0, count=draw.random() < 0.5)
                    model.released.append(each.offset)
    consumer.close()
    engine.close()
    check(disk)

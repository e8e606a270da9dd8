"""A claim that is interrupted at any line leaves every message to be had, by its lease's end."""

from __future__ import annotations

from functools import partial

import pytest

from fmq.consume import holds as holds_module
from fmq.consume.holds import QueueHolds
from fmq.tx.acks import Acked
from tests.store.lines import Lines

LINES_MAX = 200
MESSAGES = 10


def interrupt() -> None:
    raise KeyboardInterrupt


def with_some_taken() -> QueueHolds:
    """Of ten messages two are acked, two are held, two come again."""
    holds = QueueHolds(Acked())
    assert holds.claim(MESSAGES, 0, 2, "earlier", 5.0)
    assert holds.claim(MESSAGES, 0, 4, "releases", 5.0)
    holds.acked.add(0, 2)
    holds.done(0, 2)
    holds.give_back(2, 4)
    return holds


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_an_interrupted_claim_loses_no_message(limit: int) -> None:
    for at in range(LINES_MAX):
        holds = with_some_taken()
        for _ in range(2):  # what comes again, then what is fresh
            lines = Lines(holds_module, at, interrupt)
            try:
                lines.run(partial(holds.claim, MESSAGES, 0, limit, "victim", 5.0))
            except KeyboardInterrupt:
                break
        holds.expire(6.0)
        assert offered(holds) == list(range(2, MESSAGES)), lines.line
        if lines.count <= at:
            return
    raise AssertionError("so many lines?")


def offered(holds: QueueHolds) -> list[int]:
    found: list[int] = []
    while hold := holds.claim(MESSAGES, 0, 100, "after", 99.0):
        found += range(hold.first, hold.end)
    return sorted(found)

"""Whatever of a group's holds is interrupted, at any line: every message stays held or comes again,
by its lease's end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import pytest

from fmq.consume import held as held_module
from fmq.consume import holds as holds_module
from fmq.consume.held import Claim
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


CLAIM = Claim("anna")
FIRST, END = 3, 5  # what is acted upon, of a hold of all
Act = Callable[[QueueHolds], object]


def held_whole() -> QueueHolds:
    holds = QueueHolds(Acked())
    assert holds.claim(MESSAGES, 0, MESSAGES, CLAIM, 5.0)
    return holds


def held_by_a_transaction() -> QueueHolds:
    holds = held_whole()
    assert holds.exchange(FIRST, END, CLAIM, "transaction")
    holds.expire(6.0)  # the others are in other hands by then, and no lease of `CLAIM` is known
    assert offered(holds) == [0, 1, 2, 5, 6, 7, 8, 9]
    return holds


ACTS: dict[str, tuple[Callable[[], QueueHolds], Act]] = {
    "release of one": (held_whole, lambda holds: holds.give_back(FIRST, END)),
    "release of all": (held_whole, lambda holds: holds.give_back(0, MESSAGES)),
    "ack in a transaction": (
        held_whole,
        lambda holds: holds.exchange(FIRST, END, CLAIM, "transaction"),
    ),
    "roll back": (
        held_by_a_transaction,
        lambda holds: holds.hand_over(FIRST, END, CLAIM, 7.0),
    ),
    "end of a lease": (held_whole, lambda holds: holds.expire(5.0)),
    "end of a consumer": (held_whole, lambda holds: holds.release("anna")),
}


@pytest.mark.parametrize("module", [holds_module, held_module], ids=["holds", "held"])
@pytest.mark.parametrize("act", ACTS)
def test_an_interrupt_while_something_changes_hands_loses_no_message(
    act: str, module: ModuleType
) -> None:
    """What a transaction has by then it gives back; all else comes with the end of its lease."""
    begin, work = ACTS[act]
    for at in range(LINES_MAX):
        holds = begin()
        lines = Lines(module, at, interrupt)
        try:
            lines.run(partial(work, holds))
        except KeyboardInterrupt:
            holds._check()
        if holds.held_by(FIRST, END, "transaction"):
            holds.hand_over(FIRST, END, CLAIM, 7.0)
        holds.expire(100.0)
        holds._check()
        assert offered(holds) == list(range(MESSAGES)), lines.line
        if lines.count <= at:
            return
    raise AssertionError("so many lines?")


def offered(holds: QueueHolds) -> list[int]:
    found: list[int] = []
    while hold := holds.claim(MESSAGES, 0, 100, "after", 99.0):
        found += range(hold.first, hold.end)
    return sorted(found)

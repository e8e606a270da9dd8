"""Each order of a turn gets its own result, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fmq.engines.engine import Engine
from fmq.errors import Closed, EngineFailed, OutcomeUnknown
from fmq.server.server_turn import Turn, WriteOrder
from fmq.testing.inside import inside


class Defect(Exception):
    """What no code expects."""


def nothing() -> None:
    """Do nothing."""


def break_down() -> None:
    """Fail."""
    raise Defect


class Told:
    """Two orders in one turn; the first one is made of what a test gives it."""

    def __init__(
        self, engine: Engine, plan: Callable[[], None], end: Callable[[], None] = nothing
    ) -> None:
        self.first: list[object] = []
        self.second: list[object] = []
        turn = Turn(inside(engine).commit_queue, nothing)
        second = self.second
        turn.add(WriteOrder(plan, end, self.first.append, end, None))
        turn.add(WriteOrder(nothing, lambda: second.append("done"), second.append, nothing, None))
        turn.commit()


def test_an_answer_that_cannot_be_built_does_not_delay_other_answers(engine: Engine) -> None:
    """The order is durable, so its client does not get an error that says otherwise."""
    told = Told(engine, nothing, break_down)
    (error,) = told.first
    assert isinstance(error, OutcomeUnknown)
    assert "Defect" in str(error)
    assert told.second == ["done"]


def test_a_refusal_is_sent_even_if_giving_back_fails(engine: Engine) -> None:
    """Its client gets the refusal, and the next one its answer."""
    refusal = Closed("refused")

    def refuse() -> None:
        raise refusal

    told = Told(engine, refuse, break_down)
    assert told.first == [refusal]
    assert told.second == ["done"]


def test_a_defect_in_a_plan_ends_the_engine_and_answers_all_clients(engine: Engine) -> None:
    """No client waits for an answer that never comes."""
    told = Told(engine, break_down)
    for (error,) in (told.first, told.second):
        assert isinstance(error, EngineFailed)
    with pytest.raises(EngineFailed):
        engine.send("orders", b"more")

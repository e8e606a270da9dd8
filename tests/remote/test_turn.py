"""Each order of a turn gets its own result, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fmq.engines.engine import Engine
from fmq.errors import Closed, EngineFailed, OutcomeUnknown
from fmq.server.client_call import ClientCall
from fmq.steps.call_steps import Durable, Steps
from fmq.testing import FakeClock
from fmq.testing.transport import MemoryServer
from fmq.wire.frames import FAILED, Frame, Op
from fmq.wire.values import decode_error
from tests.remote.hostile import Hostile


class Defect(Exception):
    """What no code expects."""


def nothing(what: object = None) -> None:
    """Do nothing."""


def break_down(what: object = None) -> None:
    """Fail."""
    raise Defect


def steps(plan: Callable[[object], None], end: Callable[[], None] = nothing) -> Steps[bytes]:
    """Order `plan`, and call `end` whatever becomes of it."""
    try:
        yield Durable(plan)
    finally:
        end()
    return b""


class Told:
    """Two orders in one turn; the first one is made of what a test gives it."""

    def __init__(
        self,
        server: MemoryServer,
        plan: Callable[[object], None],
        end: Callable[[], None] = nothing,
    ) -> None:
        client = Hostile(server)
        client.hello()
        assert server.host is not None
        for number, call in enumerate([steps(plan, end), steps(nothing)], 100):
            asked = Frame(Op.ACK, 0, 0, number, b"")
            client.session.load.asked(0)
            ClientCall(client.session, asked, None, call).go_on()
        server.host.commit()
        *_, first, second = client.answers
        assert (first.request, second.request) == (100, 101)
        self.first = decode_error(first.payload) if first.flags & FAILED else None
        self.second = decode_error(second.payload) if second.flags & FAILED else None


@pytest.fixture
def server(engine: Engine, clock: FakeClock) -> Iterator[MemoryServer]:
    server = MemoryServer(engine, clock)
    yield server
    server.close()


def test_an_answer_that_cannot_be_built_does_not_delay_other_answers(server: MemoryServer) -> None:
    """The order is durable, so its client does not get an error that says otherwise."""
    told = Told(server, nothing, break_down)
    assert isinstance(told.first, OutcomeUnknown)
    assert "Defect" in str(told.first)
    assert told.second is None


def test_a_refusal_is_sent_even_if_giving_back_fails(server: MemoryServer) -> None:
    """Its client gets an error, and the next one its answer."""

    def refuse(what: object) -> None:
        raise Closed("refused")

    told = Told(server, refuse, break_down)
    assert told.first is not None
    assert told.second is None


def test_a_defect_in_a_plan_ends_the_engine_and_answers_all_clients(server: MemoryServer) -> None:
    """No client waits for an answer that never comes."""
    told = Told(server, break_down)
    assert isinstance(told.first, EngineFailed)
    assert isinstance(told.second, EngineFailed)
    with pytest.raises(EngineFailed):
        server.engine.send("orders", b"more")

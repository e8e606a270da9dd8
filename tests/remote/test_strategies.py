"""The strategies of clients, and of members in the engine process beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import fmq
from fmq.allocation import (
    average,
    by_circle,
    by_configuration,
    by_room,
    consistent_hash,
    describe,
    nearby,
    sticky,
)
from fmq.errors import StrategyDiffers
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer
from tests.small import opened

ROOMS, PEOPLE = {0: "east", 1: "west"}, {"here": "east", "there": "west"}
TOLD: list[Any] = [
    *(average, by_circle, sticky, consistent_hash(), consistent_hash(20)),
    *(by_room(["east"], ROOMS), by_configuration({"here": [0], "there": [1]})),
    *(nearby(sticky, ROOMS, PEOPLE), nearby(consistent_hash(3), ROOMS, PEOPLE)),
]


@pytest.fixture
def faces() -> Iterator[tuple[fmq.Engine, Any]]:
    """An engine, and a client of it."""
    clock = FakeClock()
    with opened(CrashDisk(), clock, queues=2) as engine:
        engine.send("t", b"x")
        yield engine, MemoryServer(engine, clock).connect()


def joined(engine: Any, member: str, strategy: Any) -> fmq.Consumer:
    found: fmq.Consumer = engine.consumer("t", group="g", member=member, strategy=strategy)
    return found


@pytest.mark.parametrize("strategy", TOLD, ids=describe)
def test_a_client_and_a_member_of_the_engine_process_share(
    faces: tuple[fmq.Engine, Any], strategy: Any
) -> None:
    engine, client = faces
    with joined(engine, "here", strategy), joined(client, "there", strategy):
        assert [each.name for each in client.group("g").members()] == ["here", "there"]
        assert client.group("g").members() == engine.group("g").members()


def test_a_client_with_another_table_is_refused(faces: tuple[fmq.Engine, Any]) -> None:
    engine, client = faces
    with joined(engine, "here", by_room(["east"], ROOMS)):
        with pytest.raises(StrategyDiffers, match="1: 'east'"):
            joined(client, "there", by_room(["east"], {**ROOMS, 1: "east"}))
        joined(client, "there", by_room(["east"], ROOMS)).close()


def own(queues: Sequence[int], members: Sequence[str]) -> dict[str, list[int]]:
    return {}


def room(value: object) -> str:
    return "east"


@pytest.mark.parametrize(
    "strategy",
    [
        *(own, consistent_hash(queue_key=repr), by_room(["east"], room), nearby(own, {}, {})),
        *(nearby(average, room, {}), nearby(average, {}, room)),
        nearby(nearby(average, {}, {}), {}, {}),
    ],
    ids=describe,
)
def test_a_function_of_the_program_does_not_go_to_the_engine_process(
    faces: tuple[fmq.Engine, Any], strategy: Any
) -> None:
    with pytest.raises(TypeError, match=r"cannot call a function.*tables instead of functions"):
        joined(faces[1], "there", strategy)

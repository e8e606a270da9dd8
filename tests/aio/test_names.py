"""Each public name of an engine, and of what it makes, has its face in fmq.aio."""

from __future__ import annotations

import inspect
from types import GeneratorType
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.faces.blocking.handles import DeadLetters, ScheduleHandle, TopicHandle

FACES: list[tuple[type, type]] = [
    (fmq.Engine, fmq.aio.AsyncEngine),
    (fmq.RemoteEngine, fmq.aio.AsyncEngine),
    (fmq.Consumer, fmq.aio.AsyncConsumer),
    (fmq.RemoteConsumer, fmq.aio.AsyncConsumer),
    (fmq.Delivery, fmq.aio.AsyncDelivery),
    (fmq.DeliveryBatch, fmq.aio.AsyncDeliveryBatch),
    (fmq.Transaction, fmq.aio.AsyncTransaction),
    (fmq.Group, fmq.aio.AsyncGroup),
    (TopicHandle, fmq.aio.AsyncTopic),
    (ScheduleHandle, fmq.aio.AsyncSchedule),
    (fmq.TypedTopic, fmq.aio.AsyncTypedTopic),
    (fmq.Feedback, fmq.aio.AsyncFeedback),
    (DeadLetters, fmq.aio.AsyncDeadLetters),
]

# What collects or makes, and asks nothing of an engine.
OF_A_CONSUMER = {"batches"}
OF_AN_ENGINE = {"checker", "consumer", "transaction"}
OF_A_TYPED_TOPIC = {"message", "value", "send_in"}
OF_A_TRANSACTION = {"send", "send_many", "mark", "unmark", "savepoint"}

DUNDERS = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}


def public(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")
    }


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(method)
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize(("blocking", "face"), FACES, ids=lambda kind: kind.__name__)
def test_each_public_name_has_an_asyncio_face(blocking: type, face: type) -> None:
    faces = public(face)
    assert set(public(blocking)) - set(faces) == set()


def test_no_face_has_a_public_name_of_its_own() -> None:
    """Such a name is public by accident."""
    for _, face in FACES:
        others = [public(blocking) for blocking, other in FACES if other is face]
        assert set(public(face)) == set().union(*others), face.__name__


@pytest.mark.parametrize(("blocking", "face"), FACES, ids=lambda kind: kind.__name__)
def test_asyncio_faces_take_the_same_arguments(blocking: type, face: type) -> None:
    faces = public(face)
    for name, method in public(blocking).items():
        if inspect.isfunction(method):
            assert parameters(faces[name]) == parameters(method), name


@pytest.mark.parametrize(("blocking", "face"), FACES, ids=lambda kind: kind.__name__)
def test_every_call_that_may_be_a_round_trip_is_awaited(blocking: type, face: type) -> None:
    for name, method in public(blocking).items():
        found = public(face)[name]
        if inspect.isfunction(method):
            is_engine = face is fmq.aio.AsyncEngine
            others = OF_A_TRANSACTION | OF_A_CONSUMER
            others = OF_A_TYPED_TOPIC if face is fmq.aio.AsyncTypedTopic else others
            is_plain = name in (OF_AN_ENGINE if is_engine else others)
            assert inspect.iscoroutinefunction(found) != is_plain, name
        else:
            assert isinstance(found, property), name


@pytest.mark.parametrize(("blocking", "face"), FACES, ids=lambda kind: kind.__name__)
def test_blocks_and_loops_have_asyncio_faces(blocking: type, face: type) -> None:
    for name, asynchronous in DUNDERS.items():
        if name in vars(blocking):
            assert hasattr(face, asynchronous), name


def test_open_and_connect_take_the_arguments_of_their_blocking_twins() -> None:
    names = set(inspect.signature(fmq.open).parameters) - {"read_only"}
    assert set(inspect.signature(fmq.aio.open).parameters) == names
    names = set(inspect.signature(fmq.connect).parameters)
    assert set(inspect.signature(fmq.aio.connect).parameters) == names
    assert not isinstance(fmq.aio.open("never"), GeneratorType)

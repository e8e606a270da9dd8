"""What may be a name, and the ids that the engine makes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import Enum

import pytest

import fmq
from fmq.arguments.names import check_name
from fmq.errors import BadName, FmqError
from tests.small import CrashDisk, FakeClock, bodies, opened

BAD_NAMES = ["", "a" * 256, "é" * 128, "a\nb", "a\0b", "\x7f", "\ud800"]
BAD_IDS = ["", "a" * 256, "é", "a\nb", "a\0b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_wherever_one_is_given(name: str) -> None:
    with opened(CrashDisk()) as engine:
        calls: list[Callable[[], object]] = [
            lambda: engine.send(name, b""),
            lambda: engine.send_many(name, [b""]),
            lambda: engine.send_many(name, []),
            lambda: engine.transaction().send(name, b""),
            lambda: engine.consumer(name, group="g"),
            lambda: engine.consumer("t", group=name),
        ]
        if name:
            calls += [
                lambda: engine.send("t", b"", producer=name),
                lambda: engine.transaction(producer=name),
            ]
        before = engine.stats().position
        for call in calls:
            with pytest.raises(BadName):
                call()
        assert engine.stats().position == before


@pytest.mark.parametrize("name", ["a", "a" * 255, "é" * 127, "with space", "a/b", "..", "日本"])
def test_a_good_name_is_any_printable_text_up_to_255_bytes(name: str) -> None:
    """Names are never paths, so a separator in one is allowed."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send(name, b"1", producer=name)
    with opened(disk) as engine:
        (message,) = engine.read(name)
        assert (message.topic, message.producer) == (name, name)


@pytest.mark.parametrize("tx_id", BAD_IDS)
def test_a_bad_tx_id_is_refused_wherever_one_is_given(tx_id: str) -> None:
    with opened(CrashDisk()) as engine:
        for call in (
            lambda: engine.transaction(tx_id=tx_id),
            lambda: engine.outcome(tx_id),
            lambda: engine.decide(tx_id, "commit"),
        ):
            with pytest.raises(BadName):
                call()


@pytest.mark.parametrize("tx_id", ["a", "~" * 255, "order-42 / second try"])
def test_a_tx_id_is_up_to_255_printable_ascii_characters(tx_id: str) -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction(tx_id=tx_id)
        tx.send("t", b"1")
        tx.prepare()
        assert engine.decide(tx_id, "commit").tx_id == tx_id


@pytest.mark.parametrize("wrong", [7, b"name", None])
def test_a_name_that_is_not_a_str_raises_type_error(wrong: object) -> None:
    with opened(CrashDisk()) as engine:
        with pytest.raises(TypeError):
            engine.send(wrong, b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            engine.outcome(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        check_name("topic", wrong)  # type: ignore[arg-type]


def test_bad_name_is_a_subclass_of_fmq_error_and_value_error() -> None:
    assert issubclass(BadName, FmqError)
    assert issubclass(BadName, ValueError)


def test_ids_made_by_the_engine_are_uuids_7_in_the_order_of_time() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        made = []
        for _ in range(50):
            made.append(engine.transaction().tx_id)
            clock.advance(0.001)
    assert made == sorted(made)
    for tx_id in made:
        parsed = uuid.UUID(tx_id)
        assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, tx_id)


def test_ids_made_within_one_instant_differ() -> None:
    with opened(CrashDisk()) as engine:
        assert len({engine.transaction().tx_id for _ in range(2000)}) == 2000


class Name(str, Enum):  # noqa: UP042 (of the kinds of enum the one that is shown as its class)
    ORDERS = "orders"


class Folded(str):
    """Text whose case does not matter, and which says so of plain text, too."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.lower(self) == str.lower(other)

    def __hash__(self) -> int:
        return hash(str.lower(self))


@pytest.mark.parametrize("kind", [Name, Folded])
def test_only_the_text_of_a_name_of_another_class_is_kept(kind: type[str]) -> None:
    disk = CrashDisk()
    name = kind("orders")
    with opened(disk) as engine:
        engine.send(name, b"1", producer=name)
        engine.send_many(name, [b"2"])
        with engine.transaction(tx_id=name, producer=name) as tx:
            tx.send(name, b"3")
        with engine.consumer(name, group=name) as consumer:
            for delivery in consumer.poll():
                delivery.ack()
        shown: list[object] = [engine.send("orders", b"4").topic, engine.queues()[0].topic]
        shown += [engine.groups()[0].group, engine.outcome("orders").producer]
        assert [type(each) for each in shown] == [str] * 4
        killed = disk.after_kill()
    with opened(killed) as engine:
        assert bodies(engine, "orders") == [b"1", b"2", b"3", b"4"]


def test_names_with_their_own_equality_do_not_affect_plain_names() -> None:
    with opened(CrashDisk()) as engine:
        engine.send(Folded("Shouted"), b"1")
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("shouted", b"2")
        engine.send("other", b"3")
        killed = disk.after_kill()
    with opened(killed) as engine:
        assert (bodies(engine, "shouted"), bodies(engine, "other")) == ([b"2"], [b"3"])
    assert fmq.check("data", disk=killed).ok

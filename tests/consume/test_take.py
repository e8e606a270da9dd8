"""`consumer.take`: messages for good, whose ack is durable before the program sees them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from fmq import Engine
from fmq.errors import BadOption, Closed, StorageFull
from fmq.filters import tags
from fmq.testing import FaultDisk
from tests.small import CrashDisk, FakeClock, check, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[Engine]:
    with opened(disk, clock) as engine:
        engine.send_many("t", [b"0", b"1", b"2", b"3"])
        yield engine
    check(disk)


def test_a_taken_message_is_acked_and_comes_once(engine: Engine, clock: FakeClock) -> None:
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="g") as two:
        bodies = [each.body for each in (*one.take(), *two.take(limit=2), *one.take(limit=9))]
        assert bodies == [b"0", b"1", b"2", b"3"]
        assert one.take() == two.take(timeout=1) == []
    (info,) = engine.groups("g")
    assert (info.acked_below, info.unread) == (4, 0)


def test_a_taken_message_stays_acked_after_a_power_cut(engine: Engine, disk: CrashDisk) -> None:
    with engine.consumer("t", group="g") as consumer:
        taken = consumer.take(limit=3)
        assert len(taken) == 3
        with opened(disk.after_power_loss(1)) as again, again.consumer("t", group="g") as other:
            assert [each.body for each in other.take(limit=9)] == [b"3"]


def test_a_take_waits_for_a_message(engine: Engine, clock: FakeClock) -> None:
    with engine.consumer("t", group="g") as consumer:
        consumer.take(limit=4)
        before = clock.monotonic()
        assert consumer.take(timeout=5) == []
        assert clock.monotonic() >= before + 5


def test_a_take_passes_over_messages_that_the_filter_excludes(engine: Engine) -> None:
    engine.send("f", b"a", tag="no")
    engine.send("f", b"b", tag="yes")
    with engine.consumer("f", group="g", filter=tags("yes")) as consumer:
        assert [each.body for each in consumer.take(limit=9)] == [b"b"]


def test_a_message_whose_ack_is_refused_is_given_back() -> None:
    """On a full disk the ack is refused. The next take gets the same message, without a wait."""
    crash = CrashDisk()
    faults = FaultDisk(crash)
    with opened(faults) as engine, engine.consumer("t", group="g" * 250) as consumer:
        engine.send("t", b"0")
        faults.fail("allocate", error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            while True:
                engine.send("fill", b"f" * 100)
        with pytest.raises(StorageFull):
            consumer.take()
        faults.heal()
        assert [each.body for each in consumer.take()] == [b"0"]
    check(crash)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"timeout": "1"}, {"limit": "1"}, {"sync": 1}])
def test_wrong_arguments_take_nothing(engine: Engine, wrong: dict[str, Any]) -> None:
    with engine.consumer("t", group="g") as consumer:
        with pytest.raises((BadOption, TypeError)):
            consumer.take(**wrong)
        assert len(consumer.take(limit=9)) == 4
    with pytest.raises(Closed):
        consumer.take()

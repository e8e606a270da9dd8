"""Bodies made by a function, a place that a person has chosen, and relays that stand by."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayBatch, RelayError, RelayTakenOver, StoreDiffers
from fmq.relay.lag_alarm import LOOK_SECONDS, LagAlarm
from fmq.relay.source import RelaySource
from fmq.relay.turn import BEAT_SECONDS, SILENT_SECONDS, RelayTurn
from fmq.testing import CrashDisk, FakeClock
from tests.relay.systems import Table, TableTarget


def offsets(table: Table) -> list[int]:
    return [offset for _, _, offset in table.shown()]


def relayed(engine: Any, table: Table, **more: Any) -> Relay:
    relay = Relay(engine, table.target(), topics=["t"], name="n", **more)
    relay.run(once=True)
    return relay


def fill(engine: Engine, count: int = 3) -> None:
    for number in range(count):
        engine.send("t", b"%d" % number)


# --- bodies ---------------------------------------------------------------------------------------


def test_a_function_makes_the_bodies_and_what_it_fails_for_is_refused(engine: Engine) -> None:
    fill(engine)
    bodies: list[bytes] = []

    class Keeps(TableTarget):
        def deliver(self, batch: RelayBatch) -> None:
            super().deliver(batch)
            bodies.extend(each.body for each in batch.messages)

    def encode(message: fmq.Message) -> bytes:
        if message.body == b"1":
            raise ValueError("not one")
        return b"<" + message.body + b">"

    def relay(**how: Any) -> Relay:
        return Relay(engine, Keeps(table.kept), topics="t", name="n", encode=encode, **how)

    table = Table()
    with pytest.raises(MessageRefused, match="ValueError not one"):
        relay().run(once=True)
    assert bodies == []
    relay(on_refused="park").run(once=True)
    assert bodies == [b"<0>", b"", b"<2>"]
    assert [each.body for each in engine.dead_letters("relay-n").list()] == [b"1"]


# --- a place that a person has chosen -------------------------------------------------------------


def begun(engine: Any, table: Table, position: int, **how: Any) -> None:
    Relay(engine, table.target(), topics=["t"], name="n").begin_at(position, **how)


def test_a_new_relay_may_begin_at_the_end(engine: Engine) -> None:
    fill(engine)
    table = Table()
    begun(engine, table, engine.stats().position)
    fill(engine, 2)
    relayed(engine, table)
    assert offsets(table) == [3, 4]
    with pytest.raises(RelayError, match="has a place already"):
        begun(engine, table, 0)
    with pytest.raises(fmq.BadOption, match="the journal does not have it"):
        begun(engine, table, engine.stats().position + 1)


def test_a_target_of_another_directory_is_adopted_by_a_person_alone(engine: Engine) -> None:
    table, strange = Table(), CrashDisk()
    strange.random(16)  # so that its directory has another id
    fill(engine)
    relayed(engine, table)
    with fmq.open("other", disk=strange) as other:
        fill(other, 2)
        with pytest.raises(StoreDiffers):
            relayed(other, table)
        begun(other, table, 0, adopt=True)
        relayed(other, table)
    assert offsets(table) == [0, 1, 2, 0, 1]


def test_a_target_that_was_emptied_gets_all_that_is_left(engine: Engine) -> None:
    fill(engine)
    relayed(engine, Table())
    table = Table()
    with pytest.raises(StoreDiffers, match="its place was lost"):
        relayed(engine, table)
    begun(engine, table, 0)
    relayed(engine, table)
    assert offsets(table) == [0, 1, 2]


# --- standing by ----------------------------------------------------------------------------------


class Ticking(Event):
    """An event whose waits take no time: its clock goes on instead. `meanwhile` is what happens."""

    def __init__(self, meanwhile: Callable[[float], None] = lambda _: None) -> None:
        super().__init__()
        self.time = 0.0
        self.meanwhile = meanwhile

    def now(self) -> float:
        return self.time

    def wait(self, timeout: float | None = None) -> bool:
        self.time += timeout or 0.0
        self.meanwhile(self.time)
        return self.is_set()


def turn(engine: Engine, ticking: Ticking) -> RelayTurn:
    return RelayTurn(engine, "n", ticking, ticking.now)


def test_a_relay_waits_until_the_other_one_is_silent(engine: Engine) -> None:
    first_clock = Ticking()
    first = turn(engine, first_clock)
    assert first.wait()

    def beat(now: float) -> None:
        if now < 30:
            first_clock.time = now
            first.keep()

    second_clock = Ticking(beat)
    second = turn(engine, second_clock)
    assert second.wait()
    assert 30 + SILENT_SECONDS - BEAT_SECONDS - 1 <= second_clock.time <= 31 + SILENT_SECONDS
    first_clock.time = second_clock.time
    with pytest.raises(RelayTakenOver, match="too silent"):
        first.keep()


def test_of_two_that_find_the_turn_free_one_has_it(engine: Engine) -> None:
    first = turn(engine, Ticking())
    assert first.wait()
    first.leave()
    second, third = turn(engine, Ticking()), Ticking()
    assert second.wait()
    assert third.time == 0.0
    third.meanwhile = lambda now: second.leave() if now > 3 else None
    assert turn(engine, third).wait()
    assert 3 < third.time < 5


def test_a_relay_that_waits_for_its_turn_can_be_stopped(engine: Engine) -> None:
    assert turn(engine, Ticking()).wait()
    clock = Ticking(lambda now: clock.set())
    assert not turn(engine, clock).wait()


def test_a_standby_relay_copies_when_the_other_one_has_ended(tmp_path: Any) -> None:
    """And not before: its target would refuse the other one."""
    table = Table()
    claims: list[str] = []

    class Target(TableTarget):
        def __init__(self, name: str) -> None:
            super().__init__(table.kept)
            self.name = name
            self.has_claimed = Event()

        def claim(self) -> Any:
            claims.append(self.name)
            self.has_claimed.set()
            return None if not stored else stored[-1].place

        def deliver(self, batch: RelayBatch) -> None:
            stored.append(batch)
            if batch.messages[-1].body == b"last":
                done.set()

    stored: list[RelayBatch] = []
    done = Event()
    with fmq.open(tmp_path) as engine:
        engine.create_topic("t")
        relays, threads = [], []
        for name in ("a", "b"):
            target = Target(name)
            relay = Relay(engine, target, topics="t", name="n", standby=True)
            threads.append(Thread(target=relay.run))
            relays.append(relay)
            threads[-1].start()
            if name == "a":
                assert target.has_claimed.wait(60)
        engine.send("t", b"first")
        relays[0].stop()
        threads[0].join()
        assert target.has_claimed.wait(60)
        engine.send("t", b"last")
        assert done.wait(60)
        relays[1].stop()
        threads[1].join()
    assert claims == ["a", "b"]
    assert [each.body for batch in stored for each in batch.messages] == [b"first", b"last"]


def test_a_standby_relay_that_was_shut_out_waits_again(engine: Engine) -> None:
    """A program that knows no turns has claimed the target."""
    fill(engine)
    table = Table()

    class Overtaken(TableTarget):
        times = 1

        def deliver(self, batch: RelayBatch) -> None:
            if self.times:
                self.times -= 1
                TableTarget(table.kept).claim()
                relay.stop()
            super().deliver(batch)

    relay = Relay(engine, Overtaken(table.kept), topics="t", name="n", standby=True)
    relay.run(once=True)
    assert (relay.stats().fences, offsets(table)) == (1, [])


# --- an alarm -------------------------------------------------------------------------------------


def test_a_relay_that_is_late_says_so_once_and_when_it_is_not_late_any_more(
    engine: Engine, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(engine)
    source, now = RelaySource(engine, ["t"], "relay-n"), [0.0]
    alarm = LagAlarm(source, 60, lambda: now[0])

    def said() -> list[str]:
        now[0] += LOOK_SECONDS
        alarm.look()
        alarm.look()  # it looks once a second
        return [record.message.partition(":")[0] for record in caplog.records]

    clock.advance(59)
    assert said() == []
    clock.advance(1)
    assert said() == said() == ["the relay is behind"]
    assert "3 messages are not copied, the oldest of them for 60 s" in caplog.text
    relay = Relay(engine, Table().target(), topics="t", name="n", alarm_seconds=60)
    assert relay.stats().late
    relay.run(once=True)
    assert not relay.stats().late
    assert len(said()) == len(said()) == 3  # the relay itself has warned, too
    assert "less than 60 s behind" in caplog.records[-1].message

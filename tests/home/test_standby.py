"""A machine that stands by follows the home, and takes over by filling the very next slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fmq
from fmq.errors import HomeRefused, Locked, TakenOver
from fmq.home.home_follower import HomeFollower
from fmq.home.home_log import LOOKS_AT_FLOOR
from fmq.server.beats import Beats
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import FakeLoop
from tests.home.machines import OPTIONS, Machine, begun, check


def follower_of(machine: Machine, clock: FakeClock) -> HomeFollower:
    return HomeFollower(machine.disk, "data", machine.log(), clock)


def opened(machine: Machine, follower: HomeFollower) -> fmq.Engine:
    disk = follower.disk_to_take_over()
    machine.engine = fmq.open("data", OPTIONS, disk=disk, clock=FakeClock(), background=False)
    return machine.engine


def test_silence_is_counted_from_the_last_entry() -> None:
    _, first, second = begun()
    clock = FakeClock()
    follower = follower_of(second, clock)
    assert follower.look() == 0
    clock.advance(5)
    assert follower.look() == 5
    first.send(b"more")
    assert follower.look() == 0
    clock.advance(5)
    assert not follower.is_free
    first.owner.beat()
    assert follower.look() == 0
    follower.close()
    first.close()


def test_who_takes_over_has_all_and_the_owner_is_fenced() -> None:
    home, first, second = begun()
    follower = follower_of(second, FakeClock())
    for number in range(30):
        first.work(b"%d" % number)
        follower.look()
    assert len(follower._log.history.kinds) < 10, "what lies below the floor is forgotten"
    opened(second, follower)
    first.send(b"late")
    assert first.refused == [b"late"]
    second.work(b"second")
    check(home, first, second)


def test_of_two_that_stand_by_one_takes_over() -> None:
    home, first, second = begun()
    third = Machine(home, 3)
    followers = [follower_of(each, FakeClock()) for each in (second, third)]
    for each in followers:
        each.look()
    opened(second, followers[0])
    with pytest.raises(TakenOver):
        opened(third, followers[1])
    second.work(b"second")
    check(home, first, second)


def test_an_owner_that_is_heard_again_is_not_taken_over_from() -> None:
    home, first, second = begun()
    follower = follower_of(second, FakeClock())
    follower.look()
    first.send(b"here I am")
    with pytest.raises(TakenOver):
        opened(second, follower)
    first.send(b"still")
    assert not first.refused
    check(home, first)


def test_an_owner_that_ends_says_so_if_somebody_stands_by() -> None:
    _, first, second = begun()
    follower = follower_of(second, FakeClock())
    first.owner.beat()
    follower.look()
    first.engine.close()
    for _ in range(LOOKS_AT_FLOOR):  # the slot after its last entry may have been freed
        follower.look()
    assert follower.is_free
    follower.close()


def test_an_owner_that_nobody_watches_ends_without_a_word() -> None:
    home, first, _ = begun()
    before = len(home)
    first.engine.close()
    assert len(home) <= before + 1  # the CHECKPOINT of closing may be one


def test_a_home_that_nobody_has_opened_is_free() -> None:
    machine = Machine({}, 1)
    follower = follower_of(machine, FakeClock())
    follower.look()
    assert follower.is_free
    opened(machine, follower)
    machine.work(b"first")
    check(machine.objects.objects, machine)


def test_a_directory_stands_by_once_and_only_as_a_cache() -> None:
    _, first, second = begun()
    follower = follower_of(second, FakeClock())
    with pytest.raises(Locked):
        follower_of(second, FakeClock())
    follower.close()
    with fmq.open("own", OPTIONS, disk=second.disk, clock=FakeClock(), background=False) as engine:
        engine.send("t", b"1")
    with pytest.raises(HomeRefused, match="has a journal of its own"):
        HomeFollower(second.disk, "own", second.log(), FakeClock())
    first.close()


def test_an_owner_says_where_it_serves_and_the_last_word_counts() -> None:
    home, first, second = begun()
    follower = follower_of(second, FakeClock())
    follower.look()
    assert "address" not in follower.owner
    first.owner.publish("tcp://one:1")
    first.owner.publish("tcp://two:2")
    follower.look()
    assert follower.owner["address"] == "tcp://two:2"
    assert len([key for key in home if key.startswith("owners/")]) == 1
    follower.close()
    first.close()


def test_signs_of_life_end_when_nobody_asks_any_more() -> None:
    clock = FakeClock()
    loop = FakeLoop(clock)
    beaten: list[float] = []

    def apart(work, then) -> None:
        work()
        then(None, None)

    beats = Beats(
        loop, clock.monotonic, apart, lambda quiet: beaten.append(clock.monotonic()), lambda: None
    )
    began = clock.monotonic()
    beats.ask(2.0, 7.0)
    while loop.step():
        pass
    assert [round(each - began) for each in beaten] == [0, 2, 4, 6, 8]


def test_an_owner_that_pauses_in_a_sign_of_life_gives_another_one() -> None:
    """The answer to the first one came before the pause. So only another one shows what was
    meanwhile.
    """
    clock = FakeClock()
    loop = FakeLoop(clock)
    beaten: list[float] = []

    def apart(work, then) -> None:
        work()
        clock.advance(60)
        then(None, None)

    def beat(quiet: float) -> None:
        beaten.append(quiet)

    Beats(loop, clock.monotonic, apart, beat, lambda: None).ask(2.0, 7.0)
    while loop.step():
        pass
    assert len(beaten) == 2


def test_an_owner_without_a_confirmed_sign_of_life_hands_out_nothing() -> None:
    """Another machine may hand the same messages out by then."""
    clock = FakeClock()
    loop = FakeLoop(clock)
    answers: list[Callable[[object, None], None]] = []
    with fmq.open("data", OPTIONS, disk=CrashDisk(), clock=clock, background=False) as engine:
        parts = inside(engine)

        def owned_until(until: float) -> None:
            with parts.lock:
                parts.groups.hand_out_until(until, clock.monotonic())

        def apart(work: object, then: Callable[[object, None], None]) -> None:
            answers.append(then)

        beats = Beats(loop, clock.monotonic, apart, print, print, owned_until)
        engine.send_many("t", [b"1", b"2", b"3"])
        consumer = engine.consumer(group="g", topics="t")
        beats.ask(2.0, 60.0)

        def polled() -> list[bytes]:
            return [bytes(each.body) for each in consumer.poll(limit=1, timeout=0)]

        assert polled() == [b"1"]
        clock.advance(7)
        assert polled() == []
        answers.pop()(None, None)
        assert polled() == [], "this sign of life was begun 7 seconds ago"
        loop.step()
        answers.pop()(None, None)
        assert polled() == [b"2"]
        beats.ask(2.0, 0.0)
        clock.advance(100)
        loop.step()
        answers.pop()(None, None)
        assert polled() == [b"3"], "nobody asks any more"


def test_a_sign_of_life_that_is_refused_ends_the_server() -> None:
    clock = FakeClock()
    failed: list[bool] = []

    def apart(work, then) -> None:
        then(None, TakenOver("fake://home", "another machine"))

    beats = Beats(
        FakeLoop(clock), clock.monotonic, apart, lambda quiet: None, lambda: failed.append(True)
    )
    beats.ask(1.0, 5.0)
    assert failed == [True]

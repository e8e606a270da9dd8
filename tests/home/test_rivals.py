"""Machines that share a home are paused at each of their calls to it, and others go on meanwhile.

The pauses are exhaustive, as the model's are (test_protocol_model.py), but this is fmq's own code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Event, Thread

import pytest

from fmq.errors import EngineFailed, FmqError, HomeRefused
from fmq.home.home_cache import HomeCache
from fmq.home.home_calls import slot_key
from tests.home.machines import Machine, begun, check, overtake_at


def pauses(tell: Callable[[int], bool]) -> int:
    """Call `tell` with 0, 1, ... until no call of the paused machine has that number."""
    for number in count():
        if not tell(number):
            return number
    raise AssertionError


def test_an_owner_that_is_paused_at_any_call_acknowledges_nothing_that_is_lost() -> None:
    """While it pauses, another machine takes over, works, and frees slots."""

    def tell(number: int) -> bool:
        home, first, second = begun()

        def others() -> None:
            second.open()
            second.work(b"second")
            second.engine.checkpoint()

        first.at_call(first.objects.calls + number, others)
        first.work(b"paused")
        first.work(b"later")
        if hasattr(second, "engine"):
            assert b"later second" in first.refused
            second.work(b"after")
        check(home, first, second)
        return hasattr(second, "engine")

    assert pauses(tell) > 25


def test_a_machine_that_is_paused_while_it_takes_over_begins_again() -> None:
    """While it pauses, the owner goes on and frees the slots that were just read or found empty."""

    def tell(number: int) -> bool:
        home, first, second = begun()
        paused: list[int] = []

        def others() -> None:
            paused.append(number)
            first.work(b"meanwhile")
            with suppress(EngineFailed):
                first.engine.checkpoint()

        second.at_call(number, others)
        second.open()
        second.work(b"second")
        first.work(b"last")
        check(home, first, second)
        return bool(paused)

    assert pauses(tell) > 10


def test_two_machines_are_paused_while_they_take_over() -> None:
    """The second is paused in its take-over, and a third inside of that, while the owner works."""
    paused: set[tuple[int, int]] = set()
    for outer in range(4, 16):
        for inner in range(4, 14, 2):
            home, first, second = begun()
            third = Machine(home, 3)

            def owner(first: Machine = first, at: tuple[int, int] = (outer, inner)) -> None:
                paused.add(at)
                first.work(b"meanwhile")
                with suppress(EngineFailed):
                    first.engine.checkpoint()

            def others(third: Machine = third, inner: int = inner, owner=owner) -> None:
                third.at_call(inner, owner)
                third.open()
                third.work(b"third")

            second.at_call(outer, others)
            second.open()
            second.work(b"second")
            first.work(b"last")
            check(home, first, second, third)
    assert len(paused) > 10


def test_slots_that_were_freed_while_they_were_read_are_not_the_end() -> None:
    """Rule 3: the floor is looked at after reading, not before."""
    _, first, second = begun()

    reads = count(1)

    def others(what: str) -> None:
        # The first read leads to the floor. The second one is that of the slots after the floor.
        if what.startswith("read slots") and next(reads) == 2:
            first.work(b"meanwhile")
            first.engine.checkpoint()

    second.objects.before = others
    log = second.log()
    log.follow(HomeCache(second.disk.directory("data", make=True), "fake://home"))
    assert log.history.next == first.home_log.history.next
    assert log.history.position == first.home_log.history.position
    first.close()


def test_a_fenced_owner_leaves_the_newer_floor_alone() -> None:
    """It raises its own floor late, and removes only what is older than that."""
    home, first, second = begun()
    overtake_at("names floors", first, second)
    newest = max(key for key in home if key.startswith("floors/"))
    first.engine.close()
    assert newest in home
    check(home, first, second)


@pytest.mark.parametrize("lost", ["lost_answers", "lost_calls"])
def test_each_call_may_stay_without_an_answer(lost: str) -> None:
    """Then the home is asked again, and what is there is compared. Nothing is sent twice."""
    home, first, _ = begun()
    for number in range(first.objects.calls, first.objects.calls + 40):
        getattr(first.objects, lost).add(number)
        first.work(b"%d" % number)
    assert not first.refused
    check(home, first)


def test_a_home_without_an_answer_ends_the_engine_and_loses_nothing() -> None:
    home, first, _ = begun()
    first.objects.lost_calls.update(range(first.objects.calls, first.objects.calls + 9999))
    with pytest.raises(EngineFailed, match="no answer in 5 s"):
        first.engine.send("t", b"unknown")
    check(home, first)


def test_a_storage_that_ignores_conditions_is_refused() -> None:
    machine = Machine({}, 1)
    machine.objects.honours_conditions = False
    with pytest.raises(HomeRefused, match="ignores conditions"):
        machine.open()
    assert not machine.disk.files("data").keys() - {"LOCK"}


def test_a_slot_that_was_freed_and_filled_again_says_nothing_of_what_was_there() -> None:
    """The owner has no answer to an entry that the next owner counts and frees. Then a third one
    fills the slot, which it has found empty before.
    """
    home, first, second = begun()
    third, met = Machine(home, 3), list[FmqError]()
    key = slot_key(first.owner.history.next)
    landed, filled = Event(), Event()

    def send() -> None:
        try:
            first.engine.send("t", b"counted")
        except FmqError as error:
            met.append(error)

    def of_first(what: str) -> None:
        if what == f"read {key}":
            landed.set()
            assert filled.wait(60)

    def of_third(what: str) -> None:
        if what == f"create {key}" and not landed.is_set():
            first.objects.lost_answers.add(first.objects.calls)
            first.objects.before = of_first
            sender.start()
            assert landed.wait(60)
            second.open()
            second.work(b"second")

    def after_third(what: str) -> None:
        if what == f"create {key}":
            filled.set()
            sender.join(60)

    sender = Thread(target=send)
    third.objects.before, third.objects.after = of_third, after_third
    third.open()
    assert [type(each) for each in met] == [EngineFailed], "it was told that it was not sent"
    first.acked.append(b"counted")
    check(home, first, second, third)

"""Two entries are on their way: the second is in the home, and the first is not."""

from __future__ import annotations

from signal import SIGUSR1, raise_signal, signal
from threading import Event, Thread
from types import FrameType

import pytest

from fmq.errors import EngineFailed, FmqError, Nested
from fmq.home.home_calls import slot_key
from fmq.testing.inside import inside
from tests.home.machines import Machine, begun, check


def bodies(machine: Machine) -> list[bytes]:
    return [bytes(each.body) for each in machine.engine.read("t", offset=0, limit=999)]


def test_both_are_acknowledged_in_order() -> None:
    home, first, _ = begun()
    shown: list[list[bytes]] = []
    first.send_two(b"one", b"two", lambda: shown.append(bodies(first)))
    assert shown == [[b"begun first", b"begun second"]], "the second is shown before the first"
    assert bodies(first)[2:] == [b"one", b"two"]
    check(home, first)


def test_the_first_is_shown_without_the_second() -> None:
    """The entry of the second is on its way for longer."""
    home, first, _ = begun()
    n, begins, goes_on = first.owner.history.next, Event(), Event()
    other = Thread(target=first.send, args=(b"two",))

    def before(what: str) -> None:
        if what == f"create {slot_key(n)}":
            other.start()
            assert begins.wait(60)
        elif what == f"create {slot_key(n + 1)}":
            begins.set()
            assert goes_on.wait(60)

    first.objects.before = before
    first.send(b"one")
    assert bodies(first)[2:] == [b"one"]
    goes_on.set()
    other.join()
    assert bodies(first)[2:] == [b"one", b"two"]
    check(home, first)


@pytest.mark.parametrize("lost", [(), (0,), (1,), (0, 1)])
def test_another_machine_takes_over_below_the_second(lost: tuple[int, ...]) -> None:
    """Its OWN lies before what the paused owner has put, which is dead. It is not taken for an
    entry of one that has taken over from the new owner, and goes with the next floor.
    """
    home, first, second = begun()

    def others() -> None:
        second.open()
        second.send(b"second")

    first.objects.lost_answers.update(first.objects.calls + each for each in lost)
    first.send_two(b"one", b"two", others)
    assert {*first.refused} == {b"one", b"two"}
    second.send_two(b"three", b"four")
    second.engine.checkpoint()
    second.send_two(b"five", b"six")
    assert not second.refused
    check(home, first, second)


def test_another_machine_takes_over_before_both() -> None:
    """What the paused owner has on its way finds both slots filled."""
    home, first, second = begun()
    n, met = first.owner.history.next, Event()
    other = Thread(target=first.send, args=(b"two",))

    def before(what: str) -> None:
        if what == f"create {slot_key(n)}":
            other.start()
            assert met.wait(60)
        elif what == f"create {slot_key(n + 1)}" and not met.is_set():
            second.open()
            second.work(b"second")
            met.set()

    first.objects.before = before
    first.send(b"one")
    other.join()
    assert len(first.refused) == 2
    check(home, first, second)


def test_a_machine_that_is_lost_leaves_neither() -> None:
    """Nobody was told that the second is there, because the first is not."""
    home, first, _ = begun()
    left: dict[str, bytes] = {}
    first.send_two(b"one", b"two", lambda: left.update(home))
    first.close()
    for number in (3, 4):
        machine = Machine(left, number)
        machine.open()
        machine.work(b"%d" % number)
        machine.send_two(b"%d a" % number, b"%d b" % number)
        found = bodies(machine)
        assert b"one" not in found
        assert b"two" not in found
        assert found[-1] == b"%d b" % number
        machine.close()


@pytest.mark.parametrize("lost", ["lost_answers", "lost_calls"])
def test_answers_of_either_may_be_lost(lost: str) -> None:
    home, first, _ = begun()
    for number in range(8):
        getattr(first.objects, lost).add(first.objects.calls + number % 3)
        first.send_two(b"%d a" % number, b"%d b" % number)
    assert not first.refused
    check(home, first)


def test_no_third_entry_is_begun() -> None:
    """It could land behind what a new owner looks at."""
    home, first, _ = begun()
    n = first.owner.history.next
    third = Thread(target=first.owner.beat)
    seen: list[bool] = []

    def others() -> None:
        third.start()
        third.join(0.2)
        seen.append(slot_key(n + 2) in home)

    first.send_two(b"one", b"two", others)
    third.join()
    assert seen == [False]
    assert bodies(first)[2:] == [b"one", b"two"]
    check(home, first)


def test_a_signal_handler_cannot_call_an_engine_that_waits_for_the_home() -> None:
    """Its append would wait for that which it has interrupted."""
    home, first, _ = begun()
    met: list[str] = []

    def others() -> None:
        try:
            first.engine.send("t", b"handler")
        except Nested:
            met.append("nested")

    first.send_two(b"one", b"two", others)
    assert met == ["nested"]
    check(home, first)


def test_a_signal_handler_cannot_send_while_its_thread_raises_the_floor() -> None:
    """Its entry would wait for that of the floor, and so for the call that it has interrupted."""
    home, first, _ = begun()
    met: list[str] = []

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            first.send(b"handler")
        except Nested:
            met.append("nested")

    def before(what: str) -> None:
        if what == f"create {slot_key(first.owner.history.next)}" and not met:
            met.append("begun")
            raise_signal(SIGUSR1)

    first.send(b"one")
    earlier = signal(SIGUSR1, handler)
    first.objects.before = before
    try:
        first.engine.checkpoint()
    finally:
        signal(SIGUSR1, earlier)
    assert met == ["begun", "nested"]
    first.send(b"two")
    assert bodies(first)[2:] == [b"one", b"two"]
    check(home, first)


def test_a_machine_that_is_fenced_in_a_roll_says_that_the_outcome_is_unknown() -> None:
    """What it wrote to the old segment is there, and the new segment is not."""
    home, first, second = begun()
    first.send(b"x" * 2000)
    met: list[Exception] = []

    def send(body: bytes) -> None:
        try:
            first.engine.send("t", body)
        except FmqError as error:
            met.append(error)

    others = [Thread(target=send, args=(body,)) for body in (b"old segment", b"y" * 3000)]
    parts, n = inside(first.engine), first.owner.history.next

    def before(what: str) -> None:
        if what == f"create {slot_key(n + 1)}":  # behind the header of the second segment
            for each in others:
                planned = parts.journal.position
                each.start()
                while parts.journal.position == planned:
                    each.join(0.001)
        elif what == f"create {slot_key(n + 3)}" and not hasattr(second, "engine"):
            second.open()

    first.objects.before = before
    first.send(b"z" * 3000)
    for each in others:
        each.join()
    assert [type(each) for each in met] == [EngineFailed] * 2
    assert "outcome" in str(met[0])
    assert bodies(second)[-1] == b"old segment"
    first.close()
    second.close()


def test_what_a_signal_handler_raises_is_not_the_error_of_later_calls() -> None:
    home, first, _ = begun()

    def handler(number: int, frame: FrameType | None) -> None:
        first.engine.send("t", b"handler")  # raises Nested, and lets it pass

    def before(what: str) -> None:
        if what.startswith("create slots/"):
            first.objects.before = lambda what: None
            raise_signal(SIGUSR1)

    first.send(b"one")
    earlier = signal(SIGUSR1, handler)
    first.objects.before = before
    try:
        with pytest.raises(Nested):
            first.engine.checkpoint()
    finally:
        signal(SIGUSR1, earlier)
    with pytest.raises(EngineFailed, match="interrupted"):
        first.engine.send("t", b"two")
    first.close()
    second = Machine(home, 2)
    second.open()
    assert bodies(second)[-1] == b"one"
    second.close()

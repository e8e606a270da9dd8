"""An interrupt or a failure at any line of the commit queue: no call hangs, and none gets a wrong
answer.

Each test runs one thread, the victim, in one of the roles that there are, and does something
at every line of fmq/store/journal/commit_queue.py that it comes to: first at line 0, then at
line 1, and so on until it gets through. After each time every other call has its one answer,
what was acknowledged is durable, and the engine has failed or goes on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest

from fmq.basics.lock_owner import is_mine
from fmq.errors import BadName, EngineFailed, Nested
from fmq.store.journal import commit_queue as commit_queue_module
from fmq.testing import CrashDisk, FaultDisk
from tests.interrupts import PATIENCE_SECONDS
from tests.store.journals import failing
from tests.store.lines import Lines, at_each_line
from tests.store.sharing import Call, Shared

Watch = Callable[[Callable[[], object]], object]
Role = Callable[[Shared, Watch], list[Call]]


def alone(shared: Shared, watch: Watch) -> list[Call]:
    return [shared.call(lambda: watch(lambda: shared.send("victim")))]


def leader(shared: Shared, watch: Watch) -> list[Call]:
    """Others plan while the victim writes; one of them is its heir."""
    with shared.writing(lambda: watch(lambda: shared.send("victim"))) as victim:
        others = shared.waiting("heir", "served", "served, too")
    return [victim, *others]


def heir(shared: Shared, watch: Watch) -> list[Call]:
    """Return calls of which the victim gets the lead. Its write serves those that come after it."""
    with shared.writing(lambda: shared.send("first")) as first:
        victim = shared.call(lambda: watch(lambda: shared.send("victim")))
        shared.wait_for_plan(victim)
        others = shared.waiting("served", "served, too")
    return [first, victim, *others]


def served(shared: Shared, watch: Watch) -> list[Call]:
    """Another one gets the lead, and the victim is served by its write."""
    with shared.writing(lambda: shared.send("first")) as first:
        others = shared.waiting("heir")
        victim = shared.call(lambda: watch(lambda: shared.send("victim")))
        shared.wait_for_plan(victim)
    return [first, victim, *others]


def committer(shared: Shared, watch: Watch) -> list[Call]:
    """The victim leads for others, and then for those who planned meanwhile."""
    lead = shared.queue.lead_for_others
    shared.queue.lead_for_others = lambda me: watch(lambda: lead(me))  # type: ignore[method-assign, assignment]
    with shared.writing(lambda: shared.send("first")) as first:
        others = shared.waiting("served", "served, too")
        shared.gate.let_one_pass()
        first.ended()
        shared.wait_for_a_write(others[0])
        others += shared.waiting("next")
    return [first, *others]


def refused(shared: Shared, watch: Watch) -> list[Call]:
    """The victim's plan is refused while another one writes."""

    def plan(_: None) -> None:
        raise BadName("no")

    with shared.writing(lambda: shared.send("first")) as first:
        victim = shared.call(lambda: watch(lambda: shared.queue.run(plan, None)))
        victim.ended()
    return [first, victim]


def without_waiting(shared: Shared, watch: Watch) -> list[Call]:
    return [shared.call(lambda: watch(lambda: shared.send("victim", wait=False)))]


ROLES = [alone, leader, heir, served, refused, without_waiting]
UNSHARED = [refused, without_waiting]
BY_HAND_OFF = [(role, False) for role in ROLES]
BY_A_COMMITTER = [(role, True) for role in (*ROLES, committer)]


def each_line() -> Iterator[Lines]:
    """An interrupt at every second line of the queue, with FMQ_BUDGET=2 at each."""
    return at_each_line(lambda at: Lines(commit_queue_module, at), every=2)


@pytest.mark.parametrize(("role", "led"), BY_HAND_OFF + BY_A_COMMITTER)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("far", [False, True])
def test_an_interrupt_at_any_line_causes_no_hang_or_false_success(
    role: Role, led: bool, far: bool, fails: bool
) -> None:
    """Test with a working disk, and with one whose writes fail from the second one on."""
    for lines in each_line():
        faults = FaultDisk(CrashDisk())
        shared = Shared(faults, committer=led, far=far)
        if fails:
            faults.fail("write", nth=1, error=errno.EIO, names="*.seg", persistently=True)
        calls = in_time(role, shared, lines)
        verify(shared, calls, lines)
        shared.let_go()
    assert lines.count > 5, "the victim ran no lines"


@pytest.mark.parametrize(
    ("role", "led"),
    [(role, led) for role, led in BY_HAND_OFF + BY_A_COMMITTER if role not in UNSHARED],
)
def test_an_engine_failure_at_any_line_is_not_reported_as_success(role: Role, led: bool) -> None:
    """Fail the engine at each line of the victim where the lock is free. The victim goes on."""
    for lines in each_line():
        shared = Shared(committer=led)

        def fail(shared: Shared = shared) -> None:
            if not is_mine(shared.lock) and shared.lock.acquire(blocking=False):
                shared.queue.fail(ZeroDivisionError())
                shared.lock.release()

        lines.act = fail
        calls = in_time(role, shared, lines)
        verify(shared, calls, lines)
        shared.let_go()


def test_a_signal_handler_that_sends_during_a_send_does_not_hang() -> None:
    """At each line the handler's send succeeds or raises Nested. The other send goes on."""
    for lines in each_line():
        shared = Shared()
        told: list[BaseException | None] = []

        def handle(shared: Shared = shared, told: list[BaseException | None] = told) -> None:
            told.append(failing(lambda: shared.send("handler")))

        lines.act = handle
        victim = shared.call(lambda: lines.run(lambda: shared.send("victim")))  # noqa: B023
        try:
            assert victim.ended() == "victim", lines.met
        except AssertionError as error:
            raise AssertionError(f"{error} after {lines.met}") from error
        assert all(each is None or isinstance(each, Nested) for each in told), (told, lines.met)
        expected = {"victim", "handler"} if told == [None] else {"victim"}
        assert set(shared.durable()) == expected, lines.met
        shared.let_go()
    assert lines.count > 5, "the victim ran no lines"


def only_heir(shared: Shared, watch: Watch) -> list[Call]:
    with shared.writing(lambda: shared.send("first")) as first:
        victim = shared.call(lambda: watch(lambda: shared.send("victim")))
        shared.wait_for_plan(victim)
    return [first, victim]


def test_an_interrupted_waiter_leaves_its_append_to_the_background() -> None:
    """The append stands although its caller is gone: the background thread is notified of it."""
    left = 0
    for lines in each_line():
        shared, told = Shared(), False

        def tell() -> None:
            nonlocal told
            told = True

        shared.queue.on_pending = tell
        for call in in_time(only_heir, shared, lines):
            call.ended()
        if not shared.queue.broken() and not shared.queue.idle():
            left += 1
            assert told, lines.met
        shared.let_go()
    assert left


def in_time(role: Role, shared: Shared, lines: Lines) -> list[Call]:
    """The calls that a role made; if it stands still, where the victim had been met."""
    try:
        return role(shared, lines.run)
    except AssertionError as error:
        raise AssertionError(f"{error} after {lines.met}") from error


def verify(shared: Shared, calls: list[Call], lines: Lines) -> None:
    """Check what must hold afterwards, whatever happened and wherever."""
    answers = []
    for call in calls:
        try:
            answers.append(call.ended())
        except AssertionError as error:
            raise AssertionError(f"{error} after {lines.met}") from error
    for answer in answers:
        known = (str, EngineFailed, KeyboardInterrupt, BadName)
        assert isinstance(answer, known), (answer, lines.met)
    free = shared.lock.acquire(timeout=PATIENCE_SECONDS)
    assert free, f"nobody lets go of the lock after {lines.met}"
    shared.lock.release()
    if not shared.queue.broken():
        after = shared.call(lambda: failing(lambda: shared.send("after"))).ended()
        assert after is None or isinstance(after, EngineFailed), (after, lines.met)
    durable = shared.durable()
    acknowledged = [answer for answer in answers if isinstance(answer, str)]
    if not shared.queue.broken():
        assert durable[-1] == "after", lines.met
        assert shared.queue.idle(), lines.met
        acknowledged.append("after")
    elif "victim" in acknowledged and "victim" not in durable:
        acknowledged.remove("victim")
        assert not shared.waited, f"the victim was told of success after {lines.met}"
    assert set(acknowledged) <= set(shared.published), (acknowledged, lines.met)
    assert set(shared.published) <= set(durable), lines.met
    assert len(durable) == len(set(durable)), lines.met


def test_the_interrupt_helper_stops_at_each_line_once() -> None:
    """Test the tool itself. Leaving a `with` block does not count as a line."""
    shared = Shared()
    seen = []
    for lines in each_line():
        lines.act = lambda: None
        shared.call(partial(lines.run, partial(shared.send, "x"))).ended()
        seen.append(lines.met)
    assert any("self._drive(" in line for line in seen)
    assert any("journal.write" in line for line in seen)
    assert not any("return plan()" in a and "return plan()" in b for a, b in pairwise(seen))

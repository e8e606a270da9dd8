"""Threads share syncs: each gets one answer, and what it was told is true."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from threading import get_ident
from typing import Any

import pytest

from fmq.errors import BadName, Closed, EngineFailed, Nested
from fmq.store.journal.callers import Waiter
from fmq.testing import CrashDisk, FaultDisk, PowerLoss
from fmq.testing.faults import Operation
from tests.store.journals import failing
from tests.store.sharing import Shared, texts_on

Share = Callable[..., Shared]


@pytest.fixture(params=[False, True], ids=["hand-off", "committer"])
def share(request: pytest.FixtureRequest) -> Iterator[Share]:
    """Groups whose threads hand the lead to each other, and groups that have a committer."""
    shared: list[Shared] = []

    def make(*args: Any, **options: Any) -> Shared:
        shared.append(Shared(*args, **options, committer=request.param))
        return shared[-1]

    yield make
    for group in shared:
        group.let_go()


def test_run_returns_when_its_append_is_durable_and_published(share: Share) -> None:
    shared = share()
    for text in "abc":
        assert shared.send(text) == text
        assert shared.durable()[-1] == text
        assert shared.published[-1] == text
    assert shared.queue.syncs == 3


def test_calls_that_plan_during_a_write_share_the_next_write(share: Share) -> None:
    shared = share()
    with shared.writing(lambda: shared.send("leader")) as leader:
        others = shared.waiting(*map(str, range(10)))
        assert shared.published == []
    assert leader.ended() == "leader"
    assert {other.ended() for other in others} == set(map(str, range(10)))
    assert shared.queue.syncs == 2
    assert sorted(shared.durable()) == sorted(shared.published)
    assert len(shared.published) == 11


def test_appends_are_published_in_the_order_of_the_journal(share: Share) -> None:
    shared = share()
    with shared.writing(lambda: shared.send("leader")):
        others = shared.waiting(*map(str, range(10)))
    for other in others:
        other.ended()
    assert shared.published == ["leader", *map(str, range(10))] == shared.durable()


def test_nothing_is_published_before_it_is_durable(share: Share) -> None:
    """durable_to does not move either: records planned meanwhile must not prove it durable."""
    shared = share()
    before = shared.journal.durable_to
    with shared.writing(lambda: shared.send("x")) as leader:
        assert shared.published == shared.durable() == []
        assert shared.journal.durable_to == before < shared.journal.position
    leader.ended()
    assert shared.journal.durable_to == shared.journal.position


def test_an_append_planned_during_a_write_is_not_durable_with_it(share: Share) -> None:
    shared = share()
    with shared.writing(lambda: shared.send("leader")) as leader:
        first_end = shared.journal.position
        (heir,) = shared.waiting("heir")
        shared.gate.let_one_pass()
        leader.ended()
        shared.wait_for_a_write(heir)
        assert shared.journal.durable_to == first_end < shared.journal.position
        assert shared.published == ["leader"]
    assert heir.ended() == "heir"


def test_a_call_that_does_not_wait_returns_before_its_write(share: Share) -> None:
    shared = share()
    assert shared.send("later", wait=False) == "later"
    assert (shared.published, shared.durable()) == ([], [])
    assert not shared.queue.idle()
    shared.send("now")
    assert shared.published == ["later", "now"] == shared.durable()
    assert shared.queue.idle()


def test_flush_makes_everything_planned_durable(share: Share) -> None:
    shared = share()
    shared.send("a", wait=False)
    shared.send("b", wait=False)
    shared.queue.flush()
    assert shared.published == ["a", "b"] == shared.durable()


def test_without_syncs_written_appends_are_published_and_force_syncs(
    share: Share,
) -> None:
    shared = share(synced=False)
    shared.send("a")
    assert (shared.published, shared.durable()) == (["a"], [])
    shared.send("b", force=True)
    assert shared.published == ["a", "b"] == shared.durable()
    assert shared.queue.syncs == 1


def test_without_syncs_durable_to_covers_sealed_segments(share: Share) -> None:
    shared = share(synced=False)
    for i in range(9):
        shared.send(str(i), size=900)
    current = shared.journal.current
    assert current.base > 0
    assert shared.journal.durable_to == current.base
    assert (
        shared.durable()
        == [text for text in shared.published if text in shared.durable()]
        == shared.published[: len(shared.durable())]
    )
    assert len(shared.durable()) >= 8


def test_a_plan_that_is_refused_changes_nothing(share: Share) -> None:
    shared, refusal = share(), BadName("no")

    def plan(_: None) -> None:
        raise refusal

    assert failing(lambda: shared.queue.run(plan, None)) is refusal
    assert shared.queue.idle()
    shared.send("goes on")
    assert shared.published == ["goes on"] == shared.durable()


def test_a_plan_refused_during_a_write_does_not_disturb_other_calls(share: Share) -> None:
    shared = share()

    def plan(_: None) -> None:
        raise BadName("no")

    with shared.writing(lambda: shared.send("a")) as leader:
        (waiter,) = shared.waiting("b")
        assert isinstance(shared.call(lambda: shared.queue.run(plan, None)).ended(), BadName)
    assert (leader.ended(), waiter.ended()) == ("a", "b")


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), KeyboardInterrupt(), MemoryError(), Nested()]
)
def test_an_unexpected_error_in_a_plan_ends_the_engine(share: Share, error: BaseException) -> None:
    """It is not known how far the plan came, so the state in memory is not to be trusted."""
    shared = share()

    def plan(_: None) -> None:
        raise error

    assert failing(lambda: shared.queue.run(plan, None)) is error
    assert isinstance(failing(lambda: shared.send("x")), EngineFailed)
    assert shared.published == []


def fail_in_plan(shared: Shared) -> None:
    def plan(_: None) -> None:
        raise ZeroDivisionError

    assert isinstance(shared.call(lambda: shared.queue.run(plan, None)).ended(), ZeroDivisionError)


def fail_from_outside(shared: Shared) -> None:
    with shared.lock:
        shared.queue.fail(ZeroDivisionError())


@pytest.mark.parametrize("fail", [fail_in_plan, fail_from_outside])
def test_waiting_calls_fail_if_the_engine_fails_during_a_write(
    share: Share,
    fail: Callable[[Shared], None],
) -> None:
    """Their appends are never written. The running write may still succeed."""
    shared = share()
    with shared.writing(lambda: shared.send("leader")) as leader:
        others = shared.waiting(*"abc")
        fail(shared)
    assert all(isinstance(other.ended(), EngineFailed) for other in others)
    acknowledged = [answer for answer in [leader.ended()] if isinstance(answer, str)]
    assert acknowledged == shared.published
    assert set(acknowledged) <= set(shared.durable()) <= {"leader"}


@pytest.mark.parametrize("fail", [fail_in_plan, fail_from_outside])
def test_a_write_error_after_the_engine_has_failed_is_engine_failed(
    share: Share,
    fail: Callable[[Shared], None],
) -> None:
    """Several threads may meet a dying disk, and the writer need not be the first to report it."""
    faults = FaultDisk(CrashDisk())
    shared = share(faults)
    with shared.writing(lambda: shared.send("leader")) as leader:
        fail(shared)
        faults.fail("write", names="*.seg")
    assert isinstance(leader.ended(), EngineFailed)
    assert shared.published == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_failure_behind_a_write_waits_for_it(share: Share, fails: bool) -> None:
    """Its callers are told what became of it, not of what came after it."""
    faults = FaultDisk(CrashDisk())
    shared = share(faults)
    with shared.writing(lambda: shared.send("first")) as first:
        served = shared.waiting("heir", "served", "served, too")
        shared.gate.let_one_pass()
        first.ended()
        shared.wait_for_a_write(served[0])
        behind = shared.call(lambda: shared.queue.fail_behind(get_ident(), ZeroDivisionError()))
        behind.join(0.05)
        assert not shared.queue.broken()
        if fails:
            faults.fail("write", names="*.seg")
    behind.ended()
    assert shared.queue.broken()
    assert [type(call.ended()) for call in served] == [EngineFailed if fails else str] * 3
    assert ("ZeroDivisionError" in str(failing(lambda: shared.send("x")))) is not fails


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_fails_the_engine_and_all_waiting_calls(share: Share, error: int) -> None:
    """Calls fail whose bytes were in the write, and calls that planned after it began."""
    faults = FaultDisk(CrashDisk())
    shared = share(faults)
    with shared.writing(lambda: shared.send("first")) as first:
        served = shared.waiting("heir", "served", "served, too")
        faults.fail("write", nth=1, error=error, names="*.seg")
        shared.gate.let_one_pass()
        first.ended()
        shared.wait_for_a_write(served[0])
        later = shared.waiting("later", "later, too")
    assert first.ended() == "first"
    for call in (*served, *later):
        answer = call.ended()
        assert isinstance(answer, EngineFailed), answer
    assert shared.queue.broken()
    assert isinstance(failing(lambda: shared.send("x")), EngineFailed)
    assert shared.published == ["first"] == shared.durable()


def test_engine_failed_says_what_went_wrong_and_what_to_do(share: Share) -> None:
    faults = FaultDisk(CrashDisk())
    shared = share(faults)
    faults.fail("write", names="*.seg")
    error = failing(lambda: shared.send("x"))
    assert isinstance(error, EngineFailed)
    assert isinstance(error.__cause__, OSError)
    for words in ("Input/output error", "outcome", "open"):
        assert words in str(error)


@pytest.mark.parametrize(
    ("operation", "names", "synced"),
    [
        ("sync", "*.seg", False),
        ("write", "*.spare*", True),
        ("sync", "*.spare*", True),
        ("rename", "*.spare*", True),
        ("directory sync", "*", True),
    ],
)
def test_a_failure_at_any_step_of_a_roll_ends_the_engine(
    share: Share, operation: Operation, names: str, synced: bool
) -> None:
    """Four notes fill a segment. The fifth needs the next one."""
    faults = FaultDisk(CrashDisk())
    shared = share(faults, synced=synced)
    shared.send("0", size=900)
    shared.journal.spares.make_ahead(zeros=True)
    faults.fail(operation, names=names)
    sent = ["0", *(shared.send(str(i), size=900) for i in range(1, 4))]
    assert isinstance(failing(lambda: shared.send("4", size=900)), EngineFailed)
    assert isinstance(failing(lambda: shared.send("5")), EngineFailed)
    assert shared.published == sent


def test_an_error_in_publication_ends_the_engine(share: Share) -> None:
    shared = share()

    def show(upto: int) -> None:
        raise ZeroDivisionError

    shared.queue._show = show
    assert isinstance(failing(lambda: shared.send("x")), ZeroDivisionError)
    assert isinstance(failing(lambda: shared.send("y")), EngineFailed)


def test_a_closed_commit_queue_refuses_with_its_reason(share: Share) -> None:
    shared = share()
    shared.send("x")
    refusal = Closed("gone fishing")
    with shared.lock:
        shared.queue.close(refusal)
    assert failing(lambda: shared.send("y")) is refusal
    assert not shared.queue.broken()


@contextmanager
def switching_often() -> Iterator[None]:
    """Threads are interrupted after a few lines, not only where they wait."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("seed", range(3))
def test_published_appends_of_many_threads_survive_a_power_loss(share: Share, seed: int) -> None:
    """Each call returns or raises EngineFailed. Whatever was published is durable, once and in
    order.

    Method: threads send, some without waiting, until the power fails at a random operation.
    """
    random = Random(seed)
    disk = CrashDisk(crash_at=random.randrange(40, 120))
    shared = share(disk)

    start = threading.Barrier(8)

    def work(name: int) -> list[str]:
        acknowledged: list[str] = []
        start.wait()
        draw = Random(seed * 100 + name)
        for i in range(200):
            try:
                text = shared.send(
                    f"{name}-{i}", wait=draw.random() < 0.8, size=draw.randrange(300)
                )
            except (EngineFailed, PowerLoss):
                return acknowledged
            acknowledged.append(text)
        raise AssertionError("the power never failed")

    with switching_often():
        calls = [shared.call(partial(work, name)) for name in range(8)]
        answers = [call.ended() for call in calls]
    assert all(isinstance(answer, list) for answer in answers), (seed, answers)
    published = set(shared.published)
    for loss_seed in range(5):
        durable = texts_on(disk.after_power_loss(loss_seed))
        assert published <= set(durable), (seed, loss_seed)
        assert len(durable) == len(set(durable))
        for name in range(8):
            own = [text for text in durable if text.startswith(f"{name}-")]
            assert own == [f"{name}-{i}" for i in range(len(own))], (seed, loss_seed)


def test_a_committer_woken_in_vain_does_not_write_beside_the_leader(share: Share) -> None:
    """An interrupted leader may wake it twice. By the second time another thread may lead."""
    shared = share()
    with shared.writing(lambda: shared.send("leader")) as leader:
        (waiter,) = shared.waiting("waits")
        woken = shared.call(lambda: shared.queue.lead_for_others(threading.get_ident()))
        assert woken.ended() is None
        assert shared.gate.waiting == 1
    assert (leader.ended(), waiter.ended()) == ("leader", "waits")


def test_a_stopped_committer_leaves_no_call_waiting() -> None:
    """Stop it while another thread writes, and while it writes itself."""
    shared = Shared(committer=True)
    with shared.writing(lambda: shared.send("leader")) as leader:
        others = shared.waiting(*"ab")
        shared.let_go()
    assert [call.ended() for call in (leader, *others)] == ["leader", "a", "b"]
    shared = Shared(committer=True)
    with shared.writing(lambda: shared.send("leader")) as leader:
        others = shared.waiting(*"ab")
        shared.gate.let_one_pass()
        leader.ended()
        shared.wait_for_a_write(others[0])
        others += shared.waiting(*"cd")
        stopped = shared.call(shared.let_go)
    assert [call.ended() for call in (*others, stopped)] == [*"abcd", None]


def test_sends_of_one_thread_start_no_other_thread(share: Share) -> None:
    shared = share()
    before = {*threading.enumerate()}
    for _ in range(5):
        shared.send("x")
    assert {*threading.enumerate()} <= before
    assert shared.queue.syncs == 5


def test_a_served_thread_may_call_again_before_it_has_left_the_queue() -> None:
    """Its second call is not taken for one that a signal handler makes inside the first."""
    shared, me = Shared(), threading.get_ident()
    queue = shared.queue
    shared.journal.pending.waiters.append(waiter := Waiter(me))
    with pytest.raises(Nested):
        queue.refuse_nested(me)
    waiter.serve(None)
    queue.refuse_nested(me)


# --- callers that are called back ---------------------------------------------------------------


def test_a_callback_is_called_once_when_its_append_is_durable() -> None:
    """Without a committer, the next flush writes appends with callbacks."""
    shared = Shared()
    pending: list[str] = []
    shared.queue.on_pending = lambda: pending.append("a write is needed")
    first, second = shared.submit("a"), shared.submit("b")
    assert pending
    assert (first.given, second.given, shared.published) == ([], [], [])
    shared.queue.flush()
    assert shared.published == ["a", "b"]
    assert shared.queue.syncs == 1
    shared.send("c")
    assert first.given == second.given == [(None, ["a", "b"])]


def test_the_committer_writes_appends_with_callbacks() -> None:
    """No thread of the caller has to wait or to write."""
    shared = Shared(committer=True)
    with shared.writing(lambda: shared.send("leader")) as leader:
        answers = shared.submit("called back")
        assert answers.given == []
    assert leader.ended() == "leader"
    shared.send("later")
    ((failure, durable),) = answers.given
    assert failure is None
    assert "called back" in durable
    shared.let_go()


def test_nothing_is_written_ahead_while_a_callback_waits() -> None:
    """It is synced with the rest, so that it is known what became of it."""
    shared = Shared()
    answers = shared.submit("waits")
    assert shared.queue.run(shared._plan(0), "ahead", ahead=True) == "ahead"
    assert answers.given == [(None, ["waits", "ahead"])]


def test_threads_and_callbacks_share_a_sync(share: Share) -> None:
    shared = share()
    with shared.writing(lambda: shared.send("leader")) as leader:
        answers = [shared.submit("a"), shared.submit("b")]
        threads = shared.waiting("c")
        answers.append(shared.submit("d"))
    assert [call.ended() for call in (leader, *threads)] == ["leader", "c"]
    with shared.lock:  # the section in which the thread was woken is over
        assert shared.queue.syncs == 2
    assert [each.given[0][0] for each in answers] == [None] * 3
    assert shared.published == ["leader", *"abcd"]


def test_the_callback_of_a_refused_plan_is_never_called(share: Share) -> None:
    shared = share()
    given: list[BaseException | None] = []

    def plan(_: None) -> None:
        raise BadName("refused")

    with pytest.raises(BadName):
        shared.queue.submit(plan, None, given.append)
    shared.send("goes on")
    assert given == []


def test_each_callback_gets_a_failure_once(share: Share) -> None:
    faults = FaultDisk(CrashDisk())
    shared = share(faults)
    with shared.writing(lambda: shared.send("leader")) as leader:
        answers = [shared.submit("a"), shared.submit("b")]
        faults.fail("write", names="*.seg")
    assert isinstance(leader.ended(), EngineFailed)
    assert [len(each.given) for each in answers] == [1, 1]
    assert all(isinstance(each.given[0][0], OSError) for each in answers)
    with pytest.raises(EngineFailed):
        shared.submit("c")

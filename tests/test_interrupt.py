"""An interrupt at any line of fmq during a public call: no call hangs, and none gets a wrong
answer.

Each act is done again and again on a fresh disk in memory, interrupted at its first line, at
its second, and so on until it gets through. After each time another thread finds the engine at
work, or failed and saying so; what the act did is whole or not there; and opening the
directory again, after a close and after a power cut, shows just that and all that had been
acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import pytest

import fmq
import fmq.basics.results
import fmq.feedback.local_transaction
import fmq.feedback.loop
import fmq.feedback.question
import fmq.feedback.settle  # all of these an engine imports when it is first asked to
from fmq.basics.clock import Waitable
from fmq.errors import AlreadyDecided, Closed, EngineFailed
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import schedule_of
from fmq.tx.commands.buffer import Phase
from tests.budget import SEED, draw
from tests.interrupts import Interrupt, in_thread
from tests.small import opened

OPTIONS: dict[str, Any] = {
    "segment_bytes": 4096,
    "checkpoint_bytes": 1500,
    "lease_seconds": 9.0,
    "check_lease_seconds": 9.0,
    "check_backoff_seconds": 9.0,
    "on_undecided": "rollback",
    "check_answers_max": 2,
}
LINES_MAX = 20_000
TRIALS_MAX = 5  # of one act: where it has more lines, they are drawn by the seed
IDS = ("before", "act", "other")

View = dict[str, Any]


class Clock(FakeClock):
    """A clock that moves on by itself. No test here waits for another thread."""

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        self._owner = get_ident()
        return super().wait(lock, timeout)


class Trial:
    """An engine with something in it, and what an act needs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.disk = CrashDisk()
        self.engine = engine = opened(self.disk, self.clock, **OPTIONS)
        engine.send_many("in", [b"in %d" % i for i in range(6)])
        with engine.transaction(tx_id="before") as tx:
            tx.send("out", b"before")
        # So little is left of the segment that some acts must go on in the next one.
        while engine.stats().position < 3000:
            engine.send("in", b"i" * 300)
        self.tx = engine.transaction(tx_id="act", producer="p")
        self.tx.send("out", b"1" * 300)
        self.tx.send_many("in", [b"2", b"3", b"4" * 300])
        self.consumer = engine.consumer("in", group="g")
        self.delivery = self.consumer.poll(limit=1)[0]
        self.question: Any = None

    def ask_again(self) -> fmq.Question:
        (question,) = self.engine.feedback.ask("p", wait=100.0)
        return question


Act = Callable[[Trial], Any]


def send(trial: Trial) -> Any:
    return trial.engine.send("out", b"x" * 900)


def send_many(trial: Trial) -> Any:
    return trial.engine.send_many("new", [b"x", fmq.Message(b"y", key="k"), b"z" * 900])


def ack(trial: Trial) -> Any:
    return trial.delivery.ack()


def poll(trial: Trial) -> Any:
    return trial.consumer.poll(limit=2)


def prepare(trial: Trial) -> Any:
    return trial.tx.prepare()


def commit_at_once(trial: Trial) -> Any:
    return trial.tx.commit()


def ack_and_commit(trial: Trial) -> object:
    trial.tx.ack(trial.delivery)
    return trial.tx.commit()


def ack_and_roll_back(trial: Trial) -> None:
    trial.tx.ack(trial.delivery)
    trial.tx.rollback()


def begin_and_commit(trial: Trial) -> object:
    with trial.engine.transaction(tx_id="other") as tx:
        tx.send("out", b"in a block")
    return tx


def commit_prepared(trial: Trial) -> Any:
    return trial.tx.commit()


def roll_back_prepared(trial: Trial) -> None:
    trial.tx.rollback()


def decide(trial: Trial) -> Any:
    return trial.engine.decide("act", "commit", reason="because")


def ask(trial: Trial) -> Any:
    return trial.engine.feedback.ask("p", ["out", "in"], wait=100.0)


def answer(trial: Trial) -> Any:
    return trial.engine.feedback.answer(trial.question, "commit")


def answer_unknown(trial: Trial) -> Any:
    return trial.engine.feedback.answer(trial.question, "unknown")


def answer_unknown_too_often(trial: Trial) -> Any:
    trial.engine.feedback.answer(trial.question, "unknown")
    return trial.engine.feedback.answer(trial.ask_again(), "unknown")


def resume(trial: Trial) -> Any:
    return trial.engine.feedback.resume("act")


def settle(trial: Trial) -> Any:
    return trial.engine.settle(timeout=100.0)


def checkpoint(trial: Trial) -> Any:
    return trial.engine.checkpoint()


def sync(trial: Trial) -> Any:
    return trial.engine.sync()


def read(trial: Trial) -> Any:
    return trial.engine.read("in", limit=5)


def close(trial: Trial) -> None:
    trial.engine.close()


def nothing(trial: Trial) -> None: ...


def prepared(trial: Trial) -> None:
    trial.tx.prepare()


def asked(trial: Trial) -> None:
    trial.tx.prepare()
    trial.question = trial.ask_again()


def registered(trial: Trial) -> None:
    trial.tx.prepare()
    trial.engine.checker("p")(lambda _: "commit")


ACTS = [
    (nothing, send),
    (nothing, send_many),
    (nothing, ack),
    (nothing, poll),
    (nothing, prepare),
    (nothing, commit_at_once),
    (nothing, ack_and_commit),
    (nothing, ack_and_roll_back),
    (nothing, begin_and_commit),
    (prepared, commit_prepared),
    (prepared, roll_back_prepared),
    (prepared, decide),
    (prepared, ask),
    (asked, answer),
    (asked, answer_unknown),
    (asked, answer_unknown_too_often),
    (prepared, resume),
    (registered, settle),
    (nothing, checkpoint),
    (nothing, sync),
    (nothing, read),
    (nothing, close),
]


@pytest.mark.parametrize(("before", "act"), ACTS, ids=[act.__name__ for _, act in ACTS])
def test_an_interrupt_at_any_line_leaves_a_call_whole_or_absent(
    before: Callable[[Trial], None], act: Act
) -> None:
    absent, whole, lines = uninterrupted(before, act)
    assert lines > 3, "the act ran no lines"
    for at in draw(range(lines), TRIALS_MAX, act.__name__):
        interrupt = Interrupt(at)
        try:
            one_trial(before, act, interrupt, [absent, whole])
        except BaseException as error:
            error.add_note(f"FMQ_SEED={SEED}, line {at} of {lines}: {interrupt.met}")
            raise


def uninterrupted(before: Callable[[Trial], None], act: Act) -> tuple[View, View, int]:
    """Return what is there without the act and with all of it, and how many lines it runs."""
    trial = Trial()
    before(trial)
    absent = view_of(trial.disk.after_kill(), trial.clock)
    interrupt = Interrupt(LINES_MAX)
    interrupt.run(lambda: act(trial))
    assert interrupt.count < LINES_MAX
    whole = view_of(trial.disk.after_kill(), trial.clock)
    trial.engine.close()
    return absent, whole, interrupt.count


def one_trial(
    before: Callable[[Trial], None], act: Act, interrupt: Interrupt, allowed: list[View]
) -> None:
    trial = Trial()
    try:
        before(trial)
        _one_trial(trial, act, interrupt, allowed)
    finally:
        in_thread(trial.engine.close, "close")


def _one_trial(trial: Trial, act: Act, interrupt: Interrupt, allowed: list[View]) -> None:
    engine, clock = trial.engine, trial.clock
    try:
        in_thread(lambda: interrupt.run(lambda: act(trial)), "the interrupted call")
    except KeyboardInterrupt:
        pass
    else:
        assert not interrupt.met, "the interrupt was swallowed"
    acknowledged = in_thread(lambda: others(engine), "a call of another thread")
    if acknowledged and trial.tx.phase in (Phase.OPEN, Phase.ROLLED_BACK):
        in_thread(trial.tx.rollback, "rolling back what was not begun, or again")
    clock.advance(10)  # behind every lease
    seen = None
    if acknowledged:
        in_thread(lambda: everything_is_asked_about(engine, clock), "asking")
        seen = in_thread(lambda: view(engine), "looking")
        require(seen, allowed)
    for disk in (trial.disk.after_power_loss(SEED), closed(trial)):
        found = view_of(disk, clock, acknowledged)
        require(found, allowed if seen is None else [seen])


def require(found: View, allowed: list[View]) -> None:
    """`found` is one of `allowed`; else what it has, and each of them, where they differ."""
    if found not in allowed:
        differing = [key for key in found if any(found[key] != each.get(key) for each in allowed)]
        seen = [{key: each.get(key) for key in differing} for each in (found, *allowed)]
        raise AssertionError(f"found {seen[0]}, allowed {seen[1:]}")


def others(engine: fmq.Engine) -> int:
    """Send from another thread. Return how many of its messages were acknowledged."""
    try:
        engine.send("other", b"1")
        with engine.transaction() as tx:
            tx.send("other", b"2")
        engine.sync()
        engine.checkpoint()
    except (EngineFailed, Closed):
        return 0
    assert engine.stats().failure is None
    return 2


def everything_is_asked_about(engine: fmq.Engine, clock: FakeClock) -> None:
    """However far asking or answering had come: in bounded time a question comes, and once."""
    clock.advance(60)  # behind check_after
    questions = engine.feedback.ask(["p", ""], wait=0.0)
    assert [each.tx_id for each in questions] == [each.tx_id for each in engine.undecided()]
    schedule_of(engine)._check()


def closed(trial: Trial) -> CrashDisk:
    """The disk after a close by another thread, and sound, except for a checkpoint that was being
    written: the next opening writes it anew.
    """
    in_thread(trial.engine.close, "close")
    disk = trial.disk.after_kill()
    problems = fmq.check("data", disk=disk).problems
    assert [each for each in problems if not each.file.startswith("checkpoint.")] == []
    return disk


def view_of(disk: CrashDisk, clock: FakeClock, acknowledged: int = 0) -> View:
    with opened(disk, clock, **OPTIONS) as engine:
        assert len(engine.read("other")) in {acknowledged, 2 if acknowledged else 0}
        return view(engine)


def view(engine: fmq.Engine) -> View:
    """Return what is there, without the messages of other threads."""
    found: View = {
        f"{info.topic}/{info.queue}": [bytes(each.body[:6]) for each in messages]
        for info in engine.queues()
        if info.topic != "other"
        if (messages := engine.read(info.topic, queue=info.queue, limit=1000))
    }
    found["undecided"] = [each.tx_id for each in engine.undecided()]
    for tx_id in IDS:
        try:
            found[tx_id] = engine.outcome(tx_id).state
        except fmq.errors.UnknownTransaction:
            found[tx_id] = None
    with engine.consumer("in", group="g", lease_seconds=1e6) as consumer:
        left = []
        while deliveries := consumer.poll(timeout=600):  # tried before: it may wait
            left += [delivery.offset for delivery in deliveries]
        found["left"] = sorted(left)
    return found


def test_an_interrupted_decision_can_be_repeated() -> None:
    """Interrupt at any line. The second call says what the first would have said."""
    _, whole, _ = uninterrupted(prepared, commit_prepared)
    # Counted in a process without another engine, as in each trial: a look at one takes lines too.
    counted, counter = Trial(), Interrupt(LINES_MAX)
    prepared(counted)
    counter.run(counted.tx.commit)
    counted.engine.close()
    for at in draw(range(counter.count), TRIALS_MAX):
        trial, interrupt = Trial(), Interrupt(at)
        prepared(trial)
        with pytest.raises(KeyboardInterrupt):
            interrupt.run(trial.tx.commit)
        try:
            in_thread(trial.tx.commit, "the second call")
        except EngineFailed:
            trial.engine.close()
            continue
        assert trial.tx.phase is Phase.COMMITTED, interrupt.met
        require(view_of(trial.disk.after_kill(), trial.clock), [whole])
        with pytest.raises(AlreadyDecided):
            trial.tx.rollback()
        trial.engine.close()

"""An interrupt at any line of prepare, decide or ask: each undecided transaction is asked about."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random

from fmq import Answer, Engine, Transaction
from fmq.errors import EngineFailed, UnknownTransaction
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import schedule_of
from tests.feedback.asking import asked, asked_one, prepared
from tests.interrupts import Interrupt, in_thread
from tests.small import bodies, check, opened
from tests.store.lines import at_each_line

SEED = 5
LINES_MAX = 5000
STEP = 40  # lines from one trial to the next: each state lasts for more
EVERY = 10


def send(engine: Engine) -> object:
    def local(tx: Transaction) -> Answer:
        return "commit"

    messages = [("orders", b"1"), ("emails", b"2")]
    return engine.send_in_transaction(messages, local, tx_id="T", producer="p", check_after=50.0)


def test_an_interrupted_send_in_transaction_is_whole_or_absent() -> None:
    """The transaction is absent, undecided or committed, with all its messages.

    If it is undecided, its checker is asked in bounded time: by this engine if it goes on, else by
    the next one.
    """
    counter = Interrupt(LINES_MAX)
    with opened(CrashDisk()) as engine:
        counter.run(lambda: send(engine))
    lines = counter.count
    assert lines < LINES_MAX
    met = set()
    for at in range(Random(SEED).randrange(STEP), lines, STEP):
        disk, clock, interrupt = CrashDisk(), FakeClock(), Interrupt(at)
        engine = opened(disk, clock)
        with suppress(KeyboardInterrupt):
            interrupt.run(partial(send, engine))
        try:
            state = in_thread(partial(one_trial, engine, clock), interrupt.met)
            met.add(state)
            for each in (disk.after_kill(), disk.after_power_loss(SEED)):
                with opened(each, clock) as again:
                    assert state in ("failed", state_of(again)), interrupt.met
                    assert asked(again) == ["T"] * (state_of(again) == "undecided")
                check(each)
        except AssertionError as error:
            error.add_note(f"line {at} of {lines}: {interrupt.met}")
            raise
        engine.close()
    assert met == {"nothing", "undecided", "committed", "failed"}


def test_an_interrupted_decision_is_written_or_asked_about() -> None:
    """A call that asks finds out, even if no other call is made and the engine has no threads."""
    for interrupt in at_each_line(Interrupt, EVERY):
        clock = FakeClock()
        engine = opened(CrashDisk(), clock)
        tx = prepared(engine, "T")
        with suppress(KeyboardInterrupt):
            interrupt.run(tx.commit)
        with suppress(EngineFailed):
            questions = in_thread(partial(asked, engine), interrupt.met)
            assert questions == [each.tx_id for each in engine.undecided()], interrupt.met
        engine.close()


def test_an_interrupted_ask_loses_no_question() -> None:
    """The next call gets the questions that it did not take. A decided one is not asked again."""
    for interrupt in at_each_line(Interrupt, EVERY):
        clock = FakeClock()
        with opened(CrashDisk(), clock) as engine:
            one, two, three = (prepared(engine, name) for name in ("T1", "T2", "T3"))
            clock.advance(100)
            with suppress(KeyboardInterrupt):
                interrupt.run(partial(asked, engine))
            if engine.stats().failure is not None:
                continue
            two.commit()
            schedule_of(engine)._check()
            clock.advance(100)
            assert sorted(asked(engine)) == ["T1", "T3"], interrupt.met
            one.commit()
            three.rollback()
            schedule_of(engine)._check()
            assert not schedule_of(engine)._heaps, interrupt.met


def test_an_interrupted_resume_leaves_the_question_parked_or_due() -> None:
    for interrupt in at_each_line(Interrupt, EVERY):
        clock = FakeClock()
        with opened(CrashDisk(), clock, on_undecided="park", check_answers_max=1) as engine:
            prepared(engine, "T")
            engine.feedback.answer(asked_one(engine), "unknown")
            with suppress(KeyboardInterrupt):
                interrupt.run(partial(engine.feedback.resume, "T"))
            if engine.stats().failure is not None:
                continue
            schedule_of(engine)._check()
            (undecided,) = engine.undecided()
            assert asked(engine) == ([] if undecided.parked else ["T"]), interrupt.met


def one_trial(engine: Engine, clock: FakeClock) -> str:
    """Interrupt once, and return the state of the transaction as far as this engine knows."""
    try:
        engine.send("others", b"1")
    except EngineFailed:
        return "failed"
    clock.advance(50)
    state = state_of(engine)
    assert asked(engine) == ["T"] * (state == "undecided")
    assert len(bodies(engine, "orders")) == len(bodies(engine, "emails")) == (state == "committed")
    return state


def state_of(engine: Engine) -> str:
    try:
        return engine.outcome("T").state
    except UnknownTransaction:
        return "nothing"

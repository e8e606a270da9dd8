"""The steps that differ in a thread beside others. Most steps do what they do in a single
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crash_tests import steps
from crash_tests.carry_on import call, plain, told
from crash_tests.oracle import OUTCOMES, tx_id_of
from crash_tests.run import Run
from crash_tests.threads.promised import ThreadsOracle
from crash_tests.transactions import deciding, may_decide
from fmq.basics.message import Receipt
from fmq.errors import AlreadyDecided, Closed
from fmq.tx.commands.transaction import Transaction


def decide(
    run: Run,
    name: str,
    decision: str,
    tx: Transaction | None = None,
    *,
    sync: bool | None = None,
) -> None:
    """Decide a transaction. Other threads may be deciding it, in the same way or the
    opposite one.
    """
    oracle, engine = run.oracle, run.live
    try:
        if name not in oracle.units or not may_decide(run, name):
            return
    except Closed:  # another thread has closed it, and asking what is undecided is a call
        return
    oracle.trying_decision(name, decision)
    if tx is None or decision == "rollback":
        sync = None  # then calls are durable as the mode says

    def act() -> list[Receipt]:
        if tx is None:
            return list(engine.decide(tx_id_of(name), decision).receipts)  # type: ignore[arg-type]
        if decision == "commit":
            return tx.commit(sync=sync)
        tx.rollback()
        return []

    try:
        receipts = call(run, name, act, durable=sync)
    except AlreadyDecided as error:
        assert isinstance(oracle, ThreadsOracle)
        oracle.decided_otherwise(name, OUTCOMES[error.outcome.state])
    else:
        if isinstance(receipts, list):
            told(run, name, receipts)


def close(run: Run) -> None:
    """Close the engine: later calls are refused, and running ones are served."""
    if plain(run, run.live.close):
        run.oracle.synced()


STEPS: dict[str, Callable[..., None]] = {
    **steps.STEPS,
    **deciding(decide),
    "close": close,
}


def do(run: Run, at: int, step: list[Any]) -> None:
    """Make one step. Bodies are named after its number `at`."""
    assert isinstance(run.oracle, ThreadsOracle)
    run.at = at
    run.oracle.begin_step()
    STEPS[step[0]](run, *step[1:])

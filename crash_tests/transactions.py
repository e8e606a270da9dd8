"""The steps about transactions: begin, prepare, and decide by the producer or in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from crash_tests.carry_on import Refused, Unknown, call, plain, restart, told
from crash_tests.consuming import poll
from crash_tests.oracle import Fate, Lane, Unit, Violation, sets_a_mark, tx_id_of
from fmq.errors import TransactionError, UnknownTransaction
from fmq.tx.commands.transaction import Transaction

if TYPE_CHECKING:
    from crash_tests.run import Run

NO_SEAL = "00" * 16


def body_of(step: int, number: int, size: int) -> bytes:
    """Return a body that no other unit sends."""
    name = b"%d.%d:" % (step, number)
    return name + (b"0123456789abcdef" * (size // 16 + 1))[: max(0, size - len(name))]


def _begin(
    run: Run, name: str, runs: list[list[Any]], group: str | None
) -> tuple[Unit, Transaction] | None:
    oracle = run.oracle
    if name in oracle.units and oracle.fate(name) is not Fate.ABSENT:
        return None
    bodies: dict[Lane, list[bytes]] = {}
    acks: list[tuple[str, tuple[str, int, int]]] = []
    try:
        tx = run.live.transaction(tx_id=tx_id_of(name))
        number = 0
        for topic, queue, count, size in runs:
            for _ in range(count):
                body = body_of(run.at, number, size)
                tx.send(topic, body, queue=queue)
                bodies.setdefault((topic, queue), []).append(body)
                number += 1
        for each in poll(run, group, 2) if group else []:
            tx.ack(each)
            acks.append((str(group), (each.topic, each.queue, each.offset)))
        if sets_a_mark(name):
            tx.mark(name, run.at, name.encode())
    except Refused:
        run.refused += 1
        return None
    except Unknown:
        if not run.survives:
            raise
        restart(run)
        return None
    return Unit(name, bodies, tuple(acks), is_tx=True), tx


def one_phase(
    run: Run, name: str, runs: list[list[Any]], group: str | None, *, sync: bool | None = None
) -> None:
    begun = _begin(run, name, runs, group)
    if begun is None:
        return
    unit, tx = begun
    run.oracle.trying(unit)
    receipts = call(run, name, lambda: tx.commit(sync=sync), durable=sync)
    if receipts is not None and receipts is not True:
        told(run, name, receipts)
    elif run.was_refused:
        tx.rollback()


def lazy_one_phase(run: Run, name: str, runs: list[list[Any]], group: str | None) -> None:
    one_phase(run, name, runs, group, sync=False)


def sure_one_phase(run: Run, name: str, runs: list[list[Any]], group: str | None) -> None:
    one_phase(run, name, runs, group, sync=True)


def prepare(run: Run, name: str, runs: list[list[Any]], group: str | None) -> None:
    begun = _begin(run, name, runs, group)
    if begun is None:
        return
    unit, tx = begun
    run.oracle.trying_prepare(unit)
    if call(run, name, tx.prepare, durable=True) is not None:
        run.transactions[name] = tx
    elif run.was_refused:
        tx.rollback()


def deciding(decide: Callable[..., None]) -> dict[str, Callable[..., None]]:
    """Return the steps that decide, each by a call of `decide`. A commit may wait for its sync, or
    not.
    """
    ways = {"": None, "lazy ": False, "sure ": True}
    return {
        **{f"{way}commit": partial(_decide_own, decide, "commit", ways[way]) for way in ways},
        "rollback": partial(_decide_own, decide, "rollback", None),
        "decide": decide,
    }


def _decide_own(
    decide: Callable[..., None], decision: str, sync: bool | None, run: Run, name: str
) -> None:
    decide(run, name, decision, run.transactions.pop(name, None), sync=sync)


def decide(
    run: Run,
    name: str,
    decision: str,
    tx: Transaction | None = None,
    *,
    sync: bool | None = None,
) -> None:
    """Decide a transaction. Without `tx` the decision is made in its producer's place."""
    oracle, engine, tx_id = run.oracle, run.live, tx_id_of(name)
    if name not in oracle.units or not may_decide(run, name):
        return
    oracle.trying_decision(name, decision)
    if tx is None:
        with contextlib.suppress(UnknownTransaction, *Unknown):
            engine.decide(tx_id, decision, seal=NO_SEAL)  # type: ignore[arg-type]
            raise Violation("I4", f"{name} was decided by who meant another one")
        in_its_place = partial(engine.decide, tx_id, decision)  # type: ignore[arg-type]
        outcome = call(run, name, in_its_place)
        receipts = [] if outcome is None else list(outcome.receipts)
    elif decision == "commit":
        receipts = call(run, name, lambda: tx.commit(sync=sync), durable=sync)
    else:
        call(run, name, tx.rollback)
        return
    if receipts:
        told(run, name, receipts)


def decide_many(run: Run, names: list[str], decision: str) -> None:
    """Decide those of `names` that are undecided, together. A mark moves with them."""
    oracle, engine = run.oracle, run.live
    names = [name for name in names if name in oracle.units and may_decide(run, name)]
    if not names:
        return
    oracle.trying_joint_decision(names, decision)
    ids, mark = [tx_id_of(name) for name in names], ("joint", run.at, None)
    decide = partial(engine.decide_many, ids, decision, mark=mark)  # type: ignore[arg-type]

    def decide_again() -> None:
        try:
            decide()
        except TransactionError as error:
            raise Violation("I4", f"the same decision is refused: {error}") from error

    if call(run, names[0], decide, *names[1:]):
        plain(run, decide_again)


def may_decide(run: Run, name: str) -> bool:
    """Return whether a transaction is undecided. If that is unknown, ask, as an application
    would.
    """
    fate = run.oracle.fate(name)
    if fate is not None:
        return fate is Fate.UNDECIDED
    unit = run.oracle.units[name]
    return Fate.UNDECIDED in unit.fates and tx_id_of(name) in {
        tx.tx_id for tx in run.live.undecided()
    }

"""An interrupt that is caught leaves a transaction, or a failed engine, that tells no lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import ModuleType

import pytest

from fmq import Engine
from fmq.errors import EngineFailed, UnknownTransaction
from fmq.store.index import index as index_module
from fmq.tx.commands import buffer as buffer_module
from fmq.tx.commands.transaction import Transaction
from fmq.tx.ledger import apply as apply_module
from tests.small import CrashDisk, bodies, opened
from tests.store.lines import Lines, at_each_line


def interrupts(module: ModuleType) -> Iterator[Lines]:
    """An interrupt at each line of `module`, one after the other."""
    return at_each_line(lambda at: Lines(module, at))


SENDS: dict[str, Callable[[Transaction], object]] = {
    "to a topic that there is": lambda tx: tx.send("t", b"x"),
    "to a new one": lambda tx: tx.send("new", b"x"),
    "with a key": lambda tx: tx.send("t", b"x", key="k"),
    "with a key, to a new one": lambda tx: tx.send("new", b"x", key="k"),
    "to a queue by number": lambda tx: tx.send("t", b"x", queue=0),
}


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_send_that_was_interrupted_is_whole_or_absent(
    send: Callable[[Transaction], object], counted: bool
) -> None:
    """The transaction goes on. With `counted` its room was measured just before."""
    for lines in interrupts(buffer_module):
        with opened(CrashDisk(), segment_bytes=8192) as engine:
            engine.send("t", b"0")
            tx = engine.transaction()
            tx.send("t", b"A")
            if counted:
                tx.savepoint()
            with suppress(KeyboardInterrupt):
                lines.run(partial(send, tx))
            if not lines.met:
                break
            tx.send("t", b"B")
            tx.send("new", b"C", key="c")
            tx.commit()
            found = bodies(engine, "t")[1:], bodies(engine, "new")
            assert [body for body in found[0] if body != b"x"] == [b"A", b"B"], lines.met
            assert [body for body in found[1] if body != b"x"] == [b"C"], lines.met
            assert sum(each.count(b"x") for each in found) <= 1, lines.met
    assert lines.count > 10


def test_an_interrupted_first_send_creates_no_empty_topic() -> None:
    for lines in interrupts(buffer_module):
        with opened(CrashDisk()) as engine:
            tx = engine.transaction()
            with suppress(KeyboardInterrupt):
                lines.run(partial(tx.send, "new", b"x"))
            tx.commit()
            assert [queue.topic for queue in engine.queues() if not queue.next] == [], lines.met


def counts(engine: Engine) -> tuple[int, int] | None:
    """Return how many messages each topic has; None if the call gave no answer."""
    try:
        return len(bodies(engine, "t")), len(bodies(engine, "u"))
    except EngineFailed:
        return None


def outcome(engine: Engine) -> str:
    """Return what became of the transaction, or that it is unknown."""
    try:
        return engine.outcome("x").state
    except (UnknownTransaction, EngineFailed):
        return "unknown"


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("module", [apply_module, index_module])
def test_a_transaction_interrupted_while_published_shows_all_or_none(
    module: ModuleType, prepared: bool
) -> None:
    shown = set()
    for lines in interrupts(module):
        engine = opened(CrashDisk(), segment_bytes=8192)
        engine.send_many("t", [b"0"])
        engine.send("u", b"0")
        with engine.transaction(tx_id="before") as before:
            before.send("t", b"1")
            before.send("u", b"1")
        tx = engine.transaction(tx_id="x")
        tx.send("t", b"A")
        tx.send("u", b"B")
        if prepared:
            tx.prepare()
        with suppress(KeyboardInterrupt):
            lines.run(tx.commit)
        shown.add(seen := counts(engine))
        known = "committed" if seen == (3, 3) else "undecided"
        assert outcome(engine) in ("unknown", known), lines.met
        if engine.stats().failure is None:
            assert (seen, outcome(engine)) == ((3, 3), "committed")
        engine.close()
    assert lines.count > 2
    assert shown <= {(2, 2), (3, 3), None}
    assert len(shown) > 1

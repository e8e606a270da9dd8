"""What each step of a workload does, and what it reports to the oracle before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fmq
from crash_tests import consuming, transactions
from crash_tests.carry_on import call, plain, told
from crash_tests.engines import PATH, let_go, open_engine
from crash_tests.follower import Follower
from crash_tests.oracle import Unit, Violation
from crash_tests.transactions import body_of
from fmq.store.journal.segment import base_of, is_segment

if TYPE_CHECKING:
    from crash_tests.run import Run

BESIDE_BODY_BYTES = 256  # more than a message takes without its body


def send(run: Run, topic: str, queue: int, size: int, *, sync: bool | None = None) -> None:
    name, body = f"send {run.at}", body_of(run.at, 0, size)
    run.oracle.trying(Unit(name, {(topic, queue): [body]}))
    engine = run.live
    receipt = call(
        run, name, lambda: engine.send(topic, body, queue=queue, sync=sync), durable=sync
    )
    if receipt is not None:
        told(run, name, [receipt])


def lazy(run: Run, topic: str, queue: int, size: int) -> None:
    send(run, topic, queue, size, sync=False)


def sure(run: Run, topic: str, queue: int, size: int) -> None:
    send(run, topic, queue, size, sync=True)


def many(run: Run, topic: str, queue: int, count: int, size: int) -> None:
    name = f"many {run.at}"
    bodies = [body_of(run.at, i, size) for i in range(count)]
    run.oracle.trying(Unit(name, {(topic, queue): bodies}))
    engine = run.live
    receipts = call(run, name, lambda: engine.send_many(topic, bodies, queue=queue))
    if receipts is not None:
        told(run, name, receipts)


def fill(run: Run, topic: str, queue: int) -> None:
    """Send a body that fills the segment to its last byte, if there is room for a message
    at all.
    """
    directory = run.disk.directory(PATH, make=False)
    newest = max(filter(is_segment, directory.names()))
    limit = base_of(newest) + directory.open(newest).size()
    size = limit - run.live.stats().position - BESIDE_BODY_BYTES
    if size > 0:
        send(run, topic, queue, size + limit - _position_behind(run, topic, queue, size))


def _position_behind(run: Run, topic: str, queue: int, size: int) -> int:
    """Return where a body of this size would end. Another engine tries it on a copy of the disk."""
    disk = run.disk.after_kill()
    engine = open_engine(run.beside(disk), run.options)
    engine.send(topic, bytes(size), queue=queue)
    position = engine.stats().position
    let_go(engine, disk)
    return position


def export(run: Run) -> None:
    """Let another process begin to read the oldest segment."""
    directory = run.disk.directory(PATH, make=False)
    run.exported = min(filter(is_segment, directory.names()))
    run.pin = directory.open(run.exported)
    assert run.pin.pin(exclusive=False)


def end_export(run: Run) -> None:
    if run.pin is None:
        return
    if run.exported not in run.disk.directory(PATH, make=False).names():
        raise Violation("I12", f"{run.exported} was removed while an export read it")
    run.pin.close()
    run.pin = None


def follow(run: Run, pages: bool = True) -> None:
    """Look with a read-only engine. The first call opens it."""
    if not run.followers:
        run.followers = [Follower(run.disk, run.options, pages=pages)]
    run.followers[0].look(run.oracle)


def checkpoint(run: Run) -> None:
    if plain(run, run.live.checkpoint):
        run.oracle.synced()


def sync(run: Run) -> None:
    if plain(run, run.live.sync):
        run.oracle.synced()


def configure(run: Run, option: str, value: Any) -> None:
    """Store an option for all, or store none if `value` is None."""
    name = f"configure {run.at}"
    run.oracle.trying(Unit(name, option=(option, value)))
    engine = run.live
    if value is None:
        call(run, name, lambda: engine.configure(reset=[option]), durable=True)
    else:
        said = fmq.Options(**{option: value})
        call(run, name, lambda: engine.configure(said), durable=True)


def clock(run: Run, seconds: float) -> None:
    run.clock.advance(seconds)
    run.oracle.time_passes(seconds)


# "reopen" and "kill" are the run's own: they leave it with another engine, or another disk.
STEPS: dict[str, Callable[..., None]] = {
    "send": send,
    "lazy": lazy,
    "sure": sure,
    "many": many,
    "fill": fill,
    "tx": transactions.one_phase,
    "lazy tx": transactions.lazy_one_phase,
    "sure tx": transactions.sure_one_phase,
    "prepare": transactions.prepare,
    **transactions.deciding(transactions.decide),
    "decide many": transactions.decide_many,
    "consume": consuming.consume,
    "batch": consuming.batch,
    "read": consuming.read,
    "export": export,
    "end export": end_export,
    "follow": follow,
    "checkpoint": checkpoint,
    "configure": configure,
    "sync": sync,
    "clock": clock,
}

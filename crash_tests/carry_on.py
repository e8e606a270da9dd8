"""The result of a call: it returned, it was refused, or its outcome is unknown.

On a disk that has faults a run carries on as an application would. What was refused is refused
whole; after an unknown outcome the engine is opened again, as a new process finds the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crash_tests.engines import abandon
from crash_tests.look import look, read_lanes
from crash_tests.oracle import Seen, Unit
from crash_tests.verdict import check
from fmq.basics.message import Receipt
from fmq.errors import Closed, Damaged, LeaseLost, StorageError, StorageFull, UsageError, WrongState

if TYPE_CHECKING:
    from crash_tests.run import Run

Refused = (StorageFull, UsageError, LeaseLost, WrongState)
Unknown = (StorageError, OSError)  # without the errors above, which are caught first


def call(
    run: Run, name: str, act: Callable[[], Any], *others: str, durable: bool | None = None
) -> Any:
    """Make the call about the unit `name`, which is being tried, or also about `others`. Return its
    result; None if it did not return.
    """
    run.was_refused = False
    names = name, *others
    try:
        result = act()
    except Refused:
        for each in names:
            run.oracle.refused(each)
        run.was_refused = True
        run.refused += 1
        return None
    except Unknown:
        if not run.survives:
            raise
        restart(run, *names)
        return None
    for each in names:
        run.oracle.returned(each, durable=run.waits if durable is None else durable)
    return result if result is not None else True


def plain(run: Run, act: Callable[[], object]) -> bool:
    """Make a call that promises nothing new. Return whether it returned."""
    try:
        act()
    except Unknown:
        if not run.survives:
            raise
        restart(run)
        return False
    except Refused:
        return False
    return True


def told(run: Run, name: str, receipts: list[Receipt]) -> None:
    """Note where the engine said that the unit's messages are."""
    for receipt in receipts:
        lane = receipt.topic, receipt.queue
        run.oracle.told(name, lane, receipt.offset, receipt.position)


def restart(run: Run, *names: str) -> None:
    """Open the directory in a new process after an error, because the outcome of the call, and of
    the units `names`, is unknown.
    """
    run.unknown += 1
    _use_what_failed(run, *names)
    abandon(run.engine)
    run.open()
    look_again(run)


def _use_what_failed(run: Run, *failed: str) -> None:
    """Use the engine after an error. What it shows and accepts is a promise like any other.

    One that still takes something says that the call that failed has changed nothing.
    """
    try:
        for lane, (first, bodies) in read_lanes(run.live).items():
            for offset, body in enumerate(bodies, first):
                run.oracle.shown(lane, offset, body)
    except Closed:
        return  # `close` has failed: the engine answers no call any more
    except Unknown as error:
        if isinstance(error, Damaged):
            raise
    name, body = f"late {run.unknown}", b"late %d:" % run.unknown
    run.oracle.trying(Unit(name, {("a", 0): [body]}))
    try:
        run.live.send("a", body, queue=0)
    except (*Refused, *Unknown):
        run.oracle.refused(name)
    else:
        for each in failed:
            run.oracle.refused(each)
        run.oracle.returned(name, durable=run.waits)


def look_again(run: Run) -> None:
    """Note what the next process finds: it decides the calls that had not returned."""
    try:
        seen = _look(run)
    except (OSError, StorageError) as error:
        if not run.survives or isinstance(error, Damaged):
            raise
        seen = _look(run)  # a fault happens only once
    check(run.oracle, seen)


def _look(run: Run) -> Seen:
    return look(run.live, run.oracle.tx_names(), run.oracle.rules.groups)

"""Reads a disk as a table, and compares it with what engines show of it.

Of a disk that nobody has recovered the table shows what a read-only engine shows. After a
recovery and a clean close it shows what a consumer that reads everything gets, and of every
transaction what `outcome` says.
"""

from __future__ import annotations

from typing import Any

import fmq
from crash_tests.engines import PATH, abandon, open_engine
from crash_tests.look import ALL
from crash_tests.oracle import Violation
from fmq.arguments.options import Options
from fmq.errors import CheckpointLost, NotAStore, UnknownTransaction
from fmq.testing import CrashDisk

Place = tuple[str, int, int]
Row = dict[str, Any]


def check_table(state: CrashDisk, options: Options, tx_names: list[str]) -> None:
    """Raise Violation unless tables of `state`, and of what recovery makes of it, are right."""
    untouched = state.after_kill()
    try:
        with fmq.open(PATH, options, read_only=True, disk=untouched) as reader:
            shown = shown_by(reader)
    except NotAStore:
        shown = {}
    except CheckpointLost:
        _check_refused(state.after_kill())
        shown = {}
    else:
        _compare("read only", messages_of(state.after_kill()), shown)
    recovered = state.after_kill()
    engine = open_engine(recovered, options)
    try:
        after = shown_by(engine)
        outcomes = {tx.tx_id: "undecided" for tx in engine.undecided()}
        for name in tx_names:
            try:
                outcomes[name] = engine.outcome(name).state
            except UnknownTransaction:
                continue
    finally:
        abandon(engine)
    _compare("recovered", messages_of(recovered), after)
    rows = fmq.table.read(PATH, "transactions", disk=recovered).read_all().to_pylist()
    # The table knows decisions for as long as the journal has them, an engine within the window.
    told = {row["tx_id"]: row["state"] for row in rows if row["tx_id"] in {*outcomes, *tx_names}}
    if told != outcomes:
        raise Violation("I14", f"the table says {told}, the engine {outcomes}")
    _check_places(rows, messages_of(recovered))
    gone = {place: row for place, row in shown.items() if after.get(place, row) != row}
    if gone:
        raise Violation("I14", f"a reader saw {gone}, and recovery shows something else there")


def _check_places(transactions: list[Row], messages: dict[Place, Row]) -> None:
    """Raise Violation unless the places in the view `transactions` are those of their own
    messages.
    """
    for tx in transactions:
        for run in tx["queues"] if tx["state"] == "committed" else ():
            for offset in range(run["offset"], run["offset"] + run["messages"]):
                found = messages.get((run["topic"], run["queue"], offset))
                # A topic that was deleted and made again may have a later message there.
                if found is None or found["position"] > tx["position"]:
                    continue
                if found["tx_id"] != tx["tx_id"]:
                    raise Violation("I14", f"{tx['tx_id']} has the place of {found}")


def _check_refused(disk: CrashDisk) -> None:
    """Raise Violation unless a table refuses what a read-only engine refuses."""
    try:
        rows = messages_of(disk)
    except CheckpointLost:
        return
    raise Violation("I14", f"an engine refuses to show how it ends, and the table has {rows}")


def messages_of(disk: CrashDisk) -> dict[Place, Row]:
    """Return the rows of the view `messages`, by queue and offset."""
    import fmq.table

    rows = fmq.table.read(PATH, columns=COLUMNS, disk=disk).read_all().to_pylist()
    found = {(row["topic"], row["queue"], row["offset"]): row for row in rows}
    if len(found) != len(rows):
        raise Violation("I14", "a message is in the table twice")
    for row in rows:
        row["headers"] = None if row["headers"] is None else dict(row["headers"])
    return found


def shown_by(engine: Any) -> dict[Place, Row]:
    """Return what a reader of every row sees, in the form of `shown_by` of the other readers."""
    return {
        (queue.topic, queue.queue, message.offset): {
            name: getattr(message, name) for name in COLUMNS
        }
        for queue in engine.queues()
        for message in engine.read(queue.topic, queue=queue.queue, offset=queue.first, limit=ALL)
    }


COLUMNS = (
    "topic", "queue", "offset", "position", "key", "tag", "headers", "body", "time", "tx_id",
    "producer", "message_id", "priority", "expires_at",
)  # fmt: skip


def _compare(when: str, table: dict[Place, Row], shown: dict[Place, Row]) -> None:
    if table != shown:
        places = [place for place in {**table, **shown} if table.get(place) != shown.get(place)]
        first = min(places)
        raise Violation(
            "I14",
            f"{when}, at {first}: the table has {table.get(first)}, the engine {shown.get(first)}",
        )

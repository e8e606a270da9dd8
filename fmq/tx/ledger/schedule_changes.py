"""The transitions of schedules: made or changed, due, removed.

A due time is published by one append: DUE, which says when the schedule is due next, and its
MESSAGE. A DUE must name the very time for which the schedule waits. So no journal can have a due
time twice, whatever the clock did.
"""

from __future__ import annotations

from fmq.store.bytes.change_words import said_as_json
from fmq.store.bytes.kinds import Changed
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.said.schedule_met import NEVER, TIME_US_MAX, ScheduleMet, schedule_in


def schedule(ledger: Ledger, change: Changed) -> None:
    """Apply a SCHEDULE: a new schedule, or one that is changed, paused or resumed."""
    try:
        made = schedule_in(change.topic, change.text, change.value, 0)
    except ValueError as error:
        raise IllegalStep(str(error)) from None
    if change.topic not in ledger.topics and not ledger.unsettled:
        raise IllegalStep(f"the schedule {made.name!r} is for {change.topic!r}, which is not there")
    known = ledger.schedules.get(made.name)
    _put(ledger, made if known is None else made._replace(last_us=known.last_us))


def due(ledger: Ledger, change: Changed) -> None:
    """Apply a DUE. Its due time is 0 if a caller asked for the message at once (`run_now`)."""
    said = said_as_json(change)
    name, due_us = said.get("name"), said.get("due", 0)
    known = ledger.schedules.get(str(name))
    if known is None:
        if ledger.unsettled:
            return
        raise IllegalStep(f"the schedule {name!r}, which does not exist, is due")
    if not due_us:
        if change.value != known.next_us:
            raise IllegalStep(f"{name!r} is published at once, and moved to {change.value}")
        return
    if due_us != known.next_us or known.paused is not None:
        raise IllegalStep(f"{name!r} is published for {due_us}, and waits for {known.next_us}")
    if due_us > change.time_us:
        raise IllegalStep(f"{name!r} is published before it is due")
    if change.value != NEVER and not due_us < change.value < TIME_US_MAX:
        raise IllegalStep(f"{name!r} was due at {due_us}, and is due next at {change.value}")
    last_us = known.last_us if said.get("passed") else due_us
    _put(ledger, known._replace(next_us=change.value, last_us=last_us))


def unschedule(ledger: Ledger, change: Changed) -> None:
    name = said_as_json(change).get("name")
    if ledger.schedules.pop(str(name), None) is None and not ledger.unsettled:
        raise IllegalStep(f"the schedule {name!r}, which does not exist, is removed")


def forget(ledger: Ledger, topic: str) -> None:
    """Remove the schedules of a topic that is deleted."""
    for each in [each for each in ledger.schedules.values() if each.topic == topic]:
        del ledger.schedules[each.name]


def _put(ledger: Ledger, schedule: ScheduleMet) -> None:
    ledger.schedules[schedule.name] = schedule
    # The thread that publishes due messages asks again for the next due time.
    ledger.timers.sooner = True

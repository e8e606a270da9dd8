"""Making and changing schedules: each is one append, as the changes of groups and topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.consume.administration.change_plans import Changes, Plan
from fmq.tx.schedules.schedules import Schedules, check_schedule


def make_schedule(changes: Changes, *asked: Any) -> Plan:
    """Plan to make the schedule that the arguments of `check_schedule` describe. The last argument
    says whether it may replace another schedule. Raises ScheduleDiffers, BadOption, TooLarge,
    TooMany or ExtraMissing.
    """
    *said, replace = asked
    wanted, schedules = check_schedule(*said), changes.schedules
    next_us = schedules.first_due_us(wanted)
    return lambda: schedules.adding(wanted, next_us, replace=replace)


def change_schedule(
    planned: Callable[[Schedules, str, str, str], list[Any]],
    changes: Changes,
    name: str,
    by: str,
    reason: str,
) -> Plan:
    """Plan to write the records that `planned` returns for a schedule. Raises UnknownSchedule."""
    return lambda: planned(changes.schedules, name, by, reason)

"""Filters that Spark pushes down, as the ranges of rows that they leave.

Each is an estimate from above: what a filter leaves of a journal is in the ranges, and Spark
itself applies the filter to what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from fmq.clock import as_us
from fmq.table.wanted import EVERYTHING, Range, Wanted

Values = tuple[Any, ...]


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """What is left by all of `filters` together, or a little more."""
    wanted = EVERYTHING
    for each in filters:
        wanted &= _wanted(each)
    return wanted


def _wanted(each: Filter) -> Wanted:
    column, *deeper = getattr(each, "attribute", ("", ""))
    if deeper:
        return EVERYTHING
    match each:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return _among(column, (value,))
        case In(value=values):
            return _among(column, tuple(values))
        case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            return _between(column, value, None)
        case LessThan(value=value) | LessThanOrEqual(value=value):
            return _between(column, None, value)
    return EVERYTHING


def _among(column: str, values: Values) -> Wanted:
    """Rows whose `column` is one of `values`; a null is none of them."""
    values = tuple(value for value in values if value is not None)
    if column == "topic":
        return Wanted(topics=frozenset(values))
    if column == "queue":
        return Wanted(queues=frozenset(values))
    if column in RANGES and values:
        return _between(column, min(values), max(values))
    return EVERYTHING


def _between(column: str, low: Any, high: Any) -> Wanted:
    make = RANGES.get(column)
    return EVERYTHING if make is None else make(low, high)


def _range(low: Any, high: Any) -> Range:
    everything = Range()
    return Range(everything.low if low is None else low, everything.high if high is None else high)


def _time_range(low: datetime | None, high: datetime | None) -> Range:
    everything = EVERYTHING.time_us
    return Range(
        everything.low if low is None else as_us(low),
        everything.high if high is None else as_us(high),
    )


RANGES: dict[str, Callable[[Any, Any], Wanted]] = {
    "offset": lambda low, high: Wanted(offset=_range(low, high)),
    "position": lambda low, high: Wanted(position=_range(low, high)),
    "time": lambda low, high: Wanted(time_us=_time_range(low, high)),
}

"""The options of `spark.read.format("fmq")`, checked: an error names the nearest option."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from fmq.basics.clock import as_us
from fmq.errors import BadOption
from fmq.table.extents import SPLIT_BYTES
from fmq.table.schema import VIEWS, check_choice
from fmq.table.selection import COMPARED, EVERYTHING, LAST, RowRange, Selection

KNOWN = {
    "view": "messages, records, transactions, marks, acks, attempts, dead_letters or damage",
    "columns": "the columns to read, separated by commas",
    "mode": "strict, or permissive to leave out what is behind damage",
    "topic": "only the rows of this topic",
    "topics": "only those of several, as a list in JSON",
    "queue": "only those of these queues, separated by commas",
    "offsetFrom": "only messages from this offset on",
    "offsetBefore": "only messages before this offset",
    "positionFrom": "only rows from this position on",
    "positionBefore": "only rows before this position",
    "timeFrom": "only rows from this time on, in ISO 8601",
    "timeBefore": "only rows before this time",
    "splitBytes": "how much of a large segment makes a partition, at least",
    "maxPartitionBytes": "small parts are read by one task, up to so many bytes",
    "minPartitions": "but there are at least so many tasks, if there are so many parts",
    "path": "the directory, or a pattern of several",
    "paths": "several, as a list in JSON; load([...]) sets it",
    "maxRecordsPerTrigger": "streaming: messages in a batch",
    "maxBytesPerTrigger": "streaming: bytes of the journal in a batch",
    "minRecordsPerTrigger": "streaming: a batch waits for so many messages",
    "maxTriggerDelay": "streaming: but at most so many seconds, 900 unless it is given",
    "startingPosition": "streaming: earliest, latest, a position or a time, without a checkpoint",
    "onGap": "streaming: fail or skip, when retention was faster",
}
MODES = ("strict", "permissive")
PARTITION_BYTES = 64 << 20
PARTITIONS_MIN = 8
STARTS = ("earliest", "latest")
DELAY_SECONDS = 900
OF_A_TABLE = frozenset(
    [
        "owner",
        "location",
        "provider",
        "comment",
        "collation",
        "external",
        "is_managed_location",
        "table_type",
    ]
)
"""What Spark itself adds to the options of a table that CREATE TABLE makes. It also repeats each
option with `option.` in front."""
LISTS = {
    "paths": 'as ["/data/a", "/data/b"]; load([...]) writes it for you',
    "topics": 'as ["orders", "emails"]; json.dumps(topics) writes it',
}
BOUNDS = ("From", "Before")
QUEUE_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of one read."""

    paths: tuple[str, ...]
    view: str = "messages"
    columns: tuple[str, ...] | None = None
    permissive: bool = False
    split_bytes: int = SPLIT_BYTES
    records_max: int | None = None
    bytes_max: int | None = None
    from_latest: bool = False
    from_position: int | None = None
    from_time_us: int | None = None
    records_min: int | None = None
    delay_seconds: int = DELAY_SECONDS
    partition_bytes: int = PARTITION_BYTES
    partitions_min: int = PARTITIONS_MIN
    skip_gaps: bool = False
    wanted: Selection = EVERYTHING


def parse(given: Mapping[str, str]) -> ReadOptions:
    """Return the options that Spark passes, whose names may be in any case. Raises BadOption."""
    by_name = {name.lower(): name for name in KNOWN}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in OF_A_TABLE or name.lower().startswith("option."):
            continue
        check_choice("option", by_name.get(name.lower(), name), KNOWN)
        values[by_name[name.lower()]] = value
    view = values.get("view", "messages").strip().lower()
    check_choice("view", view, VIEWS)
    columns = values.get("columns")
    permissive = _choice(values, "mode", MODES) == "permissive" or view == "damage"
    start = values.get("startingPosition", "").strip()
    position = _whole("startingPosition", start, 0, LAST) if start.isdecimal() else None
    at = _time_us("startingPosition", start) if position is None and start[:1].isdigit() else None
    named = position is None and at is None
    latest = named and _choice(values, "startingPosition", STARTS) == "latest"
    return ReadOptions(
        _paths(values),
        view,
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
        permissive,
        _number(values, "splitBytes") or SPLIT_BYTES,
        _number(values, "maxRecordsPerTrigger"),
        _number(values, "maxBytesPerTrigger"),
        latest,
        position,
        at,
        _number(values, "minRecordsPerTrigger"),
        _number(values, "maxTriggerDelay") or DELAY_SECONDS,
        _number(values, "maxPartitionBytes") or PARTITION_BYTES,
        _number(values, "minPartitions") or PARTITIONS_MIN,
        _choice(values, "onGap", ("fail", "skip")) == "skip",
        _wanted(values, view),
    )


def _wanted(values: Mapping[str, str], view: str) -> Selection:
    """Return which rows the options choose. Raises BadOption for a column that `view` cannot
    compare.
    """
    for name in values:
        column = _column(name)
        if column in COMPARED["messages"] and column not in COMPARED[view]:
            can = [each for each in KNOWN if _column(each) in COMPARED[view]]
            raise BadOption(
                f"the view {view!r} has no option {name!r}. Nothing was read; the options that "
                f"choose its rows are: {', '.join(can) or 'none'}."
            )
    topics = _list(values, "topics") if "topics" in values else None
    if "topic" in values:
        topics = (values["topic"], *(topics or ()))
    queues = values["queue"].split(",") if "queue" in values else None
    return Selection(
        None if topics is None else frozenset(topics),
        None if queues is None else frozenset(_whole("queue", q, 0, QUEUE_MAX) for q in queues),
        _between(values, "offset", lambda name, text: _whole(name, text, 0, LAST)),
        _between(values, "position", lambda name, text: _whole(name, text, 0, LAST)),
        _between(values, "time", _time_us, EVERYTHING.time_us),
    )


def _column(option: str) -> str:
    """Return the column that `option` bounds, such as `offset` for `offsetFrom`; the option's own
    name if it bounds none.
    """
    for bound in BOUNDS:
        option = option.removesuffix(bound)
    return option


def _between(
    values: Mapping[str, str],
    column: str,
    number: Callable[[str, str], int],
    everything: RowRange = EVERYTHING.offset,
) -> RowRange:
    """Return the range from the option `...From` up to, not including, the option `...Before`."""
    low, high = (
        number(name, values[name]) if (name := f"{column}{bound}") in values else None
        for bound in BOUNDS
    )
    return RowRange(
        everything.low if low is None else low, everything.high if high is None else high - 1
    )


def _time_us(name: str, text: str) -> int:
    try:
        return as_us(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise BadOption(
            f"{name}={text!r}: must be a time in ISO 8601, as 2026-01-31 or "
            "2026-01-31T12:00:00+01:00; without a zone it is UTC. Nothing was read."
        ) from None


def _paths(values: Mapping[str, str]) -> tuple[str, ...]:
    paths = _list(values, "paths") if "paths" in values else ()
    if "path" in values:
        paths = (values["path"], *paths)
    if not any(path.strip() for path in paths):
        raise BadOption(
            'no directory was named. Nothing was read; spark.read.format("fmq").load("shop") does. '
            "Spark forgets the options of a table that CREATE TABLE has made: say them in a query "
            "(FROM shop WITH (path = '/data/shop')), or use CREATE TEMPORARY VIEW."
        )
    return paths


def _list(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        texts = json.loads(values[name])
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadOption(
            f"{name}={values[name]!r}: must be a list of texts in JSON, {LISTS[name]}. Nothing was "
            "read."
        )
    return tuple(texts)


def _choice(values: Mapping[str, str], name: str, known: tuple[str, str]) -> str:
    given = values.get(name, known[0]).strip()
    check_choice(f"value of {name}", given.lower(), known)
    return given.lower()


def _number(values: Mapping[str, str], name: str) -> int | None:
    return _whole(name, values[name], 1, LAST) if name in values else None


def _whole(name: str, given: str, least: int, most: int) -> int:
    """Return `given` as a whole number from `least` to `most`. Raises BadOption."""
    text = given.strip()
    if not text.isdecimal() or not least <= int(text) <= most:
        limit = "" if most == LAST else f" to {most}"
        raise BadOption(
            f"{name}={text!r}: must be a whole number from {least} on{limit}. Nothing was read."
        )
    return int(text)

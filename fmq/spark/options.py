"""The options of `spark.read.format("fmq")`, checked: a wrong one is told with its nearest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fmq.errors import BadOption
from fmq.table.schema import VIEWS, check_choice
from fmq.table.seen import SPLIT_BYTES

KNOWN = {
    "view": "messages, records, transactions or damage",
    "columns": "the columns to read, separated by commas",
    "mode": "strict, or permissive to leave out what is behind damage",
    "splitBytes": "how much of a large segment makes a partition, at least",
    "path": "the directory, or a pattern of several",
    "paths": "several, as a list in JSON; load([...]) sets it",
    "maxRecordsPerTrigger": "streaming: messages in a batch",
    "maxBytesPerTrigger": "streaming: bytes of the journal in a batch",
    "startingPosition": "streaming: earliest or latest, for a query that has no checkpoint",
    "onGap": "streaming: fail or skip, when retention was faster",
}
MODES = ("strict", "permissive")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What somebody wants to read."""

    paths: tuple[str, ...]
    view: str = "messages"
    columns: tuple[str, ...] | None = None
    permissive: bool = False
    split_bytes: int = SPLIT_BYTES
    records_max: int | None = None
    bytes_max: int | None = None
    from_latest: bool = False
    skip_gaps: bool = False


def parse(given: Mapping[str, str]) -> ReadOptions:
    """The options as Spark hands them over, names in any case; BadOption."""
    by_name = {name.lower(): name for name in KNOWN}
    values: dict[str, str] = {}
    for name, value in given.items():
        check_choice("option", by_name.get(name.lower(), name), KNOWN)
        values[by_name[name.lower()]] = value
    view = values.get("view", "messages").strip().lower()
    check_choice("view", view, VIEWS)
    columns = values.get("columns")
    permissive = _choice(values, "mode", MODES) == "permissive" or view == "damage"
    return ReadOptions(
        _paths(values),
        view,
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
        permissive,
        _number(values, "splitBytes") or SPLIT_BYTES,
        _number(values, "maxRecordsPerTrigger"),
        _number(values, "maxBytesPerTrigger"),
        _choice(values, "startingPosition", ("earliest", "latest")) == "latest",
        _choice(values, "onGap", ("fail", "skip")) == "skip",
    )


def _paths(values: Mapping[str, str]) -> tuple[str, ...]:
    paths = _list(values["paths"]) if "paths" in values else ()
    if "path" in values:
        paths = (values["path"], *paths)
    if not any(path.strip() for path in paths):
        raise BadOption(
            'no directory was named. Nothing was read; spark.read.format("fmq").load("shop") does.'
        )
    return paths


def _list(text: str) -> tuple[str, ...]:
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadOption(
            f'paths={text!r}: must be a list of texts in JSON, as ["/data/a", "/data/b"]. '
            "Nothing was read; load([...]) writes it for you."
        )
    return tuple(paths)


def _choice(values: Mapping[str, str], name: str, known: tuple[str, str]) -> str:
    given = values.get(name, known[0]).strip()
    check_choice(f"value of {name}", given.lower(), known)
    return given.lower()


def _number(values: Mapping[str, str], name: str) -> int | None:
    if name not in values:
        return None
    text = values[name].strip()
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"{name}={text!r}: must be a whole number from 1 on. Nothing was read.")
    return int(text)

"""Which options belong to the directory, and hold for all who use it, and which to each opening.

An option of the directory is stored in its journal. Before somebody has named a value, each opening
has its own, and the first that names one stores it. From then on the stored one counts. All other
options are about one process: how it does its work, and what its machine allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from fmq.arguments.options import Options
from fmq.errors import BadOption

OptionSource = Literal["directory", "opening", "default"]

AT_ONCE = frozenset((
    *("retain_acked_bytes", "retain_bytes", "retain_seconds", "keep_unread"),
    *("outcome_window_seconds", "lease_seconds", "member_timeout_seconds", "queues"),
    *("message_bytes_max", "transaction_messages_max", "transactions_max"),
    *("undecided_messages_max", "undecided_bytes_max", "producer_share"),
    *("check_after_seconds", "check_lease_seconds", "check_backoff_seconds"),
    *("on_undecided", "check_answers_max"),
))  # fmt: skip
"""Options of the directory that a running engine takes over."""
AT_OPENING = frozenset((
    *("sync", "sync_interval_seconds", "segment_bytes", "message_ids_kept", "message_id_seconds"),
    "reclaim_seconds",
))  # fmt: skip
"""Options of the directory that count from the next opening on: what is running was built with
them.
"""
STORED = AT_ONCE | AT_OPENING
# Only engine.configure() stores it. Until then each opening says how large new segments are.
NOT_BY_OPENING = frozenset(("segment_bytes",))
DEFAULTS: dict[str, Any] = {each.name: getattr(Options(), each.name) for each in fields(Options)}


@dataclass(frozen=True, slots=True)
class Setting:
    """One option, with its value and with where the value comes from."""

    name: str
    value: Any
    """What counts in the running engine. In an engine that only reads: what will count."""
    default: Any
    source: OptionSource
    """The directory, if it is stored there; this opening, if that names it; else the default."""
    in_directory: bool
    """Whether it belongs to the directory, and `engine.configure` stores it."""
    waits: bool = False
    """True if another value is stored, which counts from the next opening on."""


def all_named(options: Options | None) -> dict[str, Any]:
    """Return the options that a program has named, with their values. Raises TypeError."""
    if options is None:
        return {}
    if not isinstance(options, Options):
        raise TypeError(
            f"{options!r:.80}: options are an fmq.Options, as in "
            "engine.configure(fmq.Options(lease_seconds=60.0)). Nothing was changed."
        )
    return {
        name: value
        for name, default in DEFAULTS.items()
        if (value := getattr(options, name)) != default or name in options.given
    }


def named_by(options: Options) -> dict[str, Any]:
    """Return the options that a program has named and that belong to the directory."""
    return {name: value for name, value in all_named(options).items() if name in STORED}


def new_by(options: Options, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an opening with `options` stores: each value that differs from its default and
    whose option is not stored yet.
    """
    return {
        name: value
        for name, value in named_by(options).items()
        if value != DEFAULTS[name] and name not in stored and name not in NOT_BY_OPENING
    }


def with_stored(options: Options, stored: Mapping[str, Any]) -> Options:
    """Return the options that count in an engine opened with `options`."""
    return replace(options, **sound(stored))


def sound(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored options, but leave out options that this version does not know or
    refuses.
    """
    found = {}
    for name, value in stored.items():
        if name in STORED:
            try:
                Options(**{name: value})
            except BadOption:
                continue  # a newer fmq has stored it
            found[name] = value
    return found


def check_configured(
    values: Mapping[str, Any], reset: Iterable[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return both arguments, checked. Raises BadOption for an option that does not belong to the
    directory, or for a value that it cannot have.
    """
    if isinstance(reset, str) or not isinstance(reset, Iterable):
        raise TypeError(f"reset= takes a list of names of options, not {type(reset).__name__}")
    reset = [*reset]
    for name in (*values, *reset):
        if name not in DEFAULTS:
            raise BadOption(f"{name!r:.80}: no option has this name. Nothing was changed.")
        if name not in STORED:
            raise BadOption(
                f"{name}: each opening has its own, so the directory does not store it. Nothing "
                f"was changed. Stored are {', '.join(sorted(STORED))}."
            )
        if name in values and name in reset:
            raise BadOption(f"{name}: is set and reset in one call. Nothing was changed.")
    Options(**values)
    return dict(values), reset


def overwrite(options: Options, values: Mapping[str, Any]) -> None:
    """Change `options`, the engine's own copy of the options that it was given. Code that reads an
    option at each use sees the new value.
    """
    for name, value in values.items():
        object.__setattr__(options, name, value)


def settings(opened: Options, counts: Options, stored: Mapping[str, Any]) -> list[Setting]:
    """Return all options. `opened` are the options of the opening, and `counts` the values that
    count now.
    """
    known = sound(stored)
    found = []
    for name, default in DEFAULTS.items():
        value, own = getattr(counts, name), getattr(opened, name)
        by_opening: OptionSource = (
            "opening" if name in opened.given or own != default else "default"
        )
        source: OptionSource = "directory" if name in known else by_opening
        waits = name in STORED and value != known.get(name, own)
        found.append(Setting(name, value, default, source, name in STORED, waits))
    return found


def others_of(options: Options, stored: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the options that a program has named with another value than the stored one. Each name
    leads to the program's value and the stored value.
    """
    known = sound(stored)
    return {
        name: (value, known[name])
        for name, value in named_by(options).items()
        if name in known and known[name] != value
    }


def told(path: str, others: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the text that tells a program of values that do not count."""
    said = ", ".join(
        f"{name}={stored!r} is stored and counts, not {own!r}"
        for name, (own, stored) in others.items()
    )
    change = " ".join(f"{name}={own}" for name, (own, _) in others.items())
    return (
        f"{path}: {said}. Options of a directory hold for all who use it; "
        f"`fmq config {path} {change}`, or engine.configure(), changes them for all"
    )

"""Counts what the records of a journal say, in equal spans of time from its oldest record on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmq import table
from fmq.basics.clock import as_datetime

SPANS = 64
SECOND_US = 1_000_000
SHARES = (0.5, 0.9, 0.99, 1.0)
PUBLISHED = ("MESSAGE", "TX_MESSAGE", "REF_MESSAGE")
INTERNAL = "fmq:"
SLOWEST = 10


class Curve:
    """How much came in each span of time. The spans become twice as long when time goes beyond the
    last one.
    """

    def __init__(self, start_us: int) -> None:
        self.start_us = start_us
        self.width_us = SECOND_US
        self._counts = np.zeros(SPANS)

    def add(self, times_us: Any, amounts: Any) -> None:
        """Add an amount at each time."""
        if not len(times_us):
            return
        self.reach((int(times_us.max()) - self.start_us) // SPANS + 1)
        # A clock that was set back gives times before the first one.
        at = np.clip((times_us - self.start_us) // self.width_us, 0, SPANS - 1)
        self._counts += np.bincount(at, amounts, minlength=SPANS)

    def reach(self, width_us: int) -> None:
        """Let a span be at least as long as this."""
        while self.width_us < width_us:
            pairs = self._counts.reshape(SPANS // 2, 2).sum(axis=1)
            self._counts = np.concatenate([pairs, np.zeros(SPANS // 2)])
            self.width_us *= 2

    @property
    def values(self) -> list[float]:
        return [float(each) for each in self._counts]

    @property
    def total(self) -> int:
        return round(float(self._counts.sum()))


@dataclass(slots=True)
class JournalReport:
    """What a journal has done."""

    path: str
    start: datetime | None = None
    """When its oldest record was written; None if it has no records."""
    end: datetime | None = None
    width_seconds: float = 0.0
    """How long one span of a curve is."""
    grows: Curve = field(default_factory=lambda: Curve(0))
    """Bytes of the journal."""
    sent: dict[str, Curve] = field(default_factory=dict)
    """Messages that were published, by topic."""
    acked: dict[str, Curve] = field(default_factory=dict)
    """Messages with which a group is done, by group."""
    dead: dict[str, Curve] = field(default_factory=dict)
    """Messages that a group has given up, by group."""
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Why, by group and reason."""
    states: Counter[str] = field(default_factory=Counter)
    """Transactions, by what became of them."""
    took_seconds: dict[float, float] = field(default_factory=dict)
    """In how many seconds a share of the prepared transactions was committed."""
    slowest: list[dict[str, Any]] = field(default_factory=list)
    """Transactions that took longest, or are undecided."""


def report_of(path: str) -> JournalReport:
    """Read the journal in the directory at `path`."""
    found = JournalReport(path)
    start_us = _first_us(path)
    if start_us is None:
        return found
    found.grows = Curve(start_us)
    _count_sent(found, start_us)
    for group, times, amounts in _rows(path, "acks", "group", "messages"):
        found.acked.setdefault(group, Curve(start_us)).add(times, amounts)
    _count_dead(found, start_us)
    _count_transactions(found)
    curves = [found.grows, *found.sent.values(), *found.acked.values(), *found.dead.values()]
    width_us = max(each.width_us for each in curves)
    for each in curves:
        each.reach(width_us)
    found.width_seconds = width_us / SECOND_US
    return found


def _first_us(path: str) -> int | None:
    rows = table.read(path, "records", columns=["time"], limit_bytes=1).read_all()
    return rows["time"].cast(pa.int64())[0].as_py() if rows.num_rows else None


def _times(batch: Any) -> Any:
    return batch["time"].cast(pa.int64()).to_numpy(zero_copy_only=False)


def _count_sent(found: JournalReport, start_us: int) -> None:
    columns = ["kind", "topic", "messages", "size", "time"]
    last = start_us
    for batch in table.read(found.path, "records", columns=columns):
        times = _times(batch)
        last = max(last, int(times.max(initial=last)))
        found.grows.add(times, batch["size"].fill_null(0).to_numpy(zero_copy_only=False))
        is_published = pc.is_in(batch["kind"], pa.array(PUBLISHED))
        is_internal = pc.fill_null(pc.starts_with(batch["topic"], INTERNAL), True)
        rows = batch.filter(pc.and_not(is_published, is_internal))
        for topic, *part in _by(rows, "topic", "messages"):
            found.sent.setdefault(topic, Curve(start_us)).add(*part)
    found.start, found.end = as_datetime(start_us), as_datetime(last)


def _rows(path: str, view: str, name: str, amount: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield for each name its times and amounts. What retention has carried forward is left out,
    because an earlier record said it.
    """
    for batch in table.read(path, view, columns=[name, amount, "time", "carried"]):
        yield from _by(batch.filter(pc.invert(batch["carried"])), name, amount)


def _by(batch: Any, name: str, amount: str) -> Iterator[tuple[str, Any, Any]]:
    names = batch[name].dictionary_encode()
    which = names.indices.to_numpy(zero_copy_only=False)
    times, amounts = _times(batch), batch[amount].to_numpy(zero_copy_only=False)
    for number, each in enumerate(names.dictionary.to_pylist()):
        yield each, times[which == number], amounts[which == number]


def _count_dead(found: JournalReport, start_us: int) -> None:
    columns = ["group", "reason", "time", "event", "carried"]
    for batch in table.read(found.path, "dead_letters", columns=columns):
        is_new = pc.and_not(pc.equal(batch["event"], "dead"), batch["carried"])
        rows = batch.filter(is_new)
        ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
        for group, *part in _by(rows.append_column("messages", ones), "group", "messages"):
            found.dead.setdefault(group, Curve(start_us)).add(*part)
        found.reasons.update(
            zip(rows["group"].to_pylist(), rows["reason"].to_pylist(), strict=True)
        )


def _count_transactions(found: JournalReport) -> None:
    columns = ["tx_id", "state", "producer", "prepared", "duration_us", "messages", "decided_by"]
    took, rows = [], []
    for batch in table.read(found.path, "transactions", columns=columns):
        found.states.update(batch["state"].to_pylist())
        # What was prepared and decided in one append has no time in between.
        is_prepared = pc.fill_null(pc.not_equal(batch["duration_us"], 0), True)
        prepared = batch.filter(is_prepared)
        is_committed = pc.equal(prepared["state"], "committed")
        took.append(prepared.filter(is_committed)["duration_us"].to_numpy(zero_copy_only=False))
        # The longest first; what is undecided has no duration yet.
        order = pc.fill_null(prepared["duration_us"], 1 << 62)
        by_time = pc.array_sort_indices(order, order="descending")
        rows += prepared.take(by_time[:SLOWEST]).to_pylist()
    times = np.concatenate(took) if took else np.zeros(0)
    if len(times):
        found.took_seconds = {
            share: float(each) / SECOND_US
            for share, each in zip(SHARES, np.quantile(times, SHARES), strict=True)
        }
    rows.sort(key=lambda row: (row["duration_us"] is not None, -(row["duration_us"] or 0)))
    found.slowest = rows[:SLOWEST]

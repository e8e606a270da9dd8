"""The audit of a table: does it have exactly the messages that the journals show?

The table says up to which position it has a journal. Up to there every message must be in it once,
with all of its values; behind it there must be nothing. Both sides are read anew, in parts of whole
appends, so a transaction is looked at as a whole. Messages are found by indexes, and COMMITs in the
journal itself: so what these state is compared, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fmq.lake.lake_errors import OtherTable, check_columns
from fmq.lake.lake_rows import LakeRows, rows_at
from fmq.lake.table_part import TablePart
from fmq.lake.transaction_counts import COUNTED, STATED, counted_in, stated_by
from fmq.table.fleet import see_all
from fmq.table.read import rows_of
from fmq.table.read_range import ReadRange, range_of
from fmq.table.schema import schema_of
from fmq.table.selection import Selection
from fmq.table.snapshot import Snapshot
from fmq.table.stream import BatchRoom

PART_ROWS = 100_000
PART_BYTES = 256 << 20
LISTED_MAX = 1_000
UNIQUE = ("topic", "queue", "offset")
NEEDED = ("store", "position", *UNIQUE)


class LakeFinding(NamedTuple):
    """One thing that is wrong in a table."""

    kind: str
    """`missing`, `half` (a transaction of which other rows are there), `doubled`, `unknown` (no
    such message is visible), `differs`, `beyond` (a row behind the position that the table names),
    `ahead` (a position behind the journal's end), `foreign` (rows of a store of which the table
    names no position) or `unstated` (a COMMIT states another number of messages)."""
    path: str
    topic: str | None
    queue: int | None
    offset: int | None
    position: int
    tx_id: str | None
    reason: str


class AuditProgress(NamedTuple):
    """How far an audit is."""

    rows: int
    bytes: int
    """Of the journals, as is `bytes_total`."""
    bytes_total: int


class LakeAudit(NamedTuple):
    """What an audit has seen."""

    rows: int
    """Messages of the journals that were compared."""
    transactions: int
    older: int
    """Rows of what retention has dropped from the journals, which nothing can be compared with."""
    others: int
    """Rows of stores that were not given."""
    wrong: int
    findings: tuple[LakeFinding, ...]
    """The first 1,000 of what is wrong."""

    @property
    def ok(self) -> bool:
        return not self.wrong


def audit(
    paths: str | Sequence[str],
    url: str,
    *,
    to: str,
    options: Mapping[str, str] | None = None,
    progress: Callable[[AuditProgress], None] | None = None,
    part_rows: int = PART_ROWS,
) -> LakeAudit:
    """Compare the messages of the journals in `paths` with the rows of the table at `url`, up to
    where the table says it is. Engines and deliveries may go on meanwhile. Nothing is written.

    Columns that the table lacks are not compared; it needs store, topic, queue, offset and
    position. Raises OtherTable if there is no table, or if it is not one of messages.
    """
    several = [paths] if isinstance(paths, str) else list(paths)
    with closing(rows_at(url, to, options)) as table:
        check_columns(url, "table", NEEDED, table.columns)
        # The journals are looked at after the table, so they have all that it has.
        seen = _Audit(url, table, progress, part_rows)
        return seen.of(list(see_all(several)))


class _Audit:
    """One run, and what it has counted."""

    def __init__(
        self,
        url: str,
        table: LakeRows,
        progress: Callable[[AuditProgress], None] | None,
        part_rows: int,
    ) -> None:
        self._url = url
        self._table = table
        self._progress = progress
        self._part_rows = part_rows
        self._wanted = Selection(table.topics)
        known = schema_of("messages", None, fleet=True)
        self._schema = pa.schema([field for field in known if field.name in set(table.columns)])
        self._findings: list[LakeFinding] = []
        self._wrong = self._rows = self._transactions = self._bytes = 0

    def of(self, journals: Sequence[Snapshot]) -> LakeAudit:
        table, stores = self._table, [journal.store.hex() for journal in journals]
        ends = [table.position(store) or 0 for store in stores]
        total = sum(max(0, end - each.first) for each, end in zip(journals, ends, strict=True))
        older = 0
        for journal, end in zip(journals, ends, strict=True):
            store = journal.store.hex()
            self._compare_journal(journal, end, total)
            self._note_beyond(journal, end)
            older += table.count(TablePart(store, None, min(journal.first, end)))
        others = table.count() - sum(table.count(TablePart(store)) for store in stores)
        if others:
            self._note_foreign(others, stores)
        found = tuple(self._findings)
        return LakeAudit(self._rows, self._transactions, older, others, self._wrong, found)

    def _compare_journal(self, journal: Snapshot, end: int, total: int) -> None:
        if end > journal.visible_to:
            self._note(
                "ahead",
                journal,
                {"position": end},
                f"the table says that it has the journal up to {end}, which ends at "
                f"{journal.visible_to}: the directory is an older copy, or the position was moved",
            )
        for part in self._parts(journal, min(end, journal.visible_to)):
            self._compare(journal, part)
            self._bytes += part.end - part.first
            if self._progress is not None:
                self._progress(AuditProgress(self._rows, self._bytes, total))

    def _parts(self, journal: Snapshot, end: int) -> Iterator[ReadRange]:
        first: int | None = None
        while (first or journal.first) < end:
            room = BatchRoom(self._part_rows, PART_BYTES)
            part = range_of(journal, first, end, room)
            if part.first >= part.end:
                return  # the table names a position inside of an append: its rows are `beyond`
            yield part
            first = part.end

    def _compare(self, journal: Snapshot, part: ReadRange) -> None:
        batches = list(rows_of(journal, part, "messages", self._schema, self._wanted))
        wanted = _ordered(pa.Table.from_batches(batches, self._schema))
        self._rows += wanted.num_rows
        if "tx_id" in self._schema.names:
            self._transactions += pc.count_distinct(wanted.column("tx_id")).as_py()
        got = self._read(TablePart(part.store, part.first, part.end))
        if not got.equals(wanted):
            self._note_differences(journal, wanted.to_pylist(), got.to_pylist())
        elif {*COUNTED} <= {*self._schema.names}:
            self._compare_counts(journal, part, got)

    def _compare_counts(self, journal: Snapshot, part: ReadRange, rows: pa.Table) -> None:
        decided = rows_of(journal, part, "transactions", STATED)
        stated, counted = stated_by(decided, self._wanted), counted_in(rows)
        if stated == counted:
            return
        for tx_id in sorted(stated.keys() | counted.keys()):
            said, has = stated.get(tx_id, 0), counted.get(tx_id, 0)
            if said != has:
                what = f"its COMMIT states {said} messages here, and the journal shows {has}"
                self._note("unstated", journal, {"position": part.first, "tx_id": tx_id}, what)

    def _read(self, part: TablePart) -> pa.Table:
        found = self._table.read(part, self._schema.names).select(self._schema.names)
        try:
            return _ordered(found.cast(self._schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OtherTable(
                f"{self._url}: its columns have other types than messages have: {error}. Nothing "
                "was written."
            ) from error

    # --- what is wrong --------------------------------------------------------------------------

    def _note_differences(
        self, journal: Snapshot, wanted: list[dict[str, Any]], got: list[dict[str, Any]]
    ) -> None:
        rows = {_key(row): row for row in wanted}
        times = Counter(map(_key, got))
        there = Counter(row.get("tx_id") for key, row in rows.items() if key in times)
        for key, row in rows.items():
            if key not in times:
                self._note_missing(journal, row, there[row.get("tx_id")])
        for row in got:
            key = _key(row)
            if key not in rows:
                what = "the journal shows no such message here"
                self._note("unknown", journal, row, what)
            elif row != rows[key]:
                names = [name for name, value in rows[key].items() if row[name] != value]
                what = f"the journal has another {', '.join(names)}"
                self._note("differs", journal, row, what)
        for key, count in times.items():
            if count > 1 and key in rows:
                self._note("doubled", journal, rows[key], f"the table has it {count} times")

    def _note_missing(self, journal: Snapshot, row: dict[str, Any], there: int) -> None:
        if row.get("tx_id") is None or not there:
            self._note("missing", journal, row, "the table lacks it")
        else:
            what = f"the table lacks it, but has {there} others of its transaction"
            self._note("half", journal, row, what)

    def _note_beyond(self, journal: Snapshot, end: int) -> None:
        names = [name for name in (*NEEDED, "tx_id") if name in self._schema.names]
        rows = self._table.read(TablePart(journal.store.hex(), end), names)
        what = f"the table says that it is at {end}, so a delivery adds the row again"
        for row in rows.to_pylist():
            self._note("beyond", journal, row, what)

    def _note_foreign(self, others: int, stores: Sequence[str]) -> None:
        """Others may have delivered their journals into the table. Then it names positions."""
        for store in sorted(self._table.stores() - {*stores}):
            if self._table.position(store) is None:
                count = self._table.count(TablePart(store))
                what = f"{count} of {others} rows of other stores: the table names no position"
                self._add(LakeFinding("foreign", f"store {store}", None, None, None, 0, None, what))

    def _note(self, kind: str, journal: Snapshot, row: Mapping[str, Any], what: str) -> None:
        place = {name: row.get(name) for name in ("topic", "queue", "offset", "tx_id")}
        self._add(LakeFinding(kind, journal.path, position=row["position"], reason=what, **place))

    def _add(self, finding: LakeFinding) -> None:
        self._wrong += 1
        if len(self._findings) < LISTED_MAX:
            self._findings.append(finding)


def _ordered(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in UNIQUE])


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in UNIQUE)

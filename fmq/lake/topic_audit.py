"""The audit between two topics: is what jobs have made of the one there once in the other?

A job is a mark and a value (fmq/intake), and its rows say so: their producer names the mark, and
the decision that shows them moves it. So a value that was decided twice, rows that no move of the
mark has shown, and values that were left out can be seen in the journal alone. With a column that
both topics have, each message is looked for, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from fmq.basics.job_names import PRODUCER, value_of
from fmq.errors import BadOption
from fmq.lake.lake_audit import LISTED_MAX, LakeFinding
from fmq.table.read import read

STREAM = "spark/"
"""What the marks of streams begin with. Their values count the batches, so none is left out."""
COLUMNS = ("key", "tag", "message_id", "body")


class TopicAudit(NamedTuple):
    """What an audit between two topics has seen."""

    rows: int
    """Messages of the second topic that jobs with a mark have written."""
    jobs: int
    """Values of marks that have shown them."""
    others: int
    """Messages of the second topic that are of no job, or of one without a mark."""
    waiting: int
    """Messages at the end of the first topic's queues that are not in the second one yet."""
    wrong: int
    findings: tuple[LakeFinding, ...]
    """The first 1,000 of what is wrong: `twice`, `back`, `unmarked`, `skipped` or `left` for a job;
    `missing`, `doubled` or `unknown` for a message."""

    @property
    def ok(self) -> bool:
        return not self.wrong


def audit_between(path: str, source: str, target: str, *, by: str | None = None) -> TopicAudit:
    """Look whether what jobs with a mark have made of the topic `source` is in `target` once.

    Without `by` the jobs alone are looked at. With it, the name of a column such as `key` or
    `body`, each message of `source` has to have one in `target` with the same value. The values are
    held in memory. An engine may run meanwhile. Nothing is written.
    """
    if by is not None and by not in COLUMNS:
        raise BadOption(
            f"by={by!r}: messages are compared by {', '.join(COLUMNS)}. Nothing was read."
        )
    return _TopicAudit(path, source, target).of(by)


class _TopicAudit:
    """One run, and what it has found."""

    def __init__(self, path: str, source: str, target: str) -> None:
        self._path, self._source, self._target = path, source, target
        self._findings: list[LakeFinding] = []
        self._wrong = 0

    def of(self, by: str | None) -> TopicAudit:
        end = read(self._path, columns=["position"]).end
        columns = ["position", "queue", "offset", "tx_id", "producer", *filter(None, [by])]
        rows = self._rows("messages", columns, end, self._target)
        shown = self._jobs(rows, end)
        known = sum(shown[row["tx_id"]] is not None for row in rows if row["tx_id"] in shown)
        waiting = 0
        if by is not None:
            columns = ["position", "queue", "offset", by]
            made = self._rows("messages", columns, end, self._source)
            waiting = self._compare(made, rows, by)
        jobs = len({job for job in shown.values() if job is not None})
        findings = tuple(self._findings)
        return TopicAudit(known, jobs, len(rows) - known, waiting, self._wrong, findings)

    def _rows(
        self, view: str, columns: list[str], until: int | None, topic: str | None = None
    ) -> list[dict[str, Any]]:
        found = read(self._path, view, columns=columns, until=until, topic=topic)
        return found.read_all().to_pylist()  # type: ignore[no-any-return]

    # --- jobs -----------------------------------------------------------------------------------

    def _jobs(self, rows: list[dict[str, Any]], end: int) -> dict[str, tuple[str, int] | None]:
        """Note what is wrong with jobs. Return which one has shown each transaction with rows."""
        moves = self._moves(end)
        columns = ["tx_id", "state", "producer", "joint", "position"]
        decided = self._rows("transactions", columns, end)
        marks = {name for name, _ in moves.values()}
        first_rows = {row["tx_id"]: row for row in reversed(rows)}
        shown: dict[str, tuple[str, int] | None] = {}
        for tx in decided:
            mark = (tx["producer"] or "").removeprefix(PRODUCER)
            row = first_rows.get(tx["tx_id"])
            if tx["state"] != "committed" or row is None or mark == tx["producer"]:
                continue
            joint = tx["joint"]
            job = moves.get(tx["tx_id"] if joint is None else joint)
            shown[tx["tx_id"]] = job
            if job is None or job[0] != mark:
                if mark in marks:
                    what = f"it was written for the mark {mark!r}, which did not move with it"
                    self._note("unmarked", row, what, self._target)
            elif value_of(tx["tx_id"]) not in (None, job[1]):
                what = f"the mark {mark!r} moved to {job[1]} with it, and it is of another value"
                self._note("unmarked", row, what, self._target)
        self._note_left(dict(moves.values()))
        return shown

    def _moves(self, end: int) -> dict[Any, tuple[str, int]]:
        """Return what each decision has moved: by the id of its transaction, or by the position of
        the joint decision. Note values that do not rise.
        """
        columns = ["position", "name", "value", "tx_id", "carried", "removed"]
        moves: dict[Any, tuple[str, int]] = {}
        last: dict[str, int] = {}
        for row in self._rows("marks", columns, end):
            name = row["name"]
            if row["removed"]:
                last.pop(name, None)
                continue
            value, before = int(row["value"]), last.get(name)
            last[name] = value
            if row["carried"]:
                continue
            moves[row["tx_id"] or row["position"]] = name, value
            if before is None:
                continue
            if value == before:
                self._note("twice", row, f"the mark {name!r} was moved to {value} before")
            elif value < before:
                self._note("back", row, f"the mark {name!r} had {before}, and moved to {value}")
            elif name.startswith(STREAM) and value > before + 1:
                what = f"the mark {name!r} moved from {before} to {value}: a batch was left out"
                self._note("skipped", row, what)
        return moves

    def _note_left(self, values: dict[str, int]) -> None:
        """Note what is prepared for a job whose mark has moved on."""
        columns = ["tx_id", "state", "producer", "position"]
        for tx in self._rows("transactions", columns, None):
            mark = (tx["producer"] or "").removeprefix(PRODUCER)
            value = value_of(tx["tx_id"])
            if tx["state"] == "undecided" and value is not None and value <= values.get(mark, -1):
                what = f"{tx['tx_id']} is undecided, and the mark {mark!r} is at {values[mark]}"
                self._note("left", tx, what)

    # --- messages -------------------------------------------------------------------------------

    def _compare(self, made: list[dict[str, Any]], rows: list[dict[str, Any]], by: str) -> int:
        """Note each message that is missing, doubled or unknown. Return how many wait."""
        wanted, got = Counter(row[by] for row in made), Counter(row[by] for row in rows)
        reached: dict[int, int] = defaultdict(lambda: -1)
        for row in made:
            if got[row[by]]:
                reached[row["queue"]] = max(reached[row["queue"]], row["offset"])
        waiting = 0
        for row in _surplus(made, wanted - got, by):
            if row["offset"] > reached[row["queue"]]:
                waiting += 1
            else:
                what = f"{self._target} lacks it: {by} {row[by]!r:.60}"
                self._note("missing", row, what, self._source)
        for row in _surplus(rows, got - wanted, by):
            times = wanted[row[by]]
            kind, what = "unknown", f"{self._source} has no such message"
            if times:
                kind, what = "doubled", f"it is there {got[row[by]]} times, and was {times}"
            self._note(kind, row, f"{what}: {by} {row[by]!r:.60}", self._target)
        return waiting

    def _note(self, kind: str, row: dict[str, Any], what: str, topic: str | None = None) -> None:
        self._wrong += 1
        if len(self._findings) < LISTED_MAX:
            place = row.get("queue"), row.get("offset"), row["position"], row.get("tx_id")
            self._findings.append(LakeFinding(kind, self._path, topic, *place, what))


def _surplus(rows: list[dict[str, Any]], more: Counter[Any], by: str) -> Iterable[dict[str, Any]]:
    """Yield the last rows with values that are there more often than they should be."""
    left = Counter(more)
    for row in reversed(rows):
        if left[row[by]] > 0:
            left[row[by]] -= 1
            yield row

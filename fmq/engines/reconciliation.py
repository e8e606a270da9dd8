"""`fmq.reconcile`: what a journal and the database that is bound to it say of each other's
transactions, after one of them was put back to an earlier time.

Each committed bound transaction has a marker in the database, and each marker a COMMIT in the
journal. Both sides forget: maintenance removes old markers, and retention drops old segments. So
the absence of something counts only where its side certainly remembers. The rest is counted apart.

The journal is read first, then the markers, then what was appended meanwhile: a marker is never
older than its PREPARE. So both may be in use. In memory there are a few numbers for each bound
transaction. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from fmq.arguments.names import check_seconds
from fmq.arguments.path import PathLike, check_local, text_of
from fmq.basics.clock import as_datetime
from fmq.basics.results import Outcome
from fmq.bind.bind_errors import never_bound
from fmq.bind.dialects import MarkerRow, MarkerRows
from fmq.bind.drivers import database_at
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk
from fmq.posix import RealDisk
from fmq.recovery.layout import look, look_for_journal, store_of
from fmq.recovery.walk import ReadAppend, Walk
from fmq.store.bytes.kinds import Decided, Kind, Prepare, Run
from fmq.tx.looks.outcomes import outcome_of
from fmq.tx.looks.receipts import receipt_of

Progress = Callable[[int, int], object]
TOLD_EACH_BYTES = 1 << 20  # how often progress is told


@dataclass(frozen=True, slots=True)
class LackingMessages:
    """A committed transaction of the database, whose messages the journal does not have."""

    tx_id: str
    marked_at: datetime
    """When its marker was made, by the database's clock."""
    journal: Literal["absent", "rolled back"]
    """What the journal says of it."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What `fmq.reconcile` found."""

    path: str
    producers: tuple[str, ...]
    """Those that are bound to the database. Only their transactions are compared."""
    other_producers: tuple[str, ...]
    """Those that have bound transactions in the journal, of which the database knows nothing. They
    belong to another database, or this one was put back to before their first transaction.
    """
    agreed: int
    """How many committed transactions both sides have."""
    undecided: int
    """How many of `producers` are undecided in the journal. Their checkers ask the database."""
    undecided_elsewhere: int
    """How many more are undecided, which are not bound to this database. It cannot say what is to
    become of them.
    """
    gone: tuple[Outcome, ...]
    """Committed transactions of the journal whose rows the database does not have. Their receipts
    say where the messages are.
    """
    lacking: tuple[LackingMessages, ...]
    unknown_transactions: int
    """How many committed transactions of the journal have no marker, and are so old that it may
    have been removed.
    """
    unknown_markers: int
    """How many markers have no transaction in the journal, and are so old that retention may have
    dropped it.
    """
    markers_from: datetime | None
    """What was prepared at this time or later still has its marker, if it has committed; None if
    nothing is known of any time.
    """
    journal_from: datetime | None
    """What was marked at this time or later is still in the journal; None if all is."""

    @property
    def ok(self) -> bool:
        """Return whether no difference was found."""
        return not (self.gone or self.lacking)


class SeenTransaction(NamedTuple):
    """What the journal says of one bound transaction so far."""

    tx_id: str
    producer: str
    prepared_us: int
    # False if retention has dropped the PREPARE, which says whether the transaction was bound.
    known_bound: bool
    decided_us: int = 0  # 0 while the transaction is undecided
    committed: bool = False
    position: int = 0  # the position of the decision


def reconcile(
    path: str | PathLike,
    database: object,
    *,
    kept_seconds: float | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
) -> Reconciliation:
    """Compare the journal in the directory `path` with the markers in `database`, and say which
    transactions only one of them has. Nothing is changed, and both may be in use.

    `database` is an address as for `fmq.open(resolve=)`. `kept_seconds` says how long all programs
    certainly keep markers: 604,800 if none calls `fmq.bind.purge` with less. Without it, only the
    oldest marker that is there proves how far back they go. `progress` is called with the bytes of
    the journal that were read so far, and how many there are.

    Raises NotAStore, Damaged and BindError if there is nothing to compare.
    """
    where = check_local(text_of(path))
    if kept_seconds is not None:
        kept_seconds = check_seconds("kept_seconds", kept_seconds)
    source = database_at(database)
    disk = disk or RealDisk()
    with unreadable_within(where), closing(disk.directory(where, make=False)) as directory:
        layout = look_for_journal(directory, where, "compare")
        history = History(directory)
        history.read(progress)
        end = history.position
        markers = source.markers(store_of(directory, layout).hex())
        if not markers.producers:
            raise never_bound(database, where)
        history.read()
        compared = _Comparison(history, end, markers, kept_seconds)
        gone = frozenset(seen.position for seen in compared.gone())
        lacking = tuple(compared.lacking())
        return Reconciliation(
            path=where,
            producers=tuple(sorted(markers.producers)),
            other_producers=tuple(sorted(compared.other_producers)),
            agreed=compared.agreed,
            undecided=compared.undecided(),
            undecided_elsewhere=len(history.unbound) + compared.undecided(elsewhere=True),
            gone=tuple(_outcomes(directory, gone)),
            lacking=lacking,
            unknown_transactions=compared.unknown_transactions,
            unknown_markers=compared.unknown_markers,
            markers_from=_moment(compared.markers_from_us),
            journal_from=_moment(compared.journal_from_us),
        )


def _moment(time_us: int | None) -> datetime | None:
    return None if time_us is None else as_datetime(time_us)


class History:
    """The bound transactions of a journal, by their tx_id, up to a position."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.position = 0
        self._numbers: dict[int, str] = {}  # the tx_id of each bound transaction, by its number
        self.seen: dict[str, SeenTransaction] = {}
        self.unbound: set[str] = set()  # undecided transactions that are bound to no database

    def read(self, progress: Progress | None = None) -> None:
        """Read what was appended since the last call. Raises Damaged."""
        bases = look(self._directory).bases
        first = told_to = bases[0]
        total = bases[-1] - first  # but for the last segment
        walk = Walk(self._directory, self.position)
        for append in walk:
            if progress is not None and walk.position - told_to >= TOLD_EACH_BYTES:
                told_to = walk.position
                progress(told_to - first, max(total, told_to - first))
            for record in append:
                if isinstance(record, Prepare):
                    self._prepared(record)
                elif isinstance(record, Decided):
                    self._decided(record, first)
        if walk.damage is not None:
            raise walk.damage
        self.position = walk.position
        if progress is not None:
            progress(walk.position - first, walk.position - first)

    def _prepared(self, record: Prepare) -> None:
        if not record.bound:
            self.unbound.add(record.tx_id)
            return
        self._numbers[record.tx or record.position] = record.tx_id
        seen = SeenTransaction(record.tx_id, record.producer, record.prepared_us, True)
        self.seen[record.tx_id] = seen

    def _decided(self, record: Decided, first: int) -> None:
        self.unbound.discard(record.tx_id)
        known_bound = self._numbers.get(record.tx) == record.tx_id
        if known_bound or record.tx < first:
            self.seen[record.tx_id] = SeenTransaction(
                record.tx_id,
                record.producer,
                record.prepared_us,
                known_bound,
                record.time_us,
                record.kind == Kind.COMMIT,
                record.position,
            )

    def begins_us(self) -> int | None:
        """Return the time of the first record that retention has left; None if it dropped none."""
        first = look(self._directory).bases[0]
        if first == 0:
            return None
        append = next(iter(Walk(self._directory, first)), None)
        return append[0].time_us if append else None


class _Comparison:
    """The journal, the markers that were read when it ended at position `end`, and what only one
    of them has.
    """

    def __init__(
        self, history: History, end: int, markers: MarkerRows, kept_seconds: float | None
    ) -> None:
        self._seen, self._end = history.seen, end
        self._producers = markers.producers
        self._rows = {row.tx_id: row for row in markers.rows}
        spread_us = markers.spread_seconds * 1_000_000
        begins_us = history.begins_us()
        self.journal_from_us = None if begins_us is None else begins_us + spread_us
        proofs_us = [*map(self._proof_us, markers.rows)]
        if kept_seconds is not None:
            proofs_us.append(_micros(markers.now - kept_seconds))
        known = [each for each in proofs_us if each is not None]
        self.markers_from_us = min(known) + spread_us if known else None
        self.agreed = self.unknown_transactions = self.unknown_markers = 0
        self.other_producers: set[str] = set()

    def _proof_us(self, row: MarkerRow) -> int | None:
        """Return a time from which on no marker was removed, as this one is still there.

        A purge removes all markers older than some age, except those of undecided transactions. So
        a marker proves nothing about the time before its transaction was decided.
        """
        if row.state != "C":
            return None
        seen = self._seen.get(row.tx_id)
        if seen is None:
            return _micros(row.created)
        return seen.decided_us or None

    def gone(self) -> Iterator[SeenTransaction]:
        """Yield the committed transactions whose rows are gone, and count the others."""
        for seen in self._seen.values():
            # The markers of later transactions may have been written after the rows were read.
            if not seen.committed or seen.position >= self._end:
                continue
            row = self._rows.get(seen.tx_id)
            if seen.producer not in self._producers:
                if seen.known_bound:
                    self.other_producers.add(seen.producer)
            elif row is not None and row.state == "C":
                self.agreed += 1
            elif row is not None or self._is_remembered(seen):
                yield seen
            else:
                self.unknown_transactions += 1

    def _is_remembered(self, seen: SeenTransaction) -> bool:
        """Return whether the marker of a transaction could not have been purged yet."""
        since = self.markers_from_us
        return seen.known_bound and since is not None and seen.prepared_us >= since

    def lacking(self) -> Iterator[LackingMessages]:
        """Yield the markers whose messages the journal does not have, and count the unknown."""
        for row in self._rows.values():
            if row.state != "C":
                continue
            seen, marked_at = self._seen.get(row.tx_id), as_datetime(_micros(row.created))
            if seen is None:
                since = self.journal_from_us
                if since is None or _micros(row.created) >= since:
                    yield LackingMessages(row.tx_id, marked_at, "absent")
                else:
                    self.unknown_markers += 1
            elif seen.decided_us and not seen.committed:
                yield LackingMessages(row.tx_id, marked_at, "rolled back")

    def undecided(self, *, elsewhere: bool = False) -> int:
        """Return how many bound transactions are undecided: of the database's producers, or of
        others.
        """
        return sum(
            not seen.decided_us and (seen.producer in self._producers) is not elsewhere
            for seen in self._seen.values()
        )


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _outcomes(directory: Directory, positions: frozenset[int]) -> Iterator[Outcome]:
    """Yield the outcomes of the decisions at `positions`."""
    if not positions:
        return
    walk = Walk(directory, min(positions))
    for append in walk:
        if append[-1].position in positions:
            yield _outcome(append)
    if walk.damage is not None:
        raise walk.damage


def _outcome(append: ReadAppend) -> Outcome:
    decided = append[-1]
    assert isinstance(decided, Decided)
    return outcome_of(decided, [receipt_of(each) for each in append if isinstance(each, Run)])

"""The loop of a delivery: ask the table how far it is, read on from there, commit rows and place.

The loop keeps nothing of its own. It asks the table again before each batch, so a loop that was
killed, one beside it and one whose commit was refused all go on where the table is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import Event
from time import monotonic
from typing import Literal, NamedTuple

import pyarrow as pa

from fmq.errors import BadOption
from fmq.lake.lake_batch import JournalPart, LakeBatch
from fmq.lake.lake_errors import TableMoved
from fmq.lake.lake_table import CanCompact, LakeTable, table_at
from fmq.lake.typed_bodies import Decode, TypedBodies, typed_by
from fmq.table.fleet import see_all
from fmq.table.read import chosen_rows
from fmq.table.read_range import range_of
from fmq.table.schema import VALUE, check_choice, schema_of
from fmq.table.snapshot import Snapshot
from fmq.table.stream import BatchRoom
from fmq.table.table_errors import Outrun, Overtaken, PositionBeyond

logger = logging.getLogger("fmq.lake")
EVERY_SECONDS = 10.0
ROWS = 100_000
BATCH_BYTES = 256 << 20
EMPTY_BYTES = 16 << 20
"""A part of a journal without rows is committed once it is so long, so that retention cannot seem
to have dropped something that the table lacks."""
PAUSE_SECONDS = 0.1
IN_VAIN_MAX = 20
"""So many refused commits in a row, of a table whose position does not move, end a delivery."""
ON_GAP = ("fail", "skip")


class LakeCommit(NamedTuple):
    """One commit of a delivery."""

    rows: int
    bytes: int
    """Of the journals, as is `behind`."""
    behind: int
    """How much was still to be delivered when the batch was read."""


class LakeStats(NamedTuple):
    """What a delivery has done since it was made."""

    rows: int
    commits: int
    bytes: int
    """Of the journals."""
    refused: int
    """Commits that the table refused because another loop had been first."""
    merged: int
    """Files of the table in whose place fewer and larger ones are."""


class LakeDelivery:
    """Adds the rows of journals to a table. One thread calls `run`."""

    def __init__(
        self,
        paths: str | Sequence[str],
        table: LakeTable,
        *,
        view: str = "messages",
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        bodies: TypedBodies | None = None,
        every: float = EVERY_SECONDS,
        rows: int = ROWS,
        roll_after: float = 0.0,
        compact_after: int = 0,
        on_gap: Literal["fail", "skip"] = "fail",
        progress: Callable[[LakeCommit], None] | None = None,
        empty_bytes: int = EMPTY_BYTES,
        pause: float = PAUSE_SECONDS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`topics` and the type of `bodies` have to be those of the table.

        A commit takes about `rows` messages, never a part of an append. If there are fewer, they
        wait for others, at most `roll_after` seconds. When all is delivered, the next look is
        `every` seconds later. Once the table has `compact_after` small files, they are
        merged; 0 is never. Parts of journals without rows are committed once they have
        `empty_bytes`. After a refused commit of a table whose position has not moved, the
        loop waits for `pause` seconds, longer each time.
        """
        check_choice("value of on_gap", on_gap, ON_GAP)
        if rows < 1 or every <= 0 or roll_after < 0 or compact_after < 0:
            raise BadOption(
                f"rows={rows}, every={every}, roll_after={roll_after}, compact_after="
                f"{compact_after}: the first two must be more than 0, and none less."
            )
        if compact_after and not isinstance(table, CanCompact):
            raise BadOption(
                f"compact_after={compact_after}: files of this format are not merged, because its "
                "readers would see rows twice or not at all. Nothing was written; roll_after makes "
                "larger files."
            )
        self._paths = [paths] if isinstance(paths, str) else list(paths)
        self._table = table
        self._compact_after = compact_after
        self._view = view
        self._schema = schema_for(view, columns, bodies)
        self._wanted = chosen_rows(view, topics, None)
        self._bodies = bodies
        self._every = every
        self._rows_max = rows
        self._roll_after = roll_after
        self._now = now
        self._roll_at: float | None = None
        self._skip_gaps = on_gap == "skip"
        self._progress = progress
        self._empty_bytes = empty_bytes
        self._pause = pause
        self._ends = Event()
        self._turn = 0
        self._waiting: set[str] = set()
        self._positions: dict[str, int] = {}
        self._refused_at: dict[str, int] | None = None
        self._in_vain = 0
        self._rows = self._commits = self._bytes = self._refused = self._merged = 0

    def run(self, *, once: bool = False) -> None:
        """Deliver until `stop` is called; with `once` until the table has all that the journals
        had then.

        Raises Outrun if retention has dropped what the table lacks. A journal that ends before the
        table's position is waited for; with `once` it is PositionBeyond at the end.
        """
        until = {each.store.hex(): each.visible_to for each in self._look()} if once else None
        while not self._ends.is_set():
            try:
                more, beyond = self._step(until)
            except TableMoved as error:
                self._note_refusal(error)
                continue
            except Outrun:
                raise
            except Overtaken:
                continue  # retention has dropped a segment since the look
            if more:
                continue
            if once:
                if beyond is not None:
                    raise beyond
                return
            # A batch that waits for more is not to wait much longer than it was asked to.
            self._ends.wait(min(self._every, self._roll_after or self._every))

    def stop(self) -> None:
        """Let `run` return after the running batch. Any thread may call it."""
        self._ends.set()

    def stats(self) -> LakeStats:
        return LakeStats(self._rows, self._commits, self._bytes, self._refused, self._merged)

    def _note_refusal(self, error: TableMoved) -> None:
        """Count a refused commit, and wait a little if the table is where it was: then its writers
        are not this kind of loop. Raises `error` if that happens again and again.
        """
        self._refused += 1
        if self._positions != self._refused_at:
            self._refused_at, self._in_vain = self._positions, 0
            return
        self._in_vain += 1
        if self._in_vain == IN_VAIN_MAX:
            raise error
        logger.warning("%s", error)
        self._ends.wait(self._pause * self._in_vain)

    # --- one commit -----------------------------------------------------------------------------

    def _step(self, until: Mapping[str, int] | None) -> tuple[bool, PositionBeyond | None]:
        """Deliver one batch, of each journal at most up to the position in `until`. Return whether
        there is more to do now, and which journal ends before the table's position.
        """
        journals = self._look()
        positions = self._table.positions([journal.store.hex() for journal in journals])
        self._positions = positions
        if any(_is_beyond(journal, positions) for journal in journals):
            # Another loop may have seen more of the journal in between.
            journals = self._look()
        parts, behind, beyond = self._parts(journals, positions, until)
        if not parts:
            return False, beyond
        batch = LakeBatch(parts, self._view, self._schema, self._wanted, self._bodies)
        left = behind - batch.bytes
        # At the end of the journals a few bytes without rows are left for the next batch.
        if not left and batch.bytes < self._empty_bytes and not batch.has_rows():
            return False, beyond
        if not left and until is None and self._may_grow():
            return False, beyond
        self._commit(batch, behind)
        self._roll_at = None
        return left > 0, beyond

    def _may_grow(self) -> bool:
        """Return whether a batch that is not full waits for more."""
        if self._roll_at is None:
            self._roll_at = self._now() + self._roll_after
        return self._now() < self._roll_at

    def _commit(self, batch: LakeBatch, behind: int) -> None:
        try:
            self._table.append(batch)
        except Exception:
            # A library that reads the rows reports an error of its own.
            if batch.error is not None:
                raise batch.error from None
            raise
        self._rows += batch.rows
        self._bytes += batch.bytes
        self._commits += 1
        if self._progress is not None:
            self._progress(LakeCommit(batch.rows, batch.bytes, behind))
        self._merge_files()

    def _merge_files(self) -> None:
        """Let the table look for small files, at the first commit, as deliveries may be started for
        one alone, and then once in so many as it may have.
        """
        after = self._compact_after
        if after and (self._commits - 1) % after == 0 and isinstance(self._table, CanCompact):
            self._merged += self._table.compact(after)

    def _look(self) -> list[Snapshot]:
        """Return the journals as they are now. Each look begins with another journal, because the
        first one may take all the room of a batch.
        """
        seen = list(see_all(self._paths, waiting=True))
        self._turn = (self._turn + 1) % max(1, len(seen))
        return seen[self._turn :] + seen[: self._turn]

    def _parts(
        self,
        journals: Sequence[Snapshot],
        positions: Mapping[str, int],
        until: Mapping[str, int] | None,
    ) -> tuple[list[JournalPart], int, PositionBeyond | None]:
        """Return the parts of a batch, how much of the journals is not in the table yet, and which
        of them ends before the table's position.
        """
        room, parts = BatchRoom(self._rows_max, BATCH_BYTES), list[JournalPart]()
        behind, beyond = 0, None
        for journal in journals:
            store = journal.store.hex()
            since = positions.get(store)
            try:
                part = range_of(
                    journal, since, _end(journal, until), room, skip_gaps=self._skip_gaps
                )
            except PositionBeyond as error:
                beyond = error
                if store not in self._waiting:
                    logger.warning("waiting, and nothing is delivered of this journal: %s", error)
                self._waiting.add(store)
                continue
            self._waiting.discard(store)
            behind += max(0, _end(journal, until) - part.first)
            if part.first < part.end:
                parts.append((journal, part))
        return parts, behind, beyond


def schema_for(
    view: str, columns: Sequence[str] | None = None, bodies: TypedBodies | None = None
) -> pa.Schema:
    """Return the schema of the rows of `view` in a table: with engine, host and store, so that
    journals can be added to it later, and with the column `value` if there are typed bodies.
    """
    if view == "damage":
        raise BadOption("the view 'damage' tells of a whole journal, so it cannot be delivered.")
    if bodies is None:
        return schema_of(view, columns, fleet=True)
    if view != "messages":
        raise BadOption(f"rows of the view {view!r} have no body, so no codec makes values of it.")
    others = schema_of(view, [name for name in columns or () if name != VALUE] or None, fleet=True)
    return others.append(pa.field(VALUE, bodies.type))


def _end(journal: Snapshot, until: Mapping[str, int] | None) -> int:
    # Once its engine was killed, a journal may show less than at the first look.
    end = journal.visible_to
    return end if until is None else min(end, until.get(journal.store.hex(), 0))


def _is_beyond(journal: Snapshot, positions: Mapping[str, int]) -> bool:
    return positions.get(journal.store.hex(), 0) > journal.visible_to


def deliver(
    paths: str | Sequence[str],
    url: str,
    *,
    to: Literal["delta", "iceberg", "parquet"],
    view: str = "messages",
    columns: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    codec: pa.Schema | Decode | Literal["stored"] | None = None,
    every: float = EVERY_SECONDS,
    rows: int = ROWS,
    roll_after: float = 0.0,
    compact_after: int = 0,
    once: bool = False,
    on_gap: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str] | None = None,
    progress: Callable[[LakeCommit], None] | None = None,
) -> LakeStats:
    """Add to the table at `url` what the journals in `paths` have and the table does not, for
    ever, or `once`. Without a table there one is made.

    With `topics`, only messages of these; the table keeps this choice. With `codec`, bodies are
    also a column `value`: "stored" has the fields that the codecs of the topics know, a schema of
    Arrow those of JSON objects, and a function returns an array for a batch with the columns topic,
    headers and body.

    `options` go to the library that writes the table, such as the keys of an object store. See
    LakeDelivery for the others, and for a delivery that another thread can end.
    """
    several = [paths] if isinstance(paths, str) else list(paths)
    bodies = None if codec is None else typed_by(codec, several, topics)
    table = table_at(url, to, schema_for(view, columns, bodies), options, topics)
    with closing(table):
        delivery = LakeDelivery(
            several,
            table,
            view=view,
            columns=columns,
            topics=topics,
            bodies=bodies,
            every=every,
            rows=rows,
            roll_after=roll_after,
            compact_after=compact_after,
            on_gap=on_gap,
            progress=progress,
        )
        delivery.run(once=once)
        return delivery.stats()

"""Reads splits as Arrow batches of any view, and whole journals without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fmq.errors import BadOption, Damaged, NewerFormat, Unreadable
from fmq.home.home_reader import disk_to_read
from fmq.machine.disk import Disk
from fmq.store.index.index import SegmentIndex
from fmq.table.exact import rows_wanted, with_compared
from fmq.table.extents import LeftOut, left_out
from fmq.table.fleet import is_fleet, see_all
from fmq.table.gather import chosen
from fmq.table.logs import LOGS, read_log
from fmq.table.message_rows import read_messages
from fmq.table.read_range import Positions, ReadRange, positions_of, range_of
from fmq.table.records import RecordRow, batch_of, read_records
from fmq.table.schema import FLEET, VIEWS, check_choice, names_value, schema_of
from fmq.table.selection import COMPARED, EVERYTHING, Selection
from fmq.table.snapshot import Snapshot
from fmq.table.split import OpenSplit, Split, opened
from fmq.table.stream import BatchRoom
from fmq.table.table_errors import located
from fmq.table.table_reader import TableReader
from fmq.table.transactions import read_transactions, undecided_rows
from fmq.table.undecided import undecided_of
from fmq.table.value_column import value_type

Batches = Iterator[pa.RecordBatch]
LOG = logging.getLogger(__name__)


def read(
    paths: str | Sequence[str],
    view: str = "messages",
    *,
    since: Positions | None = None,
    until: Positions | None = None,
    topic: str | Iterable[str] | None = None,
    queue: int | Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    limit_messages: int | None = None,
    limit_bytes: int | None = None,
    permissive: bool = False,
    disk: Disk | None = None,
) -> TableReader:
    """Return the rows of one or more directories, one journal after another, as they are read.

    Rows that a running engine appends after the call are not included. `since` and `until` are
    positions, for several directories by store: the rows from the one up to, not including, the
    other, of whole appends, so that no transaction is cut. Transactions that are undecided have no
    rows then. The limits end a read earlier: behind so many messages, or bytes of the journal, but
    never before the first append has ended. `end` of the reader is `since` of the next read.

    Raises PositionBeyond if a journal ends before `since`, and Outrun if retention has dropped it.
    With `permissive`, what is not sound is left out, and the view `damage` lists it. `disk` is the
    door to the machine, as for `fmq.open`.
    """
    several = [paths] if isinstance(paths, str) else list(paths)
    if disk is None and len(several) == 1:
        disk = disk_to_read(several[0])
    check_choice("view", view, VIEWS)
    wanted = chosen_rows(view, topic, queue)
    bounds = since, until, limit_messages, limit_bytes
    everything = all(bound is None for bound in bounds)
    if view == "damage" and not everything:
        raise BadOption(
            "the view 'damage' tells what reading a whole journal has to leave out, so it has no "
            "part from a position on. Nothing was read."
        )
    permissive = permissive or view == "damage"
    undecided = view == "transactions" and everything
    how: Any = {"permissive": permissive, "disk": disk}
    journals = list(see_all(several, undecided=undecided, **how))
    value = value_type(journals, wanted.topics) if names_value(view, columns) else None
    schema = schema_of(view, columns, fleet=is_fleet(several), value=value)
    low = positions_of("since", since, journals)
    high = positions_of("until", until, journals)
    room = BatchRoom(_limit("messages", limit_messages), _limit("bytes", limit_bytes))
    parts = []
    for journal in journals:
        store = journal.store.hex()
        parts.append(range_of(journal, low.get(store), high.get(store), room, **how))
    batches = (
        batch
        for journal, part in zip(journals, parts, strict=True)
        for batch in rows_of(journal, part, view, schema, wanted, told=everything, **how)
    )
    return TableReader(schema, batches, parts)


def rows_of(
    journal: Snapshot,
    part: ReadRange,
    view: str,
    schema: pa.Schema,
    wanted: Selection = EVERYTHING,
    *,
    told: bool = False,
    permissive: bool = False,
    disk: Disk | None = None,
) -> Batches:
    """Yield the rows of a part of `journal`; if `told`, also the rows that belong to no split."""
    splits = journal.splits(
        wanted, start=part.first, end=part.end, lanes=view == "messages", disk=disk
    )
    known = {seen.segment.base: seen.in_memory for seen in journal.segments}
    for split in splits:
        how: Any = {"permissive": permissive, "disk": disk, "in_memory": known[split.base]}
        yield from read_split(split, view, schema, wanted, **how)
    if told and (rows := told_rows(journal, view, permissive=permissive, disk=disk)):
        yield told_batch(journal.whole(), rows, schema, wanted)


def chosen_rows(
    view: str, topic: str | Iterable[str] | None, queue: int | Iterable[int] | None
) -> Selection:
    """Return the Selection of the rows with one of these topics and queues. Raises BadOption if
    the rows of `view` have none.
    """
    for name, given in (("topic", topic), ("queue", queue)):
        if given is not None and name not in COMPARED[view]:
            raise BadOption(
                f"rows of the view {view!r} have no {name} to choose by. Nothing was read."
            )
    topics = [topic] if isinstance(topic, str) else topic
    queues = [queue] if isinstance(queue, int) else queue
    return Selection(
        None if topics is None else frozenset(topics), None if queues is None else frozenset(queues)
    )


def _limit(what: str, given: int | None) -> int | None:
    if given is not None and given < 1:
        raise BadOption(f"limit_{what}={given}: must be at least 1. Nothing was read.")
    return given


def read_split(
    split: Split,
    view: str,
    schema: pa.Schema,
    wanted: Selection = EVERYTHING,
    *,
    permissive: bool = False,
    disk: Disk | None = None,
    in_memory: SegmentIndex | None = None,
) -> Batches:
    """Yield the rows of a split that are `wanted`, with the columns of `schema`.

    Raises Unsound or NewerFormat after the last sound row. With `permissive` the rest is left out,
    and the view `damage` says so.
    """
    try:
        with located(split.path), opened(split, disk, in_memory) as source:
            compared = with_compared(_own(schema), view, wanted)
            for batch in READ[view](source, compared, wanted):
                if (left := rows_wanted(batch, wanted)).num_rows:
                    yield _with_origin(left, split, schema)
    except (Damaged, NewerFormat, Unreadable) as error:
        if not permissive:
            raise
        LOG.warning("the rest of %s/%s is left out: %s", split.path, split.file, error)


# --- rows that no split holds -------------------------------------------------------------------


def told_rows(
    journal: Snapshot, view: str, *, permissive: bool = False, disk: Disk | None = None
) -> tuple[RecordRow, ...]:
    """Return the rows of `view` that belong to no split: undecided transactions for
    "transactions", damaged parts for "damage", and none for any other view.
    """
    if view == "transactions":
        return undecided_rows(undecided_of(journal, permissive=permissive, disk=disk))
    if view == "damage":
        return tuple(_row_of(journal.path, part) for part in journal.left_out)
    for part in journal.left_out:
        LOG.warning("%s: %s is left out: %s", journal.path, part.file, part.reason)
    return ()


def told_batch(
    origin: Split, rows: Iterable[RecordRow], schema: pa.Schema, wanted: Selection = EVERYTHING
) -> pa.RecordBatch:
    """Return the rows that are `wanted`, as a batch."""
    # Position is the only column of these views that can be compared.
    left = [row for row in rows if wanted.position.meets(row["position"], row["position"])]
    return _with_origin(batch_of(left, _own(schema)), origin, schema)


# --- the views ----------------------------------------------------------------------------------


def _messages(source: OpenSplit, schema: pa.Schema, wanted: Selection) -> Batches:
    return read_messages(source, schema, wanted)


def _records(source: OpenSplit, schema: pa.Schema, wanted: Selection) -> Batches:
    return read_records(source, schema)


def _transactions(source: OpenSplit, schema: pa.Schema, wanted: Selection) -> Batches:
    return read_transactions(source, schema)


def _log(view: str) -> Callable[[OpenSplit, pa.Schema, Selection], Batches]:
    return lambda source, schema, wanted: read_log(source, view, schema)


def _damage(source: OpenSplit, schema: pa.Schema, wanted: Selection) -> Batches:
    """Return the row of the damage that a reader of all records would leave out; None if there is
    none.
    """
    split = source.split
    try:
        for _ in source.appends():
            pass
    except (Damaged, NewerFormat, OSError) as error:
        part = left_out(error, split.file, source.sound_to, split.end)
        yield batch_of([_row_of(split.path, part)], schema)


READ: dict[str, Callable[[OpenSplit, pa.Schema, Selection], Batches]] = {
    "messages": _messages,
    "records": _records,
    "transactions": _transactions,
    "damage": _damage,
}
READ |= {view: _log(view) for view in LOGS}


def _row_of(path: str, part: LeftOut) -> RecordRow:
    return {
        "segment": part.file,
        "position": part.position,
        "skipped_bytes": part.skipped_bytes,
        "reason": part.reason,
        "path": path,
    }


def _own(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the view itself, at least one, so that rows can be counted."""
    own = [field for field in schema if field.name not in FLEET]
    return pa.schema(own or [pa.field("position", pa.int64())])


def _with_origin(batch: pa.RecordBatch, split: Split, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema`: from `batch`, or engine, host and store of the split."""
    if FLEET.keys().isdisjoint(schema.names):
        return batch.select(_own(schema).names)
    origin = {"engine": split.engine, "host": split.host, "store": split.store.hex()}
    nothing = np.zeros(batch.num_rows, np.int64)
    columns = [
        chosen([origin[name]], nothing) if name in origin else batch.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

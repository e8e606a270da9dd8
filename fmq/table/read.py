"""Reading a split as Arrow batches of any view; with it, reading whole journals without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from fmq.disk import Disk
from fmq.errors import Damaged
from fmq.message import UndecidedTransaction
from fmq.table.fleet import is_fleet, see_all
from fmq.table.gather import chosen
from fmq.table.journal import Journal
from fmq.table.messages import read_messages
from fmq.table.records import batch_of, read_records
from fmq.table.schema import FLEET, schema_of
from fmq.table.split import OpenSplit, Split, opened
from fmq.table.transactions import read_transactions, undecided_batch
from fmq.table.wanted import EVERYTHING, Wanted

Batches = Iterator[pa.RecordBatch]
LOG = logging.getLogger(__name__)


def read_split(
    split: Split,
    view: str,
    schema: pa.Schema,
    wanted: Wanted = EVERYTHING,
    *,
    permissive: bool = False,
    disk: Disk | None = None,
) -> Batches:
    """The rows of a split, with the columns of `schema`.

    Damaged if not all of it is sound; if `permissive`, what is behind the damage is left out,
    and the view `damage` tells of it.
    """
    own = pa.schema([field for field in schema if field.name not in FLEET])
    try:
        with opened(split, disk) as source:
            for batch in READ[view](source, own, wanted):
                yield _with_origin(batch, split, schema)
    except Damaged as damage:
        if view == "damage":
            yield _with_origin(batch_of([_row_of(split, damage)], own), split, schema)
        elif not permissive:
            raise
        else:
            LOG.warning("%s: the rest of %s is left out: %s", split.path, split.file, damage)


def read(
    paths: str | Sequence[str],
    view: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    permissive: bool = False,
    disk: Disk | None = None,
) -> pa.RecordBatchReader:
    """The rows of one directory or several, in the order of their journals, as they are read.

    What a live engine appends after the call is not among them. `disk` is the door to the
    machine, as for `fmq.open`.
    """
    several = [paths] if isinstance(paths, str) else list(paths)
    schema = schema_of(view, columns, fleet=is_fleet(several))
    journals = list(see_all(several, permissive=permissive, disk=disk))
    batches = (
        batch
        for journal in journals
        for batch in _of_journal(journal, view, schema, permissive=permissive, disk=disk)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _of_journal(
    journal: Journal, view: str, schema: pa.Schema, *, permissive: bool, disk: Disk | None
) -> Batches:
    for split in journal.splits(EVERYTHING, lanes=view == "messages", disk=disk):
        yield from read_split(split, view, schema, permissive=permissive, disk=disk)
    if view == "transactions" and journal.undecided:
        yield from undecided_rows(journal.whole(), journal.undecided, schema)


def undecided_rows(
    origin: Split, undecided: Sequence[UndecidedTransaction], schema: pa.Schema
) -> Batches:
    """The rows of `transactions` that nobody has decided yet."""
    own = pa.schema([field for field in schema if field.name not in FLEET])
    yield _with_origin(undecided_batch(undecided, own), origin, schema)


def _messages(source: OpenSplit, schema: pa.Schema, wanted: Wanted) -> Batches:
    return read_messages(source, schema, wanted)


def _records(source: OpenSplit, schema: pa.Schema, wanted: Wanted) -> Batches:
    return read_records(source, schema)


def _transactions(source: OpenSplit, schema: pa.Schema, wanted: Wanted) -> Batches:
    return read_transactions(source, schema)


def _damage(source: OpenSplit, schema: pa.Schema, wanted: Wanted) -> Batches:
    for _ in source.appends():
        pass
    return iter(())


READ: dict[str, Callable[[OpenSplit, pa.Schema, Wanted], Batches]] = {
    "messages": _messages,
    "records": _records,
    "transactions": _transactions,
    "damage": _damage,
}


def _row_of(split: Split, damage: Damaged) -> dict[str, object]:
    return {
        "segment": damage.file,
        "position": damage.position,
        "skipped_bytes": max(0, split.end - damage.position),
        "reason": damage.reason,
    }


def _with_origin(batch: pa.RecordBatch, split: Split, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with the columns that tell where its rows are from, in the order of `schema`."""
    if len(schema) == batch.num_columns:
        return batch
    origin = {"engine": split.engine, "host": split.host, "store": split.store.hex()}
    nothing = np.zeros(batch.num_rows, np.int64)
    columns = [
        chosen([origin[name]], nothing) if name in origin else batch.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

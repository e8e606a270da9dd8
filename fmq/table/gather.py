"""Gathers runs of messages into Arrow batches. The work grows with the runs, not with the messages.

A run brings its bodies in one piece, and its keys, tags and headers as they lie on disk. When
there are enough rows the pieces are joined and Arrow is handed the bytes: what is constant in a
run is repeated, what counts up is counted, and what is a column already stays one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fmq.store.bytes.columns import KEYS, TAGS, Columns
from fmq.store.bytes.extras import NEVER, NO_PRIORITY, Extras, has_extras
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.pieces import NONE, Part
from fmq.store.bytes.timing import timing_in
from fmq.store.index.index import QueueKey
from fmq.table.entries import Column
from fmq.table.schema import HEADERS as HEADERS_TYPE
from fmq.table.schema import TIME, VALUE
from fmq.table.value_column import values_of

ROWS = 32_768
BYTES = 8 << 20


class Gatherer:
    """Collects runs of one segment until there are enough rows for a batch."""

    def __init__(self, schema: pa.Schema, keys: Sequence[QueueKey], base: int) -> None:
        self._schema = schema
        self._keys = keys
        self._base = base
        names = set(schema.names)
        self._texts_wanted = [flag for flag, name in TEXTS.items() if name in names]
        self._headers_wanted = "headers" in names
        self._extras_wanted = bool(names & EXTRAS)
        self._clear()

    def _clear(self) -> None:
        # One column for each run, with six rows: lane, messages, first offset, place, time, bytes
        # of each body. Plain runs are added as whole tables of this shape.
        self._tables: list[Column] = []
        self._single: list[tuple[int, int, int, int, int, int]] = []
        self._runs = 0
        self._bodies: list[bytes | memoryview] = []
        self.rows = 0
        self.bytes = 0
        # Values that only some runs have, by the number of the run.
        self._lengths: dict[int, array[int]] = {}
        self._texts: dict[int, dict[int, Part]] = {KEYS: {}, TAGS: {}}
        self._headers: dict[int, tuple[array[int], Part, Part]] = {}
        self._ids: dict[int, Part] = {}
        self._priorities: dict[int, bytes] = {}
        self._expiries: dict[int, array[int]] = {}
        self._senders: dict[int, tuple[str | None, str | None]] = {}
        self._late: set[int] = set()  # the numbers of runs that were sent with a delay

    @property
    def full(self) -> bool:
        return self.rows >= ROWS or self.bytes >= BYTES

    def add(
        self,
        lane: int,
        run: Run,
        place: int,
        columns: Columns | None,
        first: int,
        last: int,
        *,
        bodies: bool,
    ) -> None:
        """Add the messages from number `first` up to, not including, `last` of `run`, which was
        published at `place`, with its `columns` if any of them is wanted.
        """
        number, size = self._runs, 0
        if run.tx_id or run.producer:
            self._senders[number] = run.tx_id or None, run.producer or None
        if run.extension and timing_in(run.extension) is not None:
            self._late.add(number)
        if columns is not None:
            if self._texts_wanted or self._headers_wanted:
                keys, tags, headers = columns.opened()
                for flag, texts in ((KEYS, keys), (TAGS, tags)):
                    if texts is not None and flag in self._texts_wanted:
                        self._texts[flag][number] = texts.part(first, last)
                if self._headers_wanted and headers is not None:
                    self._headers[number] = headers.part(first, last)
            if self._extras_wanted and has_extras(columns.extension):
                self._add_extras(number, columns.extras(), first, last)
            if bodies:
                lengths, raw = columns.pieces().part(first, last)
                size = len(raw) // (last - first)
                if lengths is not None:
                    self._lengths[number] = lengths
                self._bodies.append(raw)
                self.bytes += len(raw)
        self._single.append((lane, last - first, run.offset + first, place, run.time_us, size))
        self._runs += 1
        self.rows += last - first

    def _add_extras(self, number: int, extras: Extras, first: int, last: int) -> None:
        if extras.id_pieces is not None:
            self._ids[number] = extras.id_pieces.part(first, last)
        if extras.priority_bytes is not None:
            self._priorities[number] = extras.priority_bytes[first:last]
        if extras.expiries_us is not None:
            self._expiries[number] = extras.expiries_us[first:last]

    def add_plain(self, lines: Column, bodies: list[bytes | memoryview]) -> None:
        """Add runs whose messages have bodies and nothing else."""
        self._close_table()
        self._tables.append(lines)
        self._bodies += bodies
        self._runs += lines.shape[1]
        self.rows += int(lines[1].sum())
        self.bytes += sum(map(len, bodies))

    def _close_table(self) -> None:
        if self._single:
            self._tables.append(np.array(self._single, np.int64).T)
            self._single = []

    def take(self) -> pa.RecordBatch:
        """Return everything gathered as one batch, and begin anew."""
        self._close_table()
        self._lines = np.concatenate(self._tables, axis=1)
        self._counts = self._lines[1]
        arrays = [MAKE[name](self) for name in self._schema.names]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    # --- a column each ----------------------------------------------------------------------

    def _repeated(self, values: Column) -> Column:
        return np.repeat(values, self._counts)

    def _topic(self) -> pa.Array:
        return chosen([topic for topic, _ in self._keys], self._repeated(self._lines[0]))

    def _queue(self) -> pa.Array:
        queues = np.array([queue for _, queue in self._keys], np.int32)
        return _numbers(pa.int32(), self._repeated(queues[self._lines[0]]))

    def _offset(self) -> pa.Array:
        # The number of the first row of each run.
        before = np.cumsum(self._counts) - self._counts
        offsets = self._repeated(self._lines[2] - before) + np.arange(self.rows)
        return _numbers(pa.int64(), offsets)

    def _position(self) -> pa.Array:
        return _numbers(pa.int64(), self._repeated(self._lines[3] + self._base))

    def _time(self) -> pa.Array:
        return _numbers(TIME, self._repeated(self._lines[4]))

    def _body(self) -> pa.Array:
        sizes = self._lines[5]
        if not self._lengths:
            lengths = self._repeated(sizes)
        else:
            lengths = self._joined(
                self._lengths, lambda run: np.full(self._counts[run], sizes[run])
            )
        return _variable(pa.binary(), lengths, b"".join(self._bodies), None)

    def _value(self) -> pa.Array:
        return values_of(self._body().to_pylist(), self._schema.field(VALUE).type)

    def _key(self) -> pa.Array:
        return self._text(KEYS)

    def _tag(self) -> pa.Array:
        return self._text(TAGS)

    def _text(self, flag: int) -> pa.Array:
        return self._text_of(self._texts[flag])

    def _text_of(self, found: dict[int, Part]) -> pa.Array:
        if not found:
            return pa.nulls(self.rows, pa.string())
        lengths = self._joined(
            {run: texts.lengths for run, texts in found.items()},
            lambda run: np.full(self._counts[run], NONE, np.uint16),
        )
        return _strings(lengths, b"".join(texts.data for texts in found.values()))

    def _header_map(self) -> pa.Array:
        found = self._headers
        if not found:
            return pa.nulls(self.rows, HEADERS_TYPE)
        counts = self._joined(
            {run: headers[0] for run, headers in found.items()},
            lambda run: np.zeros(self._counts[run], np.uint16),
        )
        names, values = (
            _strings(
                np.concatenate([each.lengths for each in side]),
                b"".join(each.data for each in side),
            )
            for side in zip(*(headers[1:] for headers in found.values()), strict=True)
        )
        fields = [HEADERS_TYPE.key_field, HEADERS_TYPE.item_field]
        entries = pa.StructArray.from_arrays([names, values], fields=fields)
        buffers = [_bitmap(counts > 0), _offsets(counts)]
        return pa.Array.from_buffers(HEADERS_TYPE, self.rows, buffers, children=[entries])

    def _message_id(self) -> pa.Array:
        return self._text_of(self._ids)

    def _priority(self) -> pa.Array:
        found = {run: np.frombuffer(each, np.uint8) for run, each in self._priorities.items()}
        return self._numbers_of(found, NO_PRIORITY, pa.int32(), np.dtype(np.int32))

    def _expires_at(self) -> pa.Array:
        return self._numbers_of(dict(self._expiries), NEVER, TIME, np.dtype(np.int64))

    def _delayed(self) -> pa.Array:
        late = np.zeros(self._runs, bool)
        late[list(self._late)] = True
        return pa.Array.from_buffers(pa.bool_(), self.rows, [None, _bitmap(self._repeated(late))])

    def _numbers_of(
        self, found: dict[int, Any], nothing: int, type_: pa.DataType, width: np.dtype[Any]
    ) -> pa.Array:
        """Return a column of numbers that only some runs have. `nothing` stands for null."""
        if not found:
            return pa.nulls(self.rows, type_)
        values = self._joined(found, lambda run: np.full(self._counts[run], nothing)).astype(width)
        buffers = [_bitmap(values != nothing), pa.py_buffer(np.ascontiguousarray(values))]
        return pa.Array.from_buffers(type_, len(values), buffers)

    def _tx_id(self) -> pa.Array:
        return self._sender(0)

    def _producer(self) -> pa.Array:
        return self._sender(1)

    def _sender(self, which: int) -> pa.Array:
        if not self._senders:
            return pa.nulls(self.rows, pa.string())
        nobody = None, None
        each = [self._senders.get(run, nobody)[which] for run in range(self._runs)]
        runs = self._repeated(np.arange(len(each)))
        return chosen(each, runs)

    def _joined(self, found: dict[int, Any], otherwise: Callable[[int], Column]) -> Column:
        """Return a number for each row: the one found for its run, or a default."""
        runs = range(self._runs)
        return np.concatenate([found[run] if run in found else otherwise(run) for run in runs])


TEXTS = {KEYS: "key", TAGS: "tag"}
MAKE: dict[str, Callable[[Gatherer], pa.Array]] = {
    "topic": Gatherer._topic,
    "queue": Gatherer._queue,
    "offset": Gatherer._offset,
    "position": Gatherer._position,
    "key": Gatherer._key,
    "tag": Gatherer._tag,
    "headers": Gatherer._header_map,
    "body": Gatherer._body,
    VALUE: Gatherer._value,
    "time": Gatherer._time,
    "tx_id": Gatherer._tx_id,
    "producer": Gatherer._producer,
    "message_id": Gatherer._message_id,
    "priority": Gatherer._priority,
    "expires_at": Gatherer._expires_at,
    "delayed": Gatherer._delayed,
}
EXTRAS = frozenset(("message_id", "priority", "expires_at"))
IN_COLUMNS = {"key", "tag", "headers", *EXTRAS}
IN_BODIES = frozenset(("body", VALUE))
IN_EXTENSION = EXTRAS | {"delayed"}
"""Columns that a record says in its extension, if at all."""


def chosen(texts: Sequence[str | None], numbers: Column) -> pa.Array:
    """Return the text for each number. Arrow's `take` could do it, but its import takes half a
    second.
    """
    encoded = [b"" if text is None else text.encode() for text in texts]
    there = np.array([text is not None for text in texts])
    lengths = np.array(list(map(len, encoded)))
    known = _variable(pa.string(), lengths, b"".join(encoded), _bitmap(there))
    indices = _numbers(pa.int64(), numbers)
    return pa.DictionaryArray.from_arrays(indices, known).dictionary_decode()


def _numbers(type_: pa.DataType, values: Column) -> pa.Array:
    """Return an Arrow column with the numbers of a numpy array. `pa.array` would import pandas."""
    return pa.Array.from_buffers(
        type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def _strings(lengths: Column, text: bytes) -> pa.Array:
    """Return a text column from its bytes on disk. Raises ArrowInvalid if they are not UTF-8."""
    there = lengths != NONE
    validity = None if there.all() else _bitmap(there)
    made = _variable(pa.string(), np.where(there, lengths, 0), text, validity)
    made.validate(full=True)
    return made


def _variable(
    type_: pa.DataType, lengths: Column, data: bytes, validity: pa.Buffer | None
) -> pa.Array:
    buffers = [validity, _offsets(lengths), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(lengths), buffers)


def _offsets(lengths: Column) -> pa.Buffer:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.py_buffer(offsets)


def _bitmap(there: Column) -> pa.Buffer:
    return pa.py_buffer(np.packbits(there, bitorder="little"))

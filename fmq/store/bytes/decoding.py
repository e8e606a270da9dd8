"""Decoding bytes to records. Any bytes give a sound record or a refusal."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import repeat
from struct import error as StructError

from fmq.basics.message import Message
from fmq.store.bytes.columns import COMPRESSED, COUNT_MAX, HEADERS, Columns
from fmq.store.bytes.content import copy_of, encode_messages
from fmq.store.bytes.erased_columns import KIND_AT, ErasedColumns
from fmq.store.bytes.extension import extension_before, without_request
from fmq.store.bytes.forms import ACK, FORMS, text_of, values_in
from fmq.store.bytes.kinds import (
    ERASED,
    HAS_ERASED,
    MESSAGE,
    REF_MESSAGE,
    TIMER,
    Changed,
    ChangeKind,
    Decided,
    Kind,
    Prepare,
    Record,
    Run,
)
from fmq.store.bytes.record import (
    BOUND,
    COMMON,
    DECISION_HEAD,
    EXTENDED,
    FORMAT,
    HEAD_BYTES_MIN,
    LAG_UNKNOWN,
    MAGIC_1,
    MAGICS,
    NAME,
    PLACE,
    PREFIX,
    PREFIX_BYTES,
    PREPARE_HEAD,
    RECORD_BYTES_MAX,
    U32,
    U64,
    BadRecord,
    BodiesDamaged,
    Misplaced,
    Newer,
    utf8,
)
from fmq.store.bytes.timing import timing_in

ASKED = frozenset(ChangeKind)
BODIES = {kind: form.bodies for kind, form in FORMS.items() if form.bodies}


def decode(data: bytes, at: int, position: int, seed: int, *, bodies: bool = True) -> Record:
    """Return the record that begins at `data[at]`, which is `position` of the journal.

    Any bytes give a record, BadRecord, Misplaced or Newer. The checksum of the bodies is verified
    too, unless `bodies` is False.
    """
    try:
        size, head_size, says, lag, bodies_crc, kind, flags, queue = COMMON.unpack_from(
            data, at + 8
        )
        magic, crc = PREFIX.unpack_from(data, at)
    except StructError:
        raise BadRecord("fewer bytes than a head has") from None
    if magic not in MAGICS:
        raise _of_another_version(data, at, crc, head_size, seed)
    if not HEAD_BYTES_MIN <= head_size <= size <= RECORD_BYTES_MAX:
        raise BadRecord(f"impossible sizes: {size}, of which {head_size} are the head")
    end = at + head_size
    if end > len(data):
        raise BadRecord("the head is cut short")
    if zlib.crc32(data[at + PREFIX_BYTES : end], seed) != crc:
        raise BadRecord("the head's checksum does not match")
    if says != position:
        raise Misplaced(says)
    if kind not in DECODERS:
        if kind & ~ERASED not in CONTENT or not kind & ERASED:
            raise Newer(f"a record of kind {kind}")
        return _with_erased(data, at, position, seed, bodies=bodies)
    if bodies and size != head_size:
        check_bodies(data, end, at + size, bodies_crc)
    if magic == MAGIC_1 and flags & EXTENDED:
        flags ^= EXTENDED | BOUND  # in version 1 this bit meant BOUND
    extension = b""
    if flags & EXTENDED:
        extension = extension_before(data, at + HEAD_BYTES_MIN, end)
    fields_end = end - len(extension)
    try:
        record = DECODERS[kind](data, at + HEAD_BYTES_MIN, fields_end, kind, flags)
    except (StructError, UnicodeDecodeError, IndexError) as error:
        # The checksum is right, so these bytes were written on purpose, by another version.
        raise Newer(f"a {Kind(kind).name} of an unknown shape ({error})") from None
    if isinstance(record, Run):
        record.queue = queue
        record.bodies_crc = bodies_crc
        if extension and record.tx:
            record.columns_crc = zlib.crc32(extension, record.columns_crc)
        if kind == TIMER and timing_in(extension) is None:
            raise BadRecord("a TIMER that does not say when it is due")
        if kind != REF_MESSAGE and not flags & COMPRESSED:
            record.raw_bytes = size - head_size
    elif isinstance(record, Changed):
        if record.asked not in ASKED:
            raise Newer(f"a CHANGE of the kind {record.asked}")
    elif kind in BODIES:
        setattr(record, BODIES[kind], data[end : at + size])
    record.extension = extension
    record.position = position
    record.size = size
    record.flags = flags
    return record


def _with_erased(data: bytes, at: int, position: int, seed: int, *, bodies: bool) -> Record:
    """Return the run at `data[at]`, of which messages were erased. Its head is sound."""
    size, head_size = COMMON.unpack_from(data, at + PREFIX_BYTES)[:2]
    plain = bytearray(data[at : at + size])
    plain[KIND_AT] &= ~ERASED
    crc = zlib.crc32(memoryview(plain)[PREFIX_BYTES:head_size], seed)
    plain[4:PREFIX_BYTES] = U32.pack(crc)
    record = decode(bytes(plain), 0, position, seed, bodies=bodies)
    record.flags |= HAS_ERASED | HEADERS  # each message that was erased has a header
    return record


def _of_another_version(
    data: bytes, at: int, crc: int, head_size: int, seed: int
) -> BadRecord | Newer:
    """Return the refusal of the bytes at `data[at]`, which are no record of this version.

    The place of the head's checksum, and what it covers, are the same in all versions. So a record
    of a newer fmq is told apart from a torn one. Nothing else about it is known.
    """
    name, version, head_end = data[at : at + 3], data[at + 3], at + head_size
    if (
        name == NAME
        and version > FORMAT
        and version.bit_count() % 2  # otherwise it is a damaged record of another version
        and HEAD_BYTES_MIN <= head_size <= len(data) - at
        and zlib.crc32(data[at + PREFIX_BYTES : head_end], seed) == crc
    ):
        return Newer(f"a record of version {version}")
    return BadRecord("no record begins here")


def check_bodies(data: bytes, start: int, end: int, bodies_crc: int) -> None:
    """Raise BodiesDamaged unless `data[start:end]` are the bodies that the head describes."""
    if end > len(data):
        raise BodiesDamaged("the bodies are cut short")
    if zlib.crc32(memoryview(data)[start:end]) != bodies_crc:
        raise BodiesDamaged("the bodies' checksum does not match")


def durable_to_of(data: bytes, at: int) -> int:
    """Return the position up to which the journal was durable when the record at `data[at]` was
    written; 0 if that is unknown.
    """
    _, _, position, lag, *_ = COMMON.unpack_from(data, at + 8)
    return 0 if lag == LAG_UNKNOWN else int(position - lag)


def _decode_run(data: bytes, at: int, head_end: int, kind: int, flags: int) -> Run:
    tx = 0
    if kind != MESSAGE:
        (tx,) = U64.unpack_from(data, at)
        at += 8
    offset, time_us, count, topic_size, producer_size, tx_id_size = PLACE.unpack_from(data, at)
    at += PLACE.size
    names = at + topic_size
    run = Run(kind, count)
    run.topic, run.offset, run.time_us, run.tx = text_of(data[at:names]), offset, time_us, tx
    run.target = None
    if producer_size or tx_id_size:
        at, names = names, names + producer_size
        run.producer = text_of(data[at:names])
        at, names = names, names + tx_id_size
        run.tx_id = data[at:names].decode("ascii")
    if kind == REF_MESSAGE:
        (run.body_position,) = U64.unpack_from(data, names)
    else:
        if flags & COMPRESSED:
            (run.raw_bytes,) = U32.unpack_from(data, names)
            names += 4
        if tx:
            run.columns_crc = zlib.crc32(data[names:head_end])
    if not 0 < count <= COUNT_MAX or names > head_end:
        raise IndexError(f"{count} messages")
    return run


def _decode_prepare(data: bytes, at: int, head_end: int, kind: int, flags: int) -> Prepare:
    (
        tx, time_us, prepared_us, replaces, records, messages, size_bytes, seal, check_after_ms,
        acks, producer_size, tx_id_size,
    ) = PREPARE_HEAD.unpack_from(data, at)  # fmt: skip
    at += PREPARE_HEAD.size
    producer, at = data[at : at + producer_size].decode(), at + producer_size
    tx_id, at = data[at : at + tx_id_size].decode("ascii"), at + tx_id_size
    prepare = Prepare(
        tx_id,
        producer,
        time_us,
        records,
        messages,
        size_bytes,
        seal,
        values_in(data, at, head_end, acks, ACK)[0],
        tx=tx,
        prepared_us=prepared_us,
        replaces=replaces,
        check_after_ms=check_after_ms,
    )
    prepare.bound = bool(flags & BOUND)
    return prepare


def _decode_decided(data: bytes, at: int, head_end: int, kind: int, flags: int) -> Decided:
    (
        tx, time_us, prepared_us, append_start, records, messages, size_bytes, seal, asked,
        producer_size, tx_id_size, by_size, reason_size,
    ) = DECISION_HEAD.unpack_from(data, at)  # fmt: skip
    at += DECISION_HEAD.size
    producer, at = data[at : at + producer_size].decode(), at + producer_size
    tx_id, at = data[at : at + tx_id_size].decode("ascii"), at + tx_id_size
    by, at = data[at : at + by_size].decode(), at + by_size
    reason = data[at : at + reason_size].decode()
    return Decided(
        Kind(kind),
        tx,
        tx_id,
        producer,
        time_us,
        prepared_us,
        records,
        messages,
        size_bytes,
        seal,
        by,
        reason,
        append_start,
        asked,
    )


CONTENT = frozenset((Kind.MESSAGE, Kind.PRE_MESSAGE, Kind.TX_MESSAGE, Kind.TIMER))
"""The kinds of records that hold messages."""
DECODERS: dict[int, Callable[..., Record]] = {
    Kind.MESSAGE: _decode_run,
    Kind.PRE_MESSAGE: _decode_run,
    Kind.REF_MESSAGE: _decode_run,
    Kind.TX_MESSAGE: _decode_run,
    Kind.TIMER: _decode_run,
    Kind.PREPARE: _decode_prepare,
    Kind.COMMIT: _decode_decided,
    Kind.ROLLBACK: _decode_decided,
    **{kind: form.decode for kind, form in FORMS.items()},
}


def _parts(data: bytes, at: int, run: Run) -> tuple[bytes, bytes]:
    """Return the columns and the stored bodies of `run`, which is sound and at `data[at]`."""
    _, head_size, *_ = COMMON.unpack_from(data, at + PREFIX_BYTES)
    start = at + HEAD_BYTES_MIN + PLACE.size + len(utf8(run.topic))
    start += len(utf8(run.producer)) + len(run.tx_id)
    if run.kind != MESSAGE:
        start += 8
    if run.flags & COMPRESSED:
        start += 4
    bodies = at + head_size
    return data[start : bodies - len(run.extension)], data[bodies : at + run.size]


def columns_of(data: bytes, at: int, run: Run) -> Columns:
    """Return the columns of `run`, which is sound and at `data[at]`. A REF_MESSAGE has none."""
    columns, bodies = _parts(data, at, run)
    if run.flags & HAS_ERASED:
        flags = data[at + KIND_AT + 1]
        return ErasedColumns(run.count, flags, columns, bodies, run.raw_bytes, run.extension)
    return Columns(run.count, run.flags, columns, bodies, run.raw_bytes, run.extension)


def with_bodies(data: bytes, at: int, run: Run) -> Run:
    """Return a copy of the sound `run` at `data[at]`, with its columns and bodies, to be written
    again.
    """
    if run.flags & HAS_ERASED:
        return _with_what_is_left(columns_of(data, at, run), run)
    new = copy_of(run, run.kind)
    new.columns, new.bodies = _parts(data, at, run)
    new.extension = without_request(run.extension) if run.extension else b""
    return new


def _with_what_is_left(columns: Columns, run: Run) -> Run:
    """Return a copy of `run` in which the messages that were erased are empty."""
    keys, tags = columns.texts()
    carried = (each or repeat(None) for each in (keys, tags, columns.headers()))
    left = [Message(*each) for each in zip(columns.bodies(), *carried, strict=False)]
    new = encode_messages(left, None)
    for name in ("kind", "topic", "queue", "tx", "tx_id", "producer"):
        setattr(new, name, getattr(run, name))
    new.extension = without_request(run.extension) if run.extension else b""
    return new

"""Messages in a frame: runs, each of one queue, as columns and bodies that a record can take over.

offset  size  field
     0     1  size of the topic
     1     1  flags of the content, as in a record
     2     2  queue
     4     4  count of messages
     8     4  size of the columns
    12     4  size of the bodies
    16     4  size of the bodies, once decompressed
    20     4  CRC-32 of the bodies
    24     4  size of the extension, only with the flag EXTENDED
     .     *  topic, columns, extension, bodies; then the next run
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from zlib import crc32

from fmq.arguments.names import check_name
from fmq.errors import BadName, TooLarge
from fmq.store.bytes.columns import CARRIED, COMPRESSED, LENGTHS, Columns
from fmq.store.bytes.content import RECORD_MESSAGES_MAX, columns_crc
from fmq.store.bytes.extras import check_message_columns
from fmq.store.bytes.kinds import Kind, Run
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import EXTENDED, U32, utf8
from fmq.wire.frames import BadFrame

RUN = Struct("<BBHIIIII")


def encode_runs(runs: Iterable[Run]) -> list[bytes]:
    """Return, in parts, the bytes of runs that have no place in their queues yet."""
    parts: list[bytes] = []
    for run in runs:
        name, columns, bodies, extension = utf8(run.topic), run.columns, run.bodies, run.extension
        assert bodies is not None
        flags = run.flags | EXTENDED if extension else run.flags
        sizes = len(columns), len(bodies), run.raw_bytes
        parts.append(RUN.pack(len(name), flags, run.queue, run.count, *sizes, run.bodies_crc))
        if extension:
            parts += U32.pack(len(extension)), name, columns, extension, bodies
        else:
            parts += name, columns, bodies
    return parts


def decode_runs(
    data: bytes, at: int, kind: Kind, producer: str, message_bytes_max: int, tx_id: str = ""
) -> list[Run]:
    """Return the runs that begin at `data[at]`, as records of `kind`.

    Every message was looked at, so that each can be read once it is written. Raises BadFrame, or
    TooLarge for a message of more than `message_bytes_max`.
    """
    runs = []
    try:
        while at < len(data):
            names, flags, queue, count, columns, bodies, raw_bytes, crc = RUN.unpack_from(data, at)
            at += RUN.size
            extras = 0
            if flags & EXTENDED:
                (extras,) = U32.unpack_from(data, at)
                at, flags = at + U32.size, flags ^ EXTENDED
            end = at + names + columns + extras + bodies
            if end > len(data):
                raise BadFrame("a run is cut short")
            topic = check_name("topic", data[at : at + names].decode())
            at += names
            column, joined = data[at : at + columns], data[end - bodies : end]
            run = Run(kind, count, joined, crc, raw_bytes, flags, column)
            run.topic, run.queue, run.tx_id, run.producer = topic, queue, tx_id, producer
            run.extension = data[at + columns : end - bodies]
            _check(run, message_bytes_max)
            run.columns_crc = columns_crc(run)
            runs.append(run)
            at = end
    except (StructError, UnicodeDecodeError, BadName, BadColumns) as error:
        raise BadFrame(f"a run that cannot be read: {error}") from None
    return runs


def _check(run: Run, message_bytes_max: int) -> None:
    count, flags, bodies = run.count, run.flags, run.bodies or b""
    if crc32(bodies) != run.bodies_crc:
        raise BadFrame("the bodies of a run do not have their checksum")
    if not 0 < count <= RECORD_MESSAGES_MAX or flags & ~(CARRIED | COMPRESSED | LENGTHS):
        raise BadFrame(f"a run of {count} messages with the flags {flags}")
    if run.columns and not flags & (CARRIED | LENGTHS):
        raise BadFrame("a run with columns that no flag names")
    size = len(bodies)
    if run.extension:
        check_message_columns(run.extension)
    if flags or run.extension:
        columns = Columns.of(run)
        columns.check()
        size = sum(sizes := [*map(len, columns.bodies())])
        size_max = max(sizes)
    else:
        size_max, rest = divmod(size, count)
        if rest:
            raise BadFrame(f"{size} bytes of bodies are not {count} of equal length")
    if size != run.raw_bytes:
        raise BadFrame(f"{size} bytes of bodies, and the run says {run.raw_bytes}")
    if size_max > message_bytes_max:
        raise TooLarge("a message in bytes", size_max, message_bytes_max, "message_bytes_max")

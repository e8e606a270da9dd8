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
from fmq.store.bytes.content import RECORD_MESSAGES_MAX, Content
from fmq.store.bytes.extras import check_message_columns
from fmq.store.bytes.kinds import Kind, Run
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import EXTENDED, U32, utf8
from fmq.wire.frames import BadFrame

RUN = Struct("<BBHIIIII")


def encode_run(topic: str, queue: int, content: Content) -> tuple[bytes, ...]:
    """Return, in parts, the bytes of a run that has no place in its queue yet."""
    name, columns, bodies = utf8(topic), content.columns, content.bodies
    sizes = len(columns), len(bodies), content.raw_bytes
    extension = content.extension
    flags = content.flags | EXTENDED if extension else content.flags
    head = RUN.pack(len(name), flags, queue, content.count, *sizes, content.bodies_crc)
    if extension:
        return head, U32.pack(len(extension)), name, columns, extension, bodies
    return head, name, columns, bodies


def encode_runs(runs: Iterable[Run]) -> bytes:
    """Return the bytes of runs that have no place in their queues yet."""
    parts: list[bytes] = []
    for run in runs:
        assert run.content is not None
        parts += encode_run(run.topic, run.queue, run.content)
    return b"".join(parts)


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
            stored = data[at : at + columns], data[end - bodies : end]
            extension = data[at + columns : end - bodies]
            content = Content(count, flags, *stored, crc, raw_bytes, extension)
            _check(content, message_bytes_max)
            run = Run(kind, topic, queue, 0, count, 0, 0, tx_id, producer, 0, content)
            run.columns_crc = content.columns_crc()
            runs.append(run)
            at = end
    except (StructError, UnicodeDecodeError, BadName, BadColumns) as error:
        raise BadFrame(f"a run that cannot be read: {error}") from None
    return runs


def _check(content: Content, message_bytes_max: int) -> None:
    count, flags, bodies = content.count, content.flags, content.bodies
    if crc32(bodies) != content.bodies_crc:
        raise BadFrame("the bodies of a run do not have their checksum")
    if not 0 < count <= RECORD_MESSAGES_MAX or flags & ~(CARRIED | COMPRESSED | LENGTHS):
        raise BadFrame(f"a run of {count} messages with the flags {flags}")
    if content.columns and not flags & (CARRIED | LENGTHS):
        raise BadFrame("a run with columns that no flag names")
    size = len(bodies)
    if content.extension:
        check_message_columns(content.extension)
    if flags or content.extension:
        stored = content.columns, bodies, content.raw_bytes, content.extension
        columns = Columns(count, flags, *stored)
        columns.check()
        size = sum(sizes := [*map(len, columns.bodies())])
        size_max = max(sizes)
    else:
        size_max, rest = divmod(size, count)
        if rest:
            raise BadFrame(f"{size} bytes of bodies are not {count} of equal length")
    if size != content.raw_bytes:
        raise BadFrame(f"{size} bytes of bodies, and the run says {content.raw_bytes}")
    if size_max > message_bytes_max:
        raise TooLarge("a message in bytes", size_max, message_bytes_max, "message_bytes_max")

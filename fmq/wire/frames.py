"""Frames: what goes over a connection in both directions, and how a stream of bytes is cut into
them.

    offset  size  field
         0     4  size      of the payload, in bytes
         4     1  op        what is asked; an answer repeats it
         5     1  flags     AGAIN, or FAILED in an answer
         6     2  handle    of a consumer; else 0
         8     4  request   a number that the client chooses; its answer repeats it
        12     *  the payload

All numbers are little-endian. Answers come in any order.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from fmq.basics.tuples import tuple_maker

HEAD = Struct("<IBBHI")
# Flag of a request that is repeated, because the client does not know whether the first one was
# carried out.
AGAIN = 1
FAILED = 1  # flag of an answer that is an error
VERSION = 3
# The limit of the first payload, HELLO. Any program that can connect may send it.
FIRST_BYTES_MAX = 4 * 1024
HELLO_BYTES_MAX = 64 * 1024
# The limit of a JSON payload. In memory it takes up to forty times as much.
VALUES_BYTES_MAX = 4 << 20
# Parts of an unfinished payload are kept apart from this size on.
PART_BYTES_MIN = 4 * 1024


class Op(IntEnum):
    """The kinds of request."""

    HELLO = 1
    SEND = 2
    COMMIT = 3
    PREPARE = 4
    # Calls a method by its name, with values. For methods that are called seldom.
    CALL = 5
    READ = 6
    JOIN = 7
    POLL = 8
    ACK = 9
    RELEASE = 10
    LEAVE = 11
    ASK = 12
    HOLD = 13
    END_HOLD = 14
    TAKE_ID = 15
    RELEASE_ID = 16
    TAKE = 17  # messages that are acked before the client sees them
    REJECT = 18
    CHANGE = 19  # a call that changes a group or a topic, by name
    RECALL = 20
    CANCEL = 21  # let a waiting POLL, READ or WAIT return now
    DRAIN = 22  # hand no new messages to a consumer
    EXTEND = 23
    ACK_ALL = 24  # acks several ranges of one consumer, all of them or none
    ADVANCE = 25  # acks as ACK does; the answer brings the next message, if there is one
    WAIT = 26  # waits until one of several queues has a message


WRITES = frozenset((Op.SEND, Op.COMMIT, Op.PREPARE, Op.TAKE))
"""Those that may be as large as an append."""
ONCE = WRITES | {Op.CHANGE, Op.RECALL}
"""Those with a sequence. Each is carried out once, however often it is sent."""


class Frame(NamedTuple):
    """One request or answer."""

    op: int
    flags: int
    handle: int
    request: int
    payload: bytes


made_frame = tuple_maker(Frame)


class BadFrame(Exception):
    """The other side has sent bytes that break the rules. The connection cannot go on."""

    def __init__(self, text: str, asked: Frame | None = None) -> None:
        """`asked` is the head of the frame, if it was read."""
        super().__init__(text)
        self.asked = asked


def frame(op: int, request: int, *payload: bytes, flags: int = 0, handle: int = 0) -> bytes:
    """Return the bytes of a frame."""
    size = sum(map(len, payload))
    return b"".join((HEAD.pack(size, op, flags, handle, request), *payload))


def repeated(data: bytes) -> bytes:
    """Return the frame `data` with the flag AGAIN, for sending it a second time."""
    size, op, _, handle, request = HEAD.unpack_from(data)
    return HEAD.pack(size, op, AGAIN, handle, request) + data[HEAD.size :]


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self, bytes_max: int, values_bytes_max: int | None = None) -> None:
        """Refuse a payload of more than `bytes_max` before keeping its bytes. A payload without
        messages may have at most `values_bytes_max`.
        """
        self.limit(bytes_max, values_bytes_max)
        self._kept = b""  # an unfinished head
        # The head of an unfinished frame, the parts of its payload, and how many bytes it lacks.
        self._head = (0, 0, 0, 0)
        self._parts: list[bytes] = []
        self._lacks = 0

    def limit(self, bytes_max: int, values_bytes_max: int | None = None) -> None:
        """Replace both limits."""
        self._bytes_max = bytes_max
        self._values_bytes_max = min(bytes_max, values_bytes_max or bytes_max)

    @property
    def is_empty(self) -> bool:
        """Return whether no part of an unfinished frame is kept."""
        return not (self._kept or self._lacks)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes. Raises BadFrame."""
        found, at = [], 0
        if self._lacks:
            if len(data) < self._lacks:
                self._keep(data)
                return []
            at, self._lacks = self._lacks, 0
            # Joined once: a large payload comes in many parts, and copies of it are not cheap.
            payload = b"".join((*self._parts, data[:at]))
            self._parts.clear()
            found.append(made_frame((*self._head, payload)))
        elif self._kept:
            data, self._kept = self._kept + data, b""
        end = len(data)
        while end - at >= HEAD.size:
            size, op, flags, handle, request = HEAD.unpack_from(data, at)
            if size > self._values_bytes_max:
                self._check(size, op, flags, handle, request)
            at += HEAD.size
            if at + size > end:
                self._head, self._lacks = (op, flags, handle, request), size
                self._keep(data[at:])
                return found
            start, at = at, at + size
            found.append(made_frame((op, flags, handle, request, data[start:at])))
        self._kept = data[at:]
        return found

    def _keep(self, data: bytes) -> None:
        """Keep a part of a payload. Small ones become one: an object for each would take many
        times its bytes.
        """
        self._lacks -= len(data)
        parts = self._parts
        if parts and len(parts[-1]) < PART_BYTES_MIN:
            parts[-1] += data
        else:
            parts.append(data)

    def _check(self, size: int, op: int, flags: int, handle: int, request: int) -> None:
        """Raise BadFrame for a payload that is larger than its limit."""
        limit = self._bytes_max if op in WRITES else self._values_bytes_max
        if size > limit:
            text = f"a frame of {size:,} bytes, and {limit:,} are the limit"
            # Do not keep the error in a variable: it would hold the bytes in a cycle until the
            # garbage collector runs.
            raise BadFrame(text, Frame(op, flags, handle, request, b""))

"""The least of an engine: what any engine must do behind fmq's interface, written out flat.

It makes the bytes that fmq writes, gives them a lock, shared syncs, offsets, limits, an index,
receipts, a table of what is undecided and a consumer, and leaves out all that an engine is asked
for besides: rolling, waiting for messages, keys and headers, leases, checkpoints, retention,
recovery, failures and signals. Nobody should use it. It is here to be timed: an engine in Python
that does more than this takes longer than this.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

from benchmarks import zeros
from benchmarks.least_bytes import Place, Row, ack, commit, message, now_us, prepare, rows_of
from fmq.basics.message import Receipt
from fmq.store.reading.window import Window

FILE_BYTES = 64 << 20
BODY_BYTES_MAX = 1 << 20
APPEND_BYTES_MAX = 4 << 20
READ_BYTES = 64 << 10
START = 64


class BareFile:
    """Zeros that are on the disk, written over from front to back."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        zeros.fill(self._fd, FILE_BYTES)
        self.position = START

    def write(self, data: bytes) -> None:
        """Write after the last data; near the end of the file, begin again at its front."""
        os.pwritev(self._fd, (data,), self.position, os.RWF_DSYNC)
        self.position = (self.position + len(data)) % (FILE_BYTES - APPEND_BYTES_MAX)

    def write_at(self, position: int, data: bytes) -> None:
        os.pwritev(self._fd, (data,), position, os.RWF_DSYNC)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)


class Lane:
    """The index of one topic, with one queue; and up to which offset it is visible."""

    __slots__ = ("counts", "next", "records", "starts")

    def __init__(self) -> None:
        self.starts, self.counts, self.records = array("I"), array("I"), array("I")
        self.next = 0


# What is prepared: its number, when that was, its rows, the seal, how many messages and bytes.
Undecided = tuple[int, int, list[Row], bytes, int, int]
# What is to be called, and with what, once something is durable.
Publication = tuple[Callable[..., None], tuple[Any, ...]]


class LeastEngine:
    """Topics of one queue in one file, for threads that share syncs."""

    def __init__(self, file: BareFile, topics: tuple[str, ...], seed: int) -> None:
        self._file, self._seed = file, seed
        self._lock = Lock()
        self._lanes = {topic: Lane() for topic in topics}
        self._next = dict.fromkeys(topics, 0)
        self._outcomes: dict[int, int] = {}
        self._undecided: dict[str, Undecided] = {}
        self._acked: dict[tuple[str, str], int] = {}
        self._numbers = count()
        self._end = self._start = START  # of all, and of what nobody writes yet
        self._buffers: list[bytes] = []
        self._publications: list[Publication] = []
        self._waiters: list[Lock] = []
        self._leads = False
        self._heir: Lock | None = None

    def send(self, topic: str, body: bytes) -> Receipt:
        if type(body) is not bytes or topic not in self._lanes:
            raise TypeError
        if len(body) > BODY_BYTES_MAX:
            raise ValueError
        first, at = self._run(self._plan_send, (topic, body))
        return Receipt(topic, 0, first, at, 1)

    def transaction(self) -> LeastTransaction:
        return LeastTransaction(self, f"019ab1a2-0000-7000-8000-{next(self._numbers):012x}")

    def consumer(self, topic: str, group: str) -> LeastConsumer:
        return LeastConsumer(self, topic, group)

    # --- what others call ---------------------------------------------------------------------

    def commit(self, runs: dict[str, list[bytes]], tx_id: str) -> list[Place]:
        places: list[Place] = self._run(self._plan_commit, (tx_id, 0, 0, *rows_of(runs)))
        return places

    def prepare(self, runs: dict[str, list[bytes]], tx_id: str) -> None:
        self._run(self._plan_prepare, (tx_id, *rows_of(runs)))

    def commit_prepared(self, tx_id: str) -> list[Place]:
        places: list[Place] = self._run(self._plan_commit, (tx_id, *self._undecided[tx_id]))
        return places

    def ack(self, topic: str, group: str, names: bytes, offset: int) -> None:
        self._run(self._plan_ack, (topic, group, names, offset))

    def read(self, topic: str, offset: int) -> list[bytes]:
        """Bodies from `offset` on, as many as one look at the file finds."""
        with self._lock:
            lane = self._lanes[topic]
            if offset >= lane.next:
                return []
            first = bisect_right(lane.starts, offset) - 1
            places, counts = lane.records[first : first + 1000], lane.counts[first : first + 1000]
        data = self._file.read(places[0], READ_BYTES)
        window = Window(0, places[0], data)
        return window.cut_singles(places, counts, 0, len(places), self._seed)

    # --- planning, under the lock -------------------------------------------------------------

    def _planned(self, data: bytes, publish: Callable[..., None], what: tuple[Any, ...]) -> None:
        end = self._end + len(data)
        if end > FILE_BYTES:
            raise ValueError
        self._end = end
        self._buffers.append(data)
        self._publications.append((publish, what))

    def _plan_send(self, topic: str, body: bytes) -> tuple[int, int]:
        first, at = self._next[topic], self._end
        data = message(at, at - self._start, self._seed, topic, body, first, now_us())
        self._planned(data, self._show, (topic, first, 1, at))
        self._next[topic] = first + 1
        return first, at

    def _plan_prepare(
        self, tx_id: str, rows: list[Row], seal: bytes, messages: int, raw_bytes: int
    ) -> None:
        at, now = self._end, now_us()
        lag = at - self._start
        data = prepare(at, lag, self._seed, rows, seal, messages, raw_bytes, tx_id, now)
        held = at, now, rows, seal, messages, raw_bytes
        self._planned(data, self._undecided.__setitem__, (tx_id, held))

    def _plan_commit(
        self,
        tx_id: str,
        tx: int,
        prepared: int,
        rows: list[Row],
        seal: bytes,
        messages: int,
        raw_bytes: int,
    ) -> list[Place]:
        at, now, nexts = self._end, now_us(), self._next
        data, places = commit(
            at, at - self._start, self._seed, rows, seal, messages, raw_bytes, nexts,
            tx_id, now, tx or at, prepared or now,
        )  # fmt: skip
        self._planned(data, self._publish, (tx_id, at, places))
        for topic, first, number, _ in places:
            nexts[topic] = first + number
        return places

    def _plan_ack(self, topic: str, group: str, names: bytes, offset: int) -> None:
        at = self._end
        data = ack(at, at - self._start, self._seed, names, offset, offset + 1, now_us())
        self._planned(data, self._acked.__setitem__, ((topic, group), offset + 1))

    # --- publishing, under the lock -----------------------------------------------------------

    def _show(self, topic: str, first: int, number: int, at: int) -> None:
        lane = self._lanes[topic]
        lane.starts.append(first)
        lane.counts.append(number)
        lane.records.append(at)
        lane.next = first + number

    def _publish(self, tx_id: str, at: int, places: list[Place]) -> None:
        self._undecided.pop(tx_id, None)
        for place in places:
            self._show(*place)
        self._outcomes[crc32(tx_id.encode())] = at

    # --- sharing syncs ------------------------------------------------------------------------

    def _run(self, plan: Callable[..., Any], what: tuple[Any, ...]) -> Any:
        """Plan, and return once that is durable and published."""
        waiter = None
        with self._lock:
            result = plan(*what)
            if self._leads:
                waiter = Lock()
                waiter.acquire()
                self._waiters.append(waiter)
            else:
                self._leads = True
                taken = self._take()
        if waiter is not None:
            waiter.acquire()
            if waiter is not self._heir:
                return result
            with self._lock:
                taken = self._take()
        self._lead(*taken)
        return result

    def _take(self) -> tuple[int, list[bytes], list[Publication], list[Lock]]:
        taken = self._start, self._buffers, self._publications, self._waiters
        self._start = self._end
        self._buffers, self._publications, self._waiters = [], [], []
        return taken

    def _lead(
        self,
        start: int,
        buffers: list[bytes],
        publications: list[Publication],
        waiters: list[Lock],
    ) -> None:
        self._file.write_at(start, b"".join(buffers))
        with self._lock:
            for publish, what in publications:
                publish(*what)
            for waiter in waiters:
                waiter.release()
            if self._waiters:
                self._heir = heir = self._waiters.pop(0)
                heir.release()
            else:
                self._leads = False


class LeastTransaction:
    """Bodies by topic, within a limit; written at the end of the block, or in two phases."""

    def __init__(self, engine: LeastEngine, tx_id: str) -> None:
        self._engine, self._tx_id = engine, tx_id
        self._runs: dict[str, list[bytes]] = {}
        self._room = APPEND_BYTES_MAX
        self._is_open = True

    def send(self, topic: str, body: bytes) -> None:
        if type(body) is not bytes or not self._is_open:
            raise TypeError
        room = self._room - len(body)
        if room < 0:
            raise ValueError
        self._room = room
        run = self._runs.get(topic)
        if run is None:
            run = self._runs[topic] = []
        run.append(body)

    def prepare(self) -> None:
        self._is_open = False
        self._engine.prepare(self._runs, self._tx_id)

    def commit(self) -> list[Place]:
        if self._is_open:
            self._is_open = False
            return self._engine.commit(self._runs, self._tx_id)
        return self._engine.commit_prepared(self._tx_id)

    def __enter__(self) -> LeastTransaction:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self.commit()


class LeastConsumer:
    """The only one of its group: it takes message after message, and acks each."""

    def __init__(self, engine: LeastEngine, topic: str, group: str) -> None:
        self._engine, self._topic, self._group = engine, topic, group
        self._names = bytes((len(group), len(topic))) + bytes(2) + (group + topic).encode()
        self._next = 0
        self._ahead: deque[bytes] = deque()

    def poll(self) -> tuple[int, bytes] | None:
        """The next message, with its offset; None if there is none yet."""
        if not self._ahead:
            self._ahead.extend(self._engine.read(self._topic, self._next))
            if not self._ahead:
                return None
        offset = self._next
        self._next = offset + 1
        return offset, self._ahead.popleft()

    def ack(self, offset: int) -> None:
        self._engine.ack(self._topic, self._group, self._names, offset)

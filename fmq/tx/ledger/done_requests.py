"""The requests of clients that were carried out, so that none is carried out twice.

A client in another process may lose its connection and not learn what became of its requests. It
repeats them with the same sequence numbers. A request that was carried out before is answered from
here. With each request a client says which of its earlier ones still lack an answer; older ones are
forgotten. A client that has sent nothing for an hour is forgotten, too.

The hour is counted by the times in the records, so that a replay forgets the same clients. The
clock on the wall may have jumped between two records, so at most a minute counts between one record
and the next. A client whose clock did not jump can still repeat its requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, NamedTuple

from fmq.store.bytes.extension import Request
from fmq.store.bytes.kinds import TIMER, Acks, Record, Run
from fmq.store.bytes.record import BadRecord
from fmq.store.bytes.timing import timing_in

FORGOTTEN_AFTER_US = 3600 * 1_000_000
STEP_US_MAX = 60 * 1_000_000
"""How much of the time between two records counts as silence."""
CLIENT_BYTES = 16
SEQUENCE_MAX = 1 << 64


class Done(NamedTuple):
    """A record that carried out requests: a single one, or one for each of its messages.

    If it is an ack, it lists the messages that were taken for good. A record without messages, such
    as a COMMIT, has no topic.
    """

    first: int
    requests: int
    position: int
    topic: str
    queue: int
    offset: int
    messages: int
    due_us: int = 0
    """When they are due, of messages that wait."""


class KnownClient:
    """A client, and those of its requests that may still lack an answer."""

    __slots__ = ("done", "last", "last_us")

    def __init__(self) -> None:
        self.last = -1  # the largest sequence number so far
        # The time of the client's last request, moved on by jumps of the clock that do not count as
        # silence.
        self.last_us = 0
        self.done: deque[Done] = deque()


class Requests:
    """The carried-out requests that the journal has, by client. The client silent for longest is
    first.
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, KnownClient] = OrderedDict()

    def note(self, request: Request, record: Record) -> None:
        """Note that `record` carries out `request`. `check_request` has passed both."""
        place = "", 0, 0, 0, 0
        if isinstance(record, Run):
            timing = timing_in(record.extension) if record.kind == TIMER else None
            due_us = 0 if timing is None else timing.due_us
            place = record.topic, record.queue, record.offset, record.count, due_us
        elif isinstance(record, Acks):
            (taken,) = record.ranges
            place = taken.topic, taken.queue, taken.first, taken.end - taken.first, 0
        known = self._clients.get(request.client)
        if known is None:
            known = self._clients[request.client] = KnownClient()
        self._clients.move_to_end(request.client)
        done, oldest = known.done, request.sequence - request.waiting
        while done and done[0].first + done[0].requests <= oldest:
            done.popleft()
        done.append(Done(request.sequence, request.requests, record.position, *place))
        known.last = max(known.last, request.sequence + request.requests - 1)
        known.last_us = record.time_us
        self._forget_silent(record.time_us)

    def leave_out(self, time_us: int) -> None:
        """Move the last times of all clients on by `time_us`, the length of a jump of the clock
        between two records. So the jump does not count as silence of a client.
        """
        for known in self._clients.values():
            known.last_us += time_us

    def _forget_silent(self, now_us: int) -> None:
        while True:
            client, known = next(iter(self._clients.items()))
            if now_us - known.last_us <= FORGOTTEN_AFTER_US:
                return
            del self._clients[client]

    def find(self, client: bytes, sequence: int) -> list[Done]:
        """Return the records that carried out the request; an empty list if it was not
        carried out.
        """
        known = self._clients.get(client)
        if known is None or sequence > known.last:
            return []
        return [done for done in known.done if 0 <= sequence - done.first < done.requests]

    def carried(self) -> list[list[Any]]:
        """Return all requests for JSON. The order of clients that were seen last at one instant is
        fixed, so it does not depend on where a replay began.
        """
        known_clients = sorted(self._clients.items(), key=_silence)
        return [
            [client.hex(), known.last, known.last_us, [list(done) for done in known.done]]
            for client, known in known_clients
        ]

    def carry(self, carried: list[list[Any]]) -> None:
        """Take over what `carried` returned at an earlier time."""
        for text, last, last_us, done in carried:
            client = bytes.fromhex(text)
            known = self._clients.get(client)
            if known is None or known.last_us <= last_us:
                known = self._clients[client] = KnownClient()
                known.last, known.last_us = last, last_us
                known.done.extend(Done(*each) for each in done)
        self._clients = OrderedDict(sorted(self._clients.items(), key=_silence))


def _silence(item: tuple[bytes, KnownClient]) -> tuple[int, bytes]:
    client, known = item
    return known.last_us, client


def check_request(request: Request, record: Record) -> None:
    """Raise BadRecord if `record` cannot carry out `request`."""
    messages = 1
    if isinstance(record, Run):
        messages = record.count
    elif isinstance(record, Acks):
        if len(record.ranges) != 1:
            raise BadRecord(f"a request that takes {len(record.ranges)} ranges of messages")
        messages = record.ranges[0].end - record.ranges[0].first
    if request.sequence + request.requests > SEQUENCE_MAX:
        raise BadRecord(f"{request.requests} requests from the number {request.sequence} on")
    if request.requests not in (1, messages or 1):
        raise BadRecord(f"{request.requests} requests in a record of {messages} messages")

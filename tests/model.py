"""What a user may rely on, in dicts and lists: the model that the engine is compared with.

It knows nothing of bytes, segments or recovery. `differs` says in words where an engine shows
something else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from copy import copy

import fmq
from fmq.consume.calls.consumer import member_of
from fmq.consume.claims.poll import Poll
from fmq.errors import UnknownTransaction
from fmq.testing.inside import inside

Place = tuple[str, int]
Plain = tuple[bytes, str | None, str | None, dict[str, str], str | None]
"""Body, key, tag, headers and tx_id of a message."""
Offset = tuple[str, int, int]
GROUP = "group"
QUEUES = {"one": 1, "two": 2}


def place_of(topic: str, key: str | None) -> Place:
    """The queue of a message; one without a key goes to queue 0, where the tests send it."""
    return topic, zlib.crc32(key.encode()) % QUEUES[topic] if key else 0


class Parcel:
    """What a transaction publishes and acks when it commits."""

    def __init__(self) -> None:
        self.messages: list[tuple[Place, Plain]] = []
        self.acks: list[Offset] = []


class Model:
    """The messages of each queue, the transactions, and what one group is done with."""

    def __init__(self) -> None:
        self.queues: dict[Place, tuple[Plain, ...]] = {}
        self.undecided: dict[str, Parcel] = {}
        self.outcomes: dict[str, str] = {}
        self.acked: frozenset[Offset] = frozenset()
        self.paused = ""  # the reason of the group's pause; "" if it is not paused

    def changed(self, change: Callable[[Model], None]) -> Model:
        """The model after `change`; this one stays as it is."""
        model = copy(self)
        model.queues, model.undecided = self.queues.copy(), self.undecided.copy()
        model.outcomes = self.outcomes.copy()
        change(model)
        return model

    def publish(self, messages: Iterable[tuple[Place, Plain]]) -> None:
        for place, message in messages:
            self.queues[place] = (*self.queues.get(place, ()), message)

    def ack(self, offsets: Iterable[Offset]) -> None:
        self.acked = self.acked.union(offsets)

    def commit_at_once(self, tx_id: str, parcel: Parcel) -> None:
        self.undecided[tx_id] = parcel
        self.decide(tx_id, "commit")

    def decide(self, tx_id: str, decision: str) -> None:
        parcel = self.undecided.pop(tx_id)
        self.outcomes[tx_id] = "committed" if decision == "commit" else "rolled back"
        if decision == "commit":
            self.publish(parcel.messages)
            self.ack(parcel.acks)

    @property
    def held(self) -> set[Offset]:
        """Return the messages that undecided transactions would ack. No consumer gets them
        meanwhile.
        """
        return {offset for parcel in self.undecided.values() for offset in parcel.acks}


Engine = fmq.Engine | fmq.ReadOnlyEngine


def differences(
    engine: Engine, model: Model, ids: Iterable[str], *, dropped: bool
) -> Iterator[str]:
    """Yield where `engine` shows something else. With `dropped` retention may have dropped the
    oldest messages.
    """
    infos = {(info.topic, info.queue): info for info in engine.queues()}
    for place in infos.keys() | model.queues.keys():
        expected = model.queues.get(place, ())
        info = infos.get(place)
        first = info.first if info else 0
        found = read_all(engine, *place, first)
        if [as_plain(message) for message in found] != list(expected[first:]):
            yield f"{place} from {first} on: {found}, expected {expected[first:]}"
        if [message.offset for message in found] != list(range(first, len(expected))):
            yield f"{place} has offsets {[message.offset for message in found]}"
        if first and not dropped:
            yield f"{place} begins at {first}, and nothing may have been dropped"
        times = [message.time for message in found if message.time]
        if times != sorted(times):
            yield f"{place}: time goes back: {times}"
    for each in engine.groups(GROUP):
        if (reason := each.paused.reason if each.paused else "") != model.paused:
            yield f"the group is paused for {reason!r}, expected {model.paused!r}"
    if (seen := {tx.tx_id for tx in engine.undecided()}) != model.undecided.keys():
        yield f"undecided are {seen}, expected {set(model.undecided)}"
    for tx_id in ids:
        state = "undecided" if tx_id in model.undecided else model.outcomes.get(tx_id, "unknown")
        found_state = outcome(engine, tx_id)
        if found_state != state and not (dropped and found_state == "unknown"):
            yield f"{tx_id} is {found_state}, expected {state}"


def outcome(engine: Engine, tx_id: str) -> str:
    try:
        return engine.outcome(tx_id).state
    except UnknownTransaction:
        return "unknown"


def read_all(engine: Engine, topic: str, queue: int, first: int = 0) -> list[fmq.Message]:
    """All messages of a queue, read as three different batches so that none begins in step."""
    found = engine.read(topic, queue=queue, offset=first, limit=3)
    return found + engine.read(topic, queue=queue, offset=first + len(found), limit=10_000)


def as_plain(message: fmq.Message) -> Plain:
    headers = dict(message.headers or {})
    return bytes(message.body), message.key, message.tag, headers, message.tx_id


def done(engine: fmq.Engine) -> set[Offset]:
    """Return what the group does not get any more. Method: poll everything, and give it back."""
    pauses = inside(engine).ledger.pauses
    paused = pauses.copy()
    with engine.consumer(list(QUEUES), group=GROUP, lease_seconds=1e6) as consumer:
        delivered = set()
        pauses.clear()
        # Not a poll, which would write that it tries them: this only looks.
        member = member_of(consumer)
        while claimed := member.drive(member.taking(Poll(member.clock, 1000, 600.0))):
            for message in (message for piece in claimed[1] for message in piece):
                offset = message.topic, message.queue, message.offset
                assert offset not in delivered, f"{offset} was handed out twice"
                delivered.add(offset)
        pauses.update(paused)
    return {
        (info.topic, info.queue, offset)
        for info in engine.queues()
        for offset in range(info.first, info.next)
    } - delivered

"""What a message becomes in a target: its name there, and what is said of it beside its body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, repeat
from operator import attrgetter
from typing import NamedTuple, TypedDict

from fmq.basics.message import Message, Origin
from fmq.basics.tuples import tuple_maker
from fmq.relay.target import PARKED, ParkedStub, RelayBatch

OURS = (
    *("fmq-id", "fmq-time", "fmq-key", "fmq-tag", "fmq-message-id", "fmq-tx", "fmq-tx-count"),
    PARKED,
)
"""Headers that a relay writes. One of a message with such a name is left out."""


class EnvelopeShape(TypedDict, total=False):
    """How a target may change what messages become."""

    prefix: str
    names: Mapping[str, str]
    cloudevents: bool


class Enveloped(NamedTuple):
    """A message as it goes into a target."""

    message: Message
    name: str
    """Of its topic there."""
    headers: list[tuple[str, str]]


made_enveloped = tuple_maker(Enveloped)


class EnvelopedRun(NamedTuple):
    """The messages of one record of the journal, as they go into a target."""

    name: str
    """Of their topic there."""
    origin: Origin
    messages: list[Message]
    headers: list[list[tuple[str, str]]]
    """Of each message."""


class Envelope:
    """Says of each message what a target of one relay gets."""

    def __init__(
        self,
        *,
        prefix: str = "",
        names: Mapping[str, str] | None = None,
        cloudevents: bool = False,
    ) -> None:
        """`names` has the names of topics that are called otherwise there, and `prefix` comes
        before all. With `cloudevents`, a message has the attributes of CloudEvents, too.
        """
        self.prefix = prefix
        self.cloudevents = cloudevents
        self._names = dict(names or {})

    def name(self, topic: str) -> str:
        """Return the name that a topic has in the target."""
        return self.prefix + self._names.get(topic, topic)

    def headers(
        self, batch: RelayBatch, *, bare: bool = False, attributes: str = "ce-"
    ) -> Iterator[Enveloped]:
        """Yield the messages of a batch, as `runs` has them."""
        for run in self.runs(batch, bare=bare, attributes=attributes):
            yield from map(made_enveloped, zip(run.messages, repeat(run.name), run.headers))

    def runs(
        self, batch: RelayBatch, *, bare: bool = False, attributes: str = "ce-"
    ) -> Iterator[EnvelopedRun]:
        """Yield the messages of a batch by records of the journal: what all messages of one have in
        common is made once. `bare` is for a target that has a place of its own for key and time.
        `attributes` comes before the names of CloudEvents' attributes.
        """
        store, counts = batch.place.store, Counter[str]()
        runs = [(origin, [*run]) for origin, run in groupby(batch.messages, attrgetter("origin"))]
        for origin, run in runs:
            counts[origin.tx_id] += len(run)
        for origin, run in runs:
            topic, queue, tx_id = origin.topic, origin.queue, origin.tx_id
            name, start = self.name(topic), f"{store}/{topic}/{queue}/"
            of_all: list[tuple[str, str]] = []
            if tx_id is not None:
                of_all = [("fmq-tx", tx_id), ("fmq-tx-count", str(counts[tx_id]))]
            if not bare:
                of_all.append(("fmq-time", str(origin.time_us)))
            _, keys, tags, more, offsets, _, ids, *_ = zip(*run, strict=True)
            # Written as one expression, because it runs for every message.
            headers = [[("fmq-id", f"{start}{offset}"), *of_all] for offset in offsets]
            if not bare:
                _add(headers, "fmq-key", keys)
            _add(headers, "fmq-tag", tags)
            _add(headers, "fmq-message-id", ids)
            if self.cloudevents:
                for message, said in zip(run, headers, strict=True):
                    about = attributes_of(message, said[0][1], name)
                    said += [(attributes + what, text) for what, text in about.items()]
            if any(more):
                for message, said, theirs in zip(run, headers, more, strict=True):
                    hidden = () if isinstance(message, ParkedStub) else OURS
                    said += [each for each in (theirs or {}).items() if each[0] not in hidden]
            yield EnvelopedRun(name, origin, run, headers)


def _add(headers: list[list[tuple[str, str]]], name: str, texts: tuple[str | None, ...]) -> None:
    """Add a header to the messages that have a text for it."""
    if any(each is not None for each in texts):
        for said, each in zip(headers, texts, strict=True):
            if each is not None:
                said.append((name, each))


def attributes_of(message: Message, fmq_id: str, name: str) -> dict[str, str]:
    """Return the attributes of a message as a CloudEvent."""
    assert message.time is not None, "it was read"
    said = {
        "specversion": "1.0",
        "id": fmq_id,
        "source": f"urn:fmq:{fmq_id.partition('/')[0]}",
        "type": message.tag or name,
        "time": message.time.isoformat().replace("+00:00", "Z"),
    }
    return said if message.key is None else said | {"subject": message.key}

"""What a directory holds, as JSON can say it: so a golden directory and what it must show compare.

Only the public calls are used, so the next format is asked the same questions.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import fmq
from fmq.errors import FmqError
from fmq.testing import FakeClock

DATA = Path(__file__).parent / "data"
EXPECTED = "expected.json"
SPELLED_BYTES_MAX = 160

Seen = dict[str, Any]


def seen(engine: fmq.Engine | fmq.ReadOnlyEngine, expected: Seen) -> Seen:
    """Everything that can be seen of the transactions and groups that `expected` names, and of
    all queues and undecided transactions that there are. The first directories lack some of it.
    """
    found: Seen = {
        "queues": {f"{info.topic}/{info.queue}": queue(engine, info) for info in engine.queues()},
        "undecided": [on_disk(each) for each in engine.undecided()],
        "outcomes": {tx_id: outcome(engine, tx_id) for tx_id in expected["outcomes"]},
    }
    if "marks" in expected:
        found["marks"] = {name: [value, data.hex()] for name, (value, data) in marks_of(engine)}
    if "options" in expected:
        found["options"] = {
            each.name: each.value for each in engine.settings() if each.source == "directory"
        }
    if "codecs" in expected:
        found["codecs"] = {name: stored_codec(engine, name) for name in expected["codecs"]}
    if "groups" in expected:
        names = {name for each in expected["groups"] for name in each}
        found["groups"] = [progress(info, names) for info in engine.groups()]
    if "found" in expected:
        found["found"] = {what: with_key(engine, what) for what in expected["found"]}
    if isinstance(engine, fmq.Engine):
        found["not acked"] = {group: left(engine, group) for group in expected["not acked"]}
        if "unread" in expected:
            found |= seen_by_writers(engine, expected)
    return found


def seen_by_writers(engine: fmq.Engine, expected: Seen) -> Seen:
    """Return what came with format 2, and a read-only engine does not show."""
    return {
        "unread": {group: unread(engine, group, was) for group, was in expected["unread"].items()},
        "delayed": [
            {**plain(receipt), "due": str(receipt.due)} for receipt in engine.delayed(limit=1000)
        ],
        "dead letters": {
            group: [plain(letter) for letter in engine.dead_letters(group)]
            for group in expected["dead letters"]
        },
        "ids": {what: first_sent(engine, what) for what in expected["ids"]},
    }


def queue(engine: fmq.Engine | fmq.ReadOnlyEngine, info: fmq.QueueInfo) -> Seen:
    """Every message of a queue with every field, and its first and next offsets."""
    messages = engine.read(info.topic, queue=info.queue, offset=info.first, limit=100_000)
    return {
        "first": info.first,
        "next": info.next,
        "messages": [
            {
                "offset": message.offset,
                "position": message.position,
                "time": str(message.time),
                "tx_id": message.tx_id,
                "producer": message.producer,
                "key": message.key,
                "tag": message.tag,
                "headers": dict(message.headers or {}),
                "body": as_text(message.body),
                **extras(message),
            }
            for message in messages
        ],
    }


def extras(message: fmq.Message) -> Seen:
    """Id, priority and expiry of a message, those that it has."""
    said = {name: getattr(message, name) for name in ("message_id", "priority", "expires_at")}
    return {name: plain(value) for name, value in said.items() if value is not None}


def marks_of(engine: fmq.Engine | fmq.ReadOnlyEngine) -> list[tuple[str, fmq.Mark]]:
    return sorted(engine.marks(prefix="").items())


def progress(info: fmq.GroupInfo, names: set[str]) -> Seen:
    """Return how far a group is in a queue: the fields in `names`, or all if there are none. An
    older `expected.json` has fewer fields.
    """
    said: Seen = plain(info)
    for name in ("behind_seconds", "members", "in_hand"):  # with the clock, or in memory alone
        del said[name]
    if names and "replayed" not in names:
        said["unread"] -= said["replayed"]  # they were in no number
    return {name: what for name, what in said.items() if not names or name in names}


def with_key(engine: fmq.Engine | fmq.ReadOnlyEngine, what: str) -> list[str]:
    """Return the places of the messages of a topic with a key, the newest first."""
    topic, key = what.split()
    return [f"{found.queue}:{found.offset}" for found in engine.find(topic, key=key)]


def unread(
    engine: fmq.Engine, group: str, expected: dict[str, list[str]] | None
) -> dict[str, list[str]]:
    """Return what the group has not acked, of each of its topics. Nothing is taken.

    Replayed dead letters are left out if what is `expected` has none: it is from before `unread`
    showed them.
    """
    found = {}
    infos = engine.groups(group)
    for topic in sorted({info.topic for info in infos}):
        messages = engine.unread(group, topic, limit=1000)
        places = [f"{each.queue}:{each.offset}" for each in messages]
        known = [place for place in places if expected and place in expected.get(topic, ())]
        replayed = sum(info.replayed for info in infos if info.topic == topic)
        found[topic] = known if expected and len(places) == len(known) + replayed else places
    return found


def first_sent(engine: fmq.Engine, what: str) -> Any:
    """Return the place of the message that has taken an id, or the name of the error. A repeat
    sends nothing.
    """
    topic, message_id = what.split()
    try:
        return plain(engine.send(topic, b"a repeat", message_id=message_id))
    except FmqError as error:
        return type(error).__name__


def handed_out(engine: fmq.Engine, group: str, topics: list[str], clock: FakeClock) -> Seen:
    """Return what a new consumer gets at once and two seconds later, each with its attempt.
    Messages in hand at the kill wait from the first poll on. That counts as an attempt.
    """
    found: Seen = {}
    with engine.consumer(topics, group=group) as consumer:
        for when in ("at once", "2 s later"):
            places = found[when] = {}
            while deliveries := consumer.poll(limit=1000):
                for each in deliveries:
                    place = f"{each.topic}/{each.queue}"
                    places.setdefault(place, []).append(f"{each.offset}: attempt {each.attempt}")
            clock.advance(2)
    return found


def published(engine: fmq.Engine, before: Seen) -> dict[str, list[Seen]]:
    """Return the messages that have come into the queues of `before` since. The format does not say
    where their records are.
    """
    found: dict[str, list[Seen]] = {}
    for info in engine.queues():
        place = f"{info.topic}/{info.queue}"
        known = before[place]["next"]
        for message in queue(engine, info)["messages"]:
            if message["offset"] >= known:
                said = {name: message[name] for name in message if name not in ("position", "time")}
                found.setdefault(place, []).append(said)
    return found


def stored_codec(engine: fmq.Engine | fmq.ReadOnlyEngine, topic: str) -> Any:
    """The name, version and fields of a topic's codec."""
    found = engine.topic(topic).codec()
    return found and [found.name, found.version, found.fields and dict(found.fields)]


def outcome(engine: fmq.Engine | fmq.ReadOnlyEngine, tx_id: str) -> Any:
    """All fields of an outcome; of one that cannot be had, the name of the error."""
    try:
        said = plain(engine.outcome(tx_id))
        if said["joint"] is None:
            del said["joint"]  # older directories were described without it
    except FmqError as error:
        return type(error).__name__
    if not said["asked"]:
        del said["asked"]  # it came later than the first directories, in bytes that are 0 there
    return said


def left(engine: fmq.Engine, group: str) -> dict[str, list[int]]:
    """Return, for each queue, the offsets that the group gets now."""
    topics = sorted({info.topic for info in engine.queues()})
    found: dict[str, list[int]] = {}
    with engine.consumer(topics, group=group) as consumer:
        while deliveries := consumer.poll(limit=1000):
            for each in deliveries:
                found.setdefault(f"{each.topic}/{each.queue}", []).append(each.offset)
    return {place: sorted(offsets) for place, offsets in sorted(found.items())}


def on_disk(undecided: fmq.UndecidedTransaction) -> dict[str, Any]:
    """Return what the directory says of the question. When it is due is only in memory."""
    said: dict[str, Any] = plain(undecided)
    later = ("bound",)  # is in the rows of the records; the first directories were written without
    return {name: said[name] for name in said if name not in ("answers", "parked", *later)}


def plain(what: Any) -> Any:
    """A result of the engine, or a part of one, as JSON has it."""
    if hasattr(what, "_asdict"):
        return {name: plain(each) for name, each in what._asdict().items()}
    if isinstance(what, (list, tuple)):
        return [plain(each) for each in what]
    if isinstance(what, datetime):
        return str(what)
    if isinstance(what, (bytes, dict)):
        return as_text(what) if isinstance(what, bytes) else what
    if hasattr(type(what), "__slots__") and not isinstance(what, (str, int, float, type(None))):
        return {name: plain(getattr(what, name)) for name in type(what).__slots__}
    return what


def as_text(body: Any) -> str:
    """A body: itself if it is short and printable, in hexadecimal, or by its checksum."""
    data = bytes(body)
    if len(data) > SPELLED_BYTES_MAX:
        return f"{len(data)} bytes, sha256 {sha256(data).hexdigest()}"
    if data.isascii() and (not data or data.decode().isprintable()):
        return data.decode()
    return "hex " + data.hex()

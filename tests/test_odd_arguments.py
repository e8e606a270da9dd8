"""Each argument of each public call is given odd values, on each face: a lone surrogate, NaN,
numbers without end, times at the ends of the calendar, None, and what is of another kind.

The value is accepted, or refused with an error of fmq, a TypeError or a ValueError whose text names
the argument; then nothing was changed. test_wrong_kinds.py has refusals with their exact words.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import islice
from typing import Any

import pytest

import fmq
from fmq.errors import Damaged, EngineFailed, FmqError, OutcomeUnknown, ProtocolError
from fmq.faces.blocking.handles import ScheduleHandle, TopicHandle
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AwaitedEngine
from tests.budget import BUDGET
from tests.remote.over_frames import OverFrames
from tests.small import check, opened

WEST, EAST = timezone(-timedelta(hours=23, minutes=59)), timezone(timedelta(hours=23, minutes=59))
HUGE = 10**400

TEXTS: list[Any] = ["\ud800", "a\ud800b", "", "a\0b", "x" * 70_000, None, 5, b"x", 1.5]
NUMBERS: list[Any] = [
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 1e300),
    *(HUGE, -HUGE, 2**31, 2**32, 2**63, 2**64, -1, -(2**63), -(2**64), 0),
    *(None, "5", b"5", [1], 1j, True),
]
TIMES: list[Any] = [
    datetime.max.replace(tzinfo=UTC).replace(tzinfo=None),
    datetime.min.replace(tzinfo=UTC).replace(tzinfo=None),
    datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=WEST),
    datetime.max.replace(tzinfo=EAST),
    datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=EAST),
    datetime.min.replace(tzinfo=WEST),
    datetime(1969, 12, 31, tzinfo=UTC),
    *(None, 5, "2026-01-01", math.nan),
]
FLAGS: list[Any] = [None, 0, 1, "no", [], math.nan]
THINGS: list[Any] = [None, 5, "\ud800", object(), [None], math.nan]

KINDS: dict[str, list[Any]] = {
    **dict.fromkeys(("topic", "key", "tag", "producer", "message_id", "tx_id", "group"), TEXTS),
    **dict.fromkeys(("name", "member", "reason", "decided_by", "seal", "prefix", "to"), TEXTS),
    **dict.fromkeys(("by", "reset", "cron", "timezone", "missed", "ticket"), TEXTS),
    **dict.fromkeys(("strategy", "expired", "decision", "names", "topics"), TEXTS),
    **dict.fromkeys(("queue", "limit", "offset", "count", "number", "queues", "priority"), NUMBERS),
    **dict.fromkeys(("value", "expect", "lease_seconds", "timeout", "delay", "wait"), NUMBERS),
    **dict.fromkeys(("retain_seconds", "seconds", "check_after", "after", "max_size"), NUMBERS),
    **dict.fromkeys(("max_wait", "workers", "numbers", "position", "concurrency", "rate"), NUMBERS),
    **dict.fromkeys(("concurrency_by_key", "rate_by_key", "time_limit"), NUMBERS),
    **dict.fromkeys(("expires_at", "deliver_at", "time", "before"), TIMES),
    "at": [*TIMES, *NUMBERS, *TEXTS],
    **dict.fromkeys(("sync", "ordered", "strict", "broadcast", "all", "replace", "fair"), FLAGS),
    "exist_ok": FLAGS,
    "tx_ids": [*THINGS, [], [""], ["T", 5], ["T", "\ud800"], ["unknown"], "T"],
    "mark": [*THINGS, ("m", 1), ("m", -1, None), ("m", 1, "x"), (5, 1, None), ("m", math.nan, 1)],
    **dict.fromkeys(("body", "bodies", "headers", "filter", "wanted", "retry", "message"), THINGS),
    **dict.fromkeys(("codec", "tx", "values"), THINGS),
    **dict.fromkeys(("on_change", "receipt", "delivery", "question", "messages"), THINGS),
    **dict.fromkeys(("local", "handler", "data", "error", "damaged", "options", "places"), THINGS),
}
"""What is given for an argument of a name."""

FLAG_COUNT = {"release", "release_ticket"}  # the `count` of these is no number
CALLED = {  # how an error may call an argument that it names
    "name": "name|topic|group|mark",
    "names": "mark",
    "bodies": "bodies|body|message",
    "tx_ids": "tx_id|cannot be decided",
    "mark": "mark|value|expect",
    "wanted": "filter",
    "limit": "limit",
    "headers": "header",
    "data": "data|bytes",
    "to": "begins at|seek takes|to=",
    "time": "time|datetime|seek takes",
    "offset": "offset|seek takes|beyond",
    "at": "begins at|offset|at=",
    "numbers": "number|dead letter|purge takes",
    "before": "before|purge takes",
    "all": "all=|purge takes",
    "error": "error|reason",
    "value": "value|u64|codec",
    "topics": "topic",
    "question": "Question",
    "reset": "option|reset",
    "by": "by|who",
    "count": "count|beyond|queues",
    "message_id": "message id|message_id",
    "messages": "message",
    "topic": "topic|takes from",
    "decision": "decision|answer",
    "decided_by": "decided_by",
    "number": "number|dead letter",
}
BROKEN = EngineFailed, ProtocolError, OutcomeUnknown, Damaged


class World:
    """An engine with a little of everything, as one face shows it."""

    def __init__(self, face: str) -> None:
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.served = served = opened(self.disk, self.clock, topic_queues={"four": 4})
        served.send("t", b"1", key="k", message_id="m")
        served.send("four", b"1", queue=3)
        served.create_group("g", "t")
        with served.consumer("t", group="dead") as consumer:
            consumer.poll()[0].reject("no")
        with served.transaction() as tx:
            tx.mark("mark", 1)
        served.schedule("s", "0 0 1 1 *", "t", b"")
        self.delayed = served.send("later", b"", delay=50)
        prepared = served.transaction(tx_id="T", producer="p", check_after=0)
        prepared.send("t", b"never")
        prepared.prepare()
        self.engine = self._face(face)
        self._numbers = iter(range(1_000_000))

    def _face(self, face: str) -> Any:
        match face:
            case "frames":
                return OverFrames(self.served, self.clock)
            case "aio" | "aio over frames":
                return AwaitedEngine(self.served, self.clock, over_frames=face != "aio")
            case "read only":
                self.served.sync()
                return fmq.open("data", read_only=True, disk=self.disk, clock=self.clock)
        return self.served

    def position(self) -> object:
        stats = self.served.stats()
        return stats.position, stats.delayed, self.served.groups()

    def transaction(self) -> Any:
        return self.engine.transaction()

    def consumer(self) -> Any:
        return self.engine.consumer("t", group=f"g{next(self._numbers)}")

    def delivery(self) -> Any:
        return self.consumer().poll()[0]

    def batch(self) -> Any:
        return self.consumer().poll_batch()

    def member(self) -> str:
        """Return the name of a member of the group g."""
        self.served.consumer("t", group="g").poll()
        return self.served.group("g").members()[-1].name

    def ticket(self) -> str:
        """Return the ticket of a message that the group g has in hand."""
        self.taker = self.served.consumer("t", group="g")
        return self.taker.poll(limit=1)[0].ticket

    def drained(self) -> Any:
        consumer = self.consumer()
        consumer.drain()
        return consumer

    def close(self) -> None:
        if self.engine is not self.served:
            self.engine.close()
        self.served.close()
        check(self.disk)


Target = Callable[[World], Any]
DRAINED = {"run", "batches"}  # they go on for ever
TARGETS: dict[str, tuple[type, Target]] = {
    "engine": (fmq.Engine, lambda world: world.engine),
    "transaction": (fmq.Transaction, World.transaction),
    "consumer": (fmq.Consumer, World.consumer),
    "delivery": (fmq.Delivery, World.delivery),
    "batch": (fmq.DeliveryBatch, World.batch),
    "group": (fmq.Group, lambda world: world.engine.group("g")),
    "topic": (TopicHandle, lambda world: world.engine.topic("t")),
    "typed topic": (
        fmq.TypedTopic,
        lambda world: world.engine.topic("typed", codec=fmq.codecs.json()),
    ),
    "schedule": (ScheduleHandle, lambda world: world.engine.scheduled("s")),
    "dead letters": (fmq.DeadLetters, lambda world: world.engine.dead_letters("dead")),
    "feedback": (fmq.Feedback, lambda world: world.engine.feedback),
}

GOOD: dict[str, Any] = {
    "topic": "t", "body": b"x", "bodies": [b"x"], "tx_id": "T", "decision": "rollback",
    "messages": [("t", b"x")], "local": lambda tx: "commit", "producer": "p", "key": "k",
    "group": "g", "topics": "t", "name": "n", "queue": 0, "offset": 0, "count": 1, "number": 0,
    "value": 1, "seconds": 1.0, "handler": lambda delivery: None, "wanted": None,
    "time": datetime(2026, 1, 1, tzinfo=UTC), "error": ValueError(),
    "tx_ids": ["T"], "member": "m", "reason": "slow", "by": "ann", "cron": "0 0 2 2 *",
    "options": fmq.Options(queues=2), "values": [1], "ticket": "1-0-0-1", "delay": 1.0,
}  # fmt: skip
"""What is given for an argument that has to be given, while another one is odd."""
NEEDED: dict[tuple[str, str], Callable[[World], dict[str, Any]]] = {
    ("engine", "recall"): lambda w: {"receipt": w.delayed},
    ("engine", "topic"): lambda w: {"name": "t"},
    ("engine", "group"): lambda w: {"name": "g"},
    ("engine", "dead_letters"): lambda w: {"group": "dead"},
    ("engine", "unread"): lambda w: {"group": "g", "topic": "t"},
    ("engine", "wait"): lambda w: {"places": {("t", 0): 0}, "timeout": 0.0},
    ("transaction", "ack"): lambda w: {"delivery": w.delivery()},
    ("engine", "erase"): lambda w: {"topic": "t", "key": "nobody"},
    ("typed topic", "send_in"): lambda w: {"tx": w.transaction()},
    ("typed topic", "value"): lambda w: {"message": w.served.read("t")[0]},
    ("group", "seek"): lambda w: {"topic": "t"},
    ("group", "put_out"): lambda w: {"member": w.member(), "reason": "hangs"},
    ("group", "release"): lambda w: {"member": w.member(), "reason": "hangs"},
    **{
        ("group", call): lambda w: {"ticket": w.ticket()}
        for call in ("ack_ticket", "reject_ticket")
    },
    ("group", "release_ticket"): lambda w: {"ticket": w.ticket(), "delay": 1.0},
    ("group", "ack_below"): lambda w: {"topic": "t"},
    ("group", "reject"): lambda w: {"topic": "t"},
    ("group", "purge"): lambda w: {"topic": "t", "reason": "old", "to": "latest"},
    ("feedback", "answer"): lambda w: {
        "question": w.served.feedback.ask_about("T")[0],
        "decision": "unknown",
    },
}
LEFT_OUT = {
    ("engine", "serve"),  # files, addresses and sockets of this machine
    ("engine", "backup"),
    ("engine", "settle", "timeout"),
    ("engine", "transaction", "bind"),  # tests/bind has it
}
FACES = ["in process", "frames", "aio", "aio over frames", "read only"]


def calls() -> Iterator[tuple[str, str]]:
    for target, (kind, _) in TARGETS.items():
        for name in dir(kind):
            call = inspect.getattr_static(kind, name)
            if name.startswith("_") or not inspect.isfunction(call):
                continue
            if (target, name) not in LEFT_OUT and len(inspect.signature(call).parameters) > 1:
                yield target, name


def odd_values(target: str, name: str) -> Iterator[tuple[str, Any]]:
    kind, _ = TARGETS[target]
    for parameter in [*inspect.signature(getattr(kind, name)).parameters.values()][1:]:
        if (target, name, parameter.name) in LEFT_OUT:
            continue
        values = KINDS[parameter.name]
        if parameter.name == "count" and name in FLAG_COUNT:
            values = FLAGS
        for value in values:
            yield parameter.name, value


def made(world: World, target: str, name: str, odd: str, value: Any) -> Callable[[], object]:
    """Return the call with one odd argument."""
    kind, find = TARGETS[target]
    one = world.drained() if name in DRAINED else find(world)
    positional: list[Any] = []
    named = NEEDED.get((target, name), lambda _: {})(world)
    for parameter in [*inspect.signature(getattr(kind, name)).parameters.values()][1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional = [value] if odd == parameter.name else []
        elif parameter.default is parameter.empty and parameter.name not in named:
            named[parameter.name] = GOOD[parameter.name]
    if name == "seek" and odd in ("topic", "queue"):
        named["to"] = "earliest"
    if odd != "names":
        named[odd] = value
    return lambda: drawn(getattr(one, name)(*positional, **named))


def names_it(text: str, odd: str, value: Any) -> bool:
    """Return whether the text of an error names the argument, or shows it."""
    if re.search(CALLED.get(odd, odd), text) or re.search(re.escape(f"{value!r}"), text):
        return True
    # An engine process takes no frame of that size, whatever is in it.
    return isinstance(value, str) and len(value) > 65_536 and "a request in bytes" in text


def drawn(found: Any) -> object:
    return next(found, None) if hasattr(found, "__next__") else found


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("target", "name"), [*calls()], ids=lambda each: each)
def test_an_odd_argument_is_accepted_or_refused_by_name(face: str, target: str, name: str) -> None:
    """Nothing is changed by a call that is refused, and the engine goes on.

    A face gets every fifth value, and together the faces get all; with FMQ_BUDGET=2 each gets all.
    """
    world = World(face)
    if face == "read only" and (target != "engine" or not hasattr(fmq.ReadOnlyEngine, name)):
        world.close()
        pytest.skip("it only reads")
    wrong = []
    step = len(FACES) if BUDGET <= 1 else 1
    for odd, value in islice(odd_values(target, name), FACES.index(face) % step, None, step):
        call = made(world, target, name, odd, value)
        before = world.position()
        said = f"{name}({odd}={value!r:.60})"
        try:
            call()
        except BROKEN as error:
            wrong.append(f"{said}: {error!r:.200}")
            break
        except (FmqError, TypeError, ValueError) as error:
            if isinstance(error, UnicodeError) or not names_it(str(error), odd, value):
                wrong.append(f"{said}: {error!r:.200}")
            elif world.position() != before:
                wrong.append(f"{said}: it has changed something, and raised {error!r:.200}")
        except Exception as error:
            wrong.append(f"{said}: {error!r:.200}")
        else:
            if world.position() != before:
                world.close()
                world = World(face)
    assert wrong == []
    world.close()


@pytest.mark.parametrize(
    "value", [*TEXTS, *NUMBERS, *TIMES, *THINGS], ids=lambda each: f"{each!r:.20}"
)
def test_an_odd_argument_of_a_filter_option_or_retry_is_refused_by_name(value: Any) -> None:
    """Filters, options and times to try again are made without an engine."""
    makes: list[Callable[[], object]] = [
        lambda: fmq.filters.sql(value),
        lambda: fmq.filters.tags(value),
        lambda: fmq.Retry(value),
        lambda: fmq.Retry(backoff=value),
        lambda: fmq.Retry(jitter=value),
        *(partial(fmq.Options, **{each.name: value}) for each in fields(fmq.Options)),
    ]
    for make in makes:
        error = error_of(make)
        assert error is None or isinstance(error, FmqError | TypeError | ValueError)
        assert not isinstance(error, UnicodeError)
        if isinstance(make, partial) and error is not None:
            assert next(iter(make.keywords)) in str(error)


def error_of(make: Callable[[], object]) -> Exception | None:
    try:
        make()
    except Exception as error:
        return error
    return None

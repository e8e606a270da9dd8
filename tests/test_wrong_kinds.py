"""What is of the wrong kind is refused by name, in every public call, and nothing is changed.

REFUSALS is the table: what an argument may not be, how that is refused, and the calls that take it.
Nothing here waits: what is accepted ends at once, and what used to spin for ever is refused.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fmq
from fmq import CheckLoop, Engine
from fmq.arguments.options import SECONDS_MAX
from fmq.errors import BadName, BadOption, NotAStore, TooLarge
from tests.small import CrashDisk, bodies, check, opened, ways_to_send


class Place:
    """An engine with a message in each of two topics, a reader of it, and a path of no store."""

    def __init__(self, disk: CrashDisk, engine: Engine, path: Path) -> None:
        self.disk = disk
        self.engine = engine
        self.path = path
        self._prepared: fmq.Transaction | None = None
        self.feedback = engine.feedback
        self.consumer = engine.consumer("empty", group="g")
        engine.send("t", b"0")
        engine.send("four", b"0", queue=3)
        engine.checkpoint()
        self.reader = fmq.open("data", read_only=True, disk=disk)

    def loop(self, **options: Any) -> CheckLoop:
        return CheckLoop(self.feedback, {}, **options)

    def prepared(self) -> fmq.Transaction:
        """T, which waits for a decision."""
        if self._prepared is None:
            self._prepared = self.engine.transaction(tx_id="T", check_after=0)
            self._prepared.send("t", b"never seen")
            self._prepared.prepare()
        return self._prepared

    def ended(self) -> fmq.Transaction:
        tx = self.engine.transaction()
        tx.commit()
        return tx

    def delivery(self) -> fmq.Delivery:
        return self.engine.consumer("t", group="deliveries").poll()[0]

    def question(self) -> fmq.Question:
        """One about T."""
        self.prepared()
        (question,) = self.feedback.ask_about("T")
        return question

    def verify(self) -> None:
        """Nothing was changed by any call, and nothing was made at the path."""
        self.reader.close()
        for each in self.engine.undecided():
            self.engine.decide(each.tx_id, "rollback")
        assert self.engine.undecided() == []
        assert bodies(self.engine, "t") == [b"0"]
        assert [info.topic for info in self.engine.queues()] == ["t", *["four"] * 4]
        assert not self.path.exists()


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def place(disk: CrashDisk, tmp_path: Path) -> Iterator[Place]:
    with opened(disk, topic_queues={"four": 4}) as engine:
        place = Place(disk, engine, tmp_path / "data")
        yield place
        place.verify()
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "t") == [b"0"]


@pytest.fixture
def engine(place: Place) -> Engine:
    return place.engine


Call = Callable[[Place, Any], object]


class Refusal(NamedTuple):
    """Values that an argument may not have, how they are refused, and the calls that take it."""

    values: Sequence[Any]
    error: type[Exception]
    words: str | None
    calls: dict[str, Call]


def both(name: str, call: Callable[[Any, Any], object]) -> dict[str, Call]:
    """The same call of the engine and of a reader."""
    return {
        name: lambda place, value: call(place.engine, value),
        f"{name} of a reader": lambda place, value: call(place.reader, value),
    }


ROUND: dict[str, Call] = {"a round of the loop": lambda p, v: p.loop().once(wait=v)}
WAITS: dict[str, Call] = {
    "poll": lambda p, v: p.consumer.poll(timeout=v),
    "poll_batch": lambda p, v: p.consumer.poll_batch(timeout=v),
    "read": lambda p, v: p.engine.read("empty", timeout=v),
    "read of what is there": lambda p, v: p.engine.read("t", timeout=v),
    "read_batch": lambda p, v: p.engine.read_batch("empty", timeout=v),
    "settle": lambda p, v: p.engine.settle(timeout=v),
    "ask": lambda p, v: p.feedback.ask("p", wait=v),
    "wait of the loop": lambda p, v: p.loop(wait=v),
    "pause of the loop": lambda p, v: p.loop(pause=v),
}
ALL_WAITS: dict[str, Call] = {**WAITS, **ROUND}
NO_SECONDS = ["5", b"5", Decimal(1), True, np.True_, [1], 1j]

LEASE: dict[str, Call] = {
    "consumer": lambda p, v: p.engine.consumer("t", group="g", lease_seconds=v)
}
CHECK_AFTER: dict[str, Call] = {"transaction": lambda p, v: p.engine.transaction(check_after=v)}

LIMITS: dict[str, Call] = {
    **both("read", lambda one, v: one.read("t", limit=v)),
    **both("read_batch", lambda one, v: one.read_batch("t", limit=v)),
    "poll": lambda p, v: p.engine.consumer("t", group="g").poll(limit=v),
    "ask": lambda p, v: p.feedback.ask("p", limit=v),
    "loop": lambda p, v: p.loop(limit=v),
}

NAMES: dict[str, Call] = {
    "send": lambda p, v: p.engine.send(v, b""),
    "send with a key": lambda p, v: p.engine.send(v, b"", key="k", queue=0),
    "send_many": lambda p, v: p.engine.send_many(v, [b""]),
    "send_many of none": lambda p, v: p.engine.send_many(v, []),
    "send in a transaction": lambda p, v: p.engine.transaction().send(v, b""),
    "send with a tag in one": lambda p, v: p.engine.transaction().send(v, b"", tag="t"),
    "send_many in one": lambda p, v: p.engine.transaction().send_many(v, [b""]),
    "send_many of none in one": lambda p, v: p.engine.transaction().send_many(v, []),
    "group": lambda p, v: p.engine.consumer("t", group=v),
    "one of several topics": lambda p, v: p.engine.consumer([v], group="g"),
    "checker": lambda p, v: p.engine.checker(v),
    "one of several producers": lambda p, v: p.feedback.ask([v], wait=0),
    "one of several topics asked about": lambda p, v: p.feedback.ask("p", [v], wait=0),
    "ask_about": lambda p, v: p.feedback.ask_about(v),
    "resume": lambda p, v: p.feedback.resume(v),
    "decide": lambda p, v: p.engine.decide(v, "commit"),
    "topic of the loop": lambda p, v: p.loop(topics=[v]),
    **both("read", lambda one, v: one.read(v)),
    **both("read_batch", lambda one, v: one.read_batch(v)),
    **both("outcome", lambda one, v: one.outcome(v)),
}
NAMES_OR_NONE: dict[str, Call] = {
    "send": lambda p, v: p.engine.send("t", b"", producer=v),
    "send_many": lambda p, v: p.engine.send_many("t", [b""], producer=v),
    "send_many of none": lambda p, v: p.engine.send_many("t", [], producer=v),
    "transaction": lambda p, v: p.engine.transaction(producer=v),
    "bound transaction": lambda p, v: p.engine.transaction(producer=v, bind=object()),
    "id": lambda p, v: p.engine.transaction(tx_id=v),
    "reason": lambda p, v: p.engine.decide("T", "commit", reason=v),
    "decided_by": lambda p, v: p.engine.decide("T", "commit", decided_by=v),
    "seal": lambda p, v: p.engine.decide("T", "commit", seal=v),
    **both("queues", lambda one, v: one.queues(v)),
    **both("groups", lambda one, v: one.groups(v)),
}
ONE_OR_SEVERAL: dict[str, Call] = {
    "topics of a consumer": lambda p, v: p.engine.consumer(v, group="g"),
    "producers asked for": lambda p, v: p.feedback.ask(v, wait=0),
}
# Some of them cannot even be looked up in a dict.
ATOMS = [5, b"x", True, bytearray(b"x"), np.array([1, 2])]
SEVERAL = [(), [], {}, ["x"]]

ANSWERS: dict[str, Call] = {
    answer: lambda p, v, answer=answer: p.feedback.answer(v, answer)  # type: ignore[misc]
    for answer in ("commit", "unknown")
}


def all_ways(*topics: str, **options: Callable[[Any], Any]) -> dict[str, Call]:
    """All ways to send to each topic, with the value in the place of one argument."""

    def calls(number: int, topic: str) -> Call:
        def call(place: Place, value: Any) -> object:
            more = {name: of(value) for name, of in options.items()}
            return ways_to_send(place.engine)[number](topic, b"x", **more)

        return call

    names = "send", "send_many", "send in a transaction", "send_many in one"
    return {
        f"{name} to {topic}": calls(number, topic)
        for number, name in enumerate(names)
        for topic in topics
    }


def itself(value: Any) -> Any:
    return value


def body_calls() -> dict[str, Call]:
    """All ways to send the value as a body."""
    return {
        "send": lambda p, v: p.engine.send("t", v),
        "send with a key": lambda p, v: p.engine.send("t", v, key="k"),
        "send_many after another": lambda p, v: p.engine.send_many("t", [b"before", v]),
        "send_many in a Message": lambda p, v: p.engine.send_many("t", [fmq.Message(v)]),
        "send in a transaction": lambda p, v: p.engine.transaction().send("t", v),
        "send_many in one": lambda p, v: p.engine.transaction().send_many("t", [v]),
    }


QUEUES: dict[str, Call] = {
    **all_ways("t", "four", "new", queue=itself),
    **{
        f"{k} with a key": call
        for k, call in all_ways("t", queue=itself, key=lambda _: "k").items()
    },
    "send_many of bytes": lambda p, v: p.engine.send_many("four", [b"x"], queue=v),
    "send_many of none": lambda p, v: p.engine.send_many("four", [], queue=v),
    "send_many of none in a transaction": lambda p, v: p.engine.transaction().send_many(
        "four", [], queue=v
    ),
}
SYNCS: dict[str, Call] = {
    "send": lambda p, v: p.engine.send("t", b"x", sync=v),
    "send_many": lambda p, v: p.engine.send_many("new", [b"x"], sync=v),
    "send_many of none": lambda p, v: p.engine.send_many("t", [], sync=v),
    "ack": lambda p, v: p.delivery().ack(sync=v),
    "commit of a prepared one": lambda p, v: p.prepared().commit(sync=v),
    "commit of an ended one": lambda p, v: p.ended().commit(sync=v),
}
REASONS: dict[str, Call] = {
    "decide": lambda p, v: p.engine.decide(p.prepared().tx_id, "commit", reason=v)
}


class Growing(dict[str, str]):
    """As a dict that another thread fills while it is iterated."""

    def keys(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    __iter__ = keys


class Losing(dict[str, str]):
    """As a mapping that loses a name between one look and the next."""

    def keys(self) -> Any:
        return ["a", "b"]

    __iter__ = keys

    def __len__(self) -> int:
        return 2


def released() -> memoryview:
    view = memoryview(b"x")
    view.release()
    return view


# What they point to is not in them; and text is to be encoded, also that of numpy.
POINTED = [
    np.array([object()], dtype=object),
    np.array([(1, "text")], dtype=[("number", "i4"), ("text", "O")]),
    (ctypes.c_char_p * 1)(b"text"),
    np.str_("text"),
]


def check_nothing(question: fmq.Question) -> Any:
    raise AssertionError


def doors(name: str) -> dict[str, Call]:
    return {
        f"{name} of an engine": lambda p, v: fmq.open(p.path, **{name: v}),
        f"{name} of a reader": lambda p, v: fmq.open(p.path, **{name: v}, read_only=True),
    }


NO_DOORS = [5, False, 0, "", "x", [], (), {}, object()]
PATHS: dict[str, Call] = {
    **{
        f"{name} {where}": call
        for where, disk in (("on this machine", None), ("in memory", CrashDisk()))
        for name, call in {
            "open": lambda p, v, disk=disk: fmq.open(v, disk=disk),
            "read_only": lambda p, v, disk=disk: fmq.open(v, disk=disk, read_only=True),
            "check": lambda p, v, disk=disk: fmq.check(v, disk=disk),
        }.items()
    }
}

REFUSALS: dict[str, Refusal] = {
    "no number of seconds": Refusal(
        NO_SECONDS, TypeError, r"is a number of seconds.*Nothing was changed", ALL_WAITS
    ),
    "no seconds at all": Refusal(  # a round of the loop takes as long as the loop says
        [None], TypeError, r"is a number of seconds.*Nothing was changed", WAITS
    ),
    # A NaN is neither before nor after any deadline: it would be looked at again for ever.
    "seconds that never come": Refusal(
        [math.nan, np.float32("nan")],
        BadOption,
        r"=nan: is no number of seconds",
        ALL_WAITS,
    ),
    "no number of a lease": Refusal(
        ["5", Decimal(1), True, b""], TypeError, "lease_seconds", LEASE
    ),
    "no number of a delay": Refusal(
        ["5", Decimal(1), True, b""], TypeError, "check_after", CHECK_AFTER
    ),
    "a lease that ends never or has ended": Refusal(
        [10**400, math.inf, 2 * SECONDS_MAX, math.nan, 0, -1, -math.inf],
        BadOption,
        "lease_seconds",
        LEASE,
    ),
    "a delay that is too long or over": Refusal(
        [10**400, math.inf, math.nan, -1, 1e10], BadOption, "check_after", CHECK_AFTER
    ),
    "no int as a limit": Refusal(
        ["x", None, 1.5, math.nan, -math.inf, [], b""], TypeError, "limit", LIMITS
    ),
    "a negative limit": Refusal(
        [-1], BadOption, "limit", both("read", lambda one, v: one.read("t", limit=v))
    ),
    "no str as a name": Refusal([*ATOMS, *SEVERAL, None], TypeError, "is a str", NAMES),
    "no str as a name that may be left out": Refusal(
        [*ATOMS, *SEVERAL], TypeError, "is a str", NAMES_OR_NONE
    ),
    "no str as a name or several": Refusal([*ATOMS, None], TypeError, "is a str", ONE_OR_SEVERAL),
    "no str as a topic to be asked about": Refusal(
        ATOMS, TypeError, "is a str", {"ask": lambda p, v: p.feedback.ask("p", v, wait=0)}
    ),
    "an id that none can have": Refusal(
        ["\udcff", "", "x" * 300, "é", "a\nb"],
        BadName,
        None,
        both("outcome", lambda one, v: one.outcome(v)),
    ),
    # A float that is equal to one would do until a list is asked for its element.
    "no int as a queue": Refusal(
        [0.0, 1.0, Decimal(1), "0", "", [], b"", (), {}, set()], TypeError, "queue", QUEUES
    ),
    # A mode in its place, "never" above all, would be taken for the opposite of what it says.
    "neither true nor false": Refusal(
        ["never", "always", "", 0, 1, ()], TypeError, r"sync=.*True, False or None", SYNCS
    ),
    # The text "no" counts as true, so that `all="no"` would have dropped everything.
    "no flag": Refusal(
        ["no", "", 0, 1, None, np.True_],
        TypeError,
        r"(ordered|strict|broadcast|all)=.*True or False",
        {
            "ordered": lambda p, v: p.engine.consumer("t", group="flags", ordered=v),
            "strict": lambda p, v: p.engine.consumer("t", group="flags", strict=v),
            "broadcast": lambda p, v: p.engine.consumer("t", group="flags", broadcast=v),
            "all": lambda p, v: p.engine.dead_letters("g").purge(all=v),
        },
    ),
    "no text as a key": Refusal([5, np.array([1, 2])], TypeError, None, all_ways("t", key=itself)),
    "no text as a tag": Refusal(
        [b"x", np.array([1, 2])], TypeError, None, all_ways("t", tag=itself)
    ),
    "no headers": Refusal(
        [
            *({"a": np.array([1, 2])}, {"a": 1}, {1: "a"}, [("a", "b")], "x", {"a": None}),
            *("", b"", 0, False, (), [], set()),
        ],
        TypeError,
        None,
        all_ways("t", headers=itself),
    ),
    "headers that change while they are copied": Refusal(
        [Growing(a="b"), Losing(c="d")],
        BadOption,
        "headers changed",
        all_ways("t", headers=itself),
    ),
    "text that UTF-8 cannot write": Refusal(
        ["\ud800"],
        BadName,
        None,
        {
            **{f"key of {k}": call for k, call in all_ways("t", key=itself).items()},
            **{f"tag of {k}": call for k, call in all_ways("t", tag=itself).items()},
            **{
                f"header of {k}": call
                for k, call in all_ways("t", headers=lambda v: {"a": v}).items()
            },
        },
    ),
    "no producer": Refusal(
        [0, False, b"", [], (), {}],
        TypeError,
        "producer is a str",
        {
            "send": lambda p, v: p.engine.send("t", b"x", producer=v),
            "send_many": lambda p, v: p.engine.send_many("t", [b"x"], producer=v),
            "send_many of a Message": lambda p, v: p.engine.send_many(
                "t", [fmq.Message(b"x")], producer=v
            ),
            "send_many of none": lambda p, v: p.engine.send_many("t", [], producer=v),
        },
    ),
    "a name that no topic has": Refusal(
        ["", "a\nb"], BadName, None, {k: c for k, c in NAMES.items() if k.startswith("send_many")}
    ),
    "no bodies": Refusal(
        [5, None, object()],
        TypeError,
        "bodies are several",
        {
            "send_many": lambda p, v: p.engine.send_many("t", v),
            "send_many in a transaction": lambda p, v: p.engine.transaction().send_many("t", v),
        },
    ),
    "a body that was let go": Refusal(
        [released()],
        TypeError,
        "gives no bytes",
        {k: call for k, call in body_calls().items() if "key" not in k},
    ),
    "a body of addresses": Refusal(POINTED, TypeError, "a body is bytes-like", body_calls()),
    # A negative number is no damage, and no way to count from the end.
    "a queue below all": Refusal(
        [-1],
        BadOption,
        "queue",
        {
            **both("read", lambda one, v: one.read("four", queue=v)),
            **both("read_batch", lambda one, v: one.read_batch("four", queue=v)),
        },
    ),
    "an offset below all": Refusal(
        [-1],
        BadOption,
        "offset",
        {
            **both("read", lambda one, v: one.read("four", offset=v)),
            **both("read_batch", lambda one, v: one.read_batch("four", offset=v)),
        },
    ),
    "a batch of nothing": Refusal(
        [0], BadOption, "limit", both("read_batch", lambda one, v: one.read_batch("t", limit=v))
    ),
    "no int as a place": Refusal(
        [1.5],
        TypeError,
        None,
        {
            **both("queue", lambda one, v: one.read_batch("four", queue=v)),
            **both("offset", lambda one, v: one.read_batch("four", offset=v)),
        },
    ),
    "a reason that UTF-8 cannot write": Refusal(["\udcff"], BadName, None, REASONS),
    "no str as a reason": Refusal([5], TypeError, None, REASONS),
    "a reason that no record can hold": Refusal(["r" * 1025], TooLarge, None, REASONS),
    "no question": Refusal([None, 5, "T", [], object()], TypeError, "takes a Question", ANSWERS),
    "no decision": Refusal(
        [None, 5, [], "yes", np.array(["commit", "rollback"])],
        BadOption,
        "must be",
        {
            "answer": lambda p, v: p.feedback.answer(p.question(), v),
            "decide": lambda p, v: p.engine.decide(p.question().tx_id, v),
        },
    ),
    "no pairs": Refusal(
        [None, 5, "ab", b"ab", ["ab"], [("t",)], [5], [b"ab"]],
        TypeError,
        r"pair.*send_in_transaction\(\[",
        {"messages": lambda p, v: p.engine.send_in_transaction(v, lambda tx: "commit", tx_id="T")},
    ),
    # It was found out after the prepare, and the transaction stayed undecided.
    "a part of the program that cannot be called": Refusal(
        [None, 5, "commit", []],
        TypeError,
        r"local=.*must be a function",
        {"local": lambda p, v: p.engine.send_in_transaction([("t", b"x")], v, tx_id="T")},
    ),
    "a part of the program that says something else": Refusal(
        [np.array(["commit", "rollback"])],
        BadOption,
        r"local\(\) returned",
        {"local": lambda p, v: p.engine.send_in_transaction([("t", b"x")], lambda _: v, tx_id="T")},
    ),
    # Without its parentheses the decorator took the function for the name, and said nothing.
    "a checker in the place of its name": Refusal(
        [check_nothing],
        TypeError,
        r"@engine\.checker\('name'\)",
        {"checker": lambda p, v: p.engine.checker(v)},
    ),
    "a name that no producer has": Refusal(
        ["a\nb"], BadName, None, {"checker": lambda p, v: p.engine.checker(v)}
    ),
    "a checker that cannot be called": Refusal(
        [None, 5, "commit", []],
        TypeError,
        r"checker=.*must be a function",
        {"checker": lambda p, v: p.engine.checker("p")(v)},
    ),
    "a path that no machine can have": Refusal(
        ["a\0b", "\ud800", "a/\0"], BadName, r"path .*Nothing was", PATHS
    ),
    # It was told that its parent directory does not exist.
    "an empty path": Refusal(
        [""],
        NotAStore,
        "empty path",
        {"open": lambda _, v: fmq.open(v), "check": lambda _, v: fmq.check(v)},
    ),
    "no disk": Refusal(
        NO_DOORS,
        TypeError,
        r"disk=.*Nothing was opened",
        {**doors("disk"), "disk of a check": lambda p, v: fmq.check(p.path, disk=v)},
    ),
    "no clock": Refusal(NO_DOORS, TypeError, r"clock=.*Nothing was opened", doors("clock")),
    # `read_only="no"` opened for reading, and `background="no"` with threads.
    "a flag that is merely true or false": Refusal(
        ["no", "", 0, 1, None, np.False_],
        TypeError,
        r"(read_only|background)=.*True or False.*Nothing was opened",
        {
            "read_only": lambda p, v: fmq.open(p.path, read_only=v),
            "background": lambda p, v: fmq.open(p.path, background=v),
            "read_only of what is there": lambda p, v: fmq.open(
                "data", disk=CrashDisk(), read_only=v
            ),
            "background of what is there": lambda p, v: fmq.open(
                "data", disk=CrashDisk(), background=v
            ),
        },
    ),
    "no mapping of databases": Refusal(
        [5, False, 0, "", "x", [], (), object()],
        TypeError,
        r"resolve=.*Nothing was opened",
        {"resolve": lambda p, v: fmq.open(p.path, resolve=v)},
    ),
    "databases of what is no name": Refusal(
        [{5: "sqlite:///x"}, {None: "sqlite:///x"}],
        TypeError,
        None,
        {"resolve": lambda p, v: fmq.open(p.path, resolve=v)},
    ),
    "databases of a name that no producer has": Refusal(
        [{"a\nb": "sqlite:///x"}],
        BadName,
        None,
        {"resolve": lambda p, v: fmq.open(p.path, resolve=v)},
    ),
    # It was not said, and nothing was asked.
    "databases for one who only looks": Refusal(
        [{"p": "sqlite:///x"}, {}, 5],
        TypeError,
        r"resolve=.*read_only=True",
        {"resolve": lambda p, v: fmq.open("data", disk=p.disk, read_only=True, resolve=v)},  # type: ignore[call-overload]
    ),
}


@pytest.mark.parametrize(
    ("kind", "call"), [(kind, call) for kind, row in REFUSALS.items() for call in row.calls]
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(place: Place, kind: str, call: str) -> None:
    """Pass each value to each call that takes it. `place` checks that nothing was changed."""
    values, error, words, calls = REFUSALS[kind]
    for value in values:
        with pytest.raises(error, match=words):
            raise AssertionError(f"{value!r} gave {calls[call](place, value)!r}")


def test_a_refused_send_in_transaction_leaves_its_id_free(engine: Engine) -> None:
    for messages, local in (("ab", lambda _: "commit"), ([("t", b"x")], None)):
        with pytest.raises(TypeError):
            engine.send_in_transaction(messages, local, tx_id="T")  # type: ignore[arg-type]
    engine.transaction(tx_id="T").rollback()


# --- what is accepted ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_WAITS)
def test_any_real_number_is_accepted_as_a_timeout(place: Place, name: str) -> None:
    numbers = 0, -1, 1, np.int8(0), np.uint8(200), np.float32(0.5), Fraction(1, 3), -math.inf
    for seconds in numbers:
        ALL_WAITS[name](place, seconds)


def test_a_timeout_beyond_all_floats_is_infinite(engine: Engine) -> None:
    for seconds in (10**400, math.inf):
        assert len(engine.read("t", timeout=seconds)) == 1
        assert len(engine.consumer("t", group="g").poll(timeout=seconds)) == 1
        assert engine.settle(timeout=seconds).committed == ()
        assert engine.read("empty", timeout=-seconds) == []


def test_numbers_of_numpy_are_accepted_as_seconds(engine: Engine) -> None:
    """An int8 has no room for the milliseconds."""
    one: Any = np.int8(1)
    assert engine.transaction(check_after=one)._buffer.check_after_ms == 1000
    engine.consumer("t", group="g", lease_seconds=one).poll()


def both_of(place: Place) -> tuple[Any, Any]:
    return place.engine, place.reader


@pytest.mark.parametrize(
    "kind", [np.uint8, np.int8, np.int64, bool], ids=lambda kind: kind.__name__
)
def test_ints_of_other_libraries_become_plain_ints(place: Place, kind: Any) -> None:
    """A numpy.uint8 would overflow at the first sum, and JSON takes no numpy.int64."""
    with opened(CrashDisk()) as many:
        many.send_many("u", [b"%d" % number for number in range(300)])
        last: Any = kind(200) if kind is np.uint8 else kind(1)
        found = many.read("u", offset=last, limit=150, queue=kind(0))
        assert [message.offset for message in found[:2]] == [int(last), int(last) + 1]
        assert type(found[0].offset) is int
        batch = many.read_batch("u", offset=last, limit=kind(1))
        assert batch is not None
        assert (type(batch.offset), type(batch.next), type(batch.queue)) == (int, int, int)
    for one in both_of(place):
        (message,) = one.read("four", queue=np.uint8(3))
        assert type(message.queue) is int
        assert len(one.read("t", limit=kind(1))) == 1


def test_ints_of_other_libraries_are_refused_as_options() -> None:
    """Options are stored, compared and shown, and must be plain ints there."""
    size: Any = np.int64(4096)
    for name in ("queues", "transactions_max", "segment_bytes"):
        with pytest.raises(BadOption, match="a whole number, an int"):
            fmq.Options(**{name: size})


def test_reading_a_queue_that_the_topic_does_not_have_is_refused(place: Place) -> None:
    """No message can ever come there. A topic that does not exist yet may get any queue."""
    for one in both_of(place):
        for call in (one.read, one.read_batch):
            with pytest.raises(BadName, match="has queues 0 to 0"):
                call("t", queue=1)
            with pytest.raises(BadName, match="has queues 0 to 3"):
                call("four", queue=4)
            assert not call("four", queue=2)
            assert not call("unknown", queue=99)
    with pytest.raises(BadName, match="has queues"):
        place.engine.read("t", queue=99, timeout=math.inf)


def test_an_unknown_name_gives_an_empty_result(engine: Engine) -> None:
    """The producer "" is one without a name, for questions as for sends."""
    assert engine.feedback.ask("", wait=0) == []
    assert engine.feedback.ask([], wait=0) == []
    engine.checker("")(lambda question: "unknown")
    assert engine.groups("nobody") == []
    assert engine.queues("nothing") == []


def test_an_answer_with_a_reason_that_is_not_text_does_not_count(engine: Engine) -> None:
    tx = engine.transaction(tx_id="T", check_after=0)
    tx.prepare()
    (question,) = engine.feedback.ask_about("T")
    wrong: Any = 5
    for answer in ("commit", "unknown"):
        with pytest.raises(TypeError, match="reason"):
            engine.feedback.answer(question, answer, reason=wrong)
    outcome = engine.feedback.answer(question, "rollback", reason="so be it")
    assert outcome is not None
    assert (outcome.asked, outcome.reason) == (1, "so be it")


def test_a_limit_of_zero_reads_nothing(place: Place) -> None:
    for one in both_of(place):
        assert one.read("t", limit=0) == []


def test_the_decorator_checker_returns_the_function(engine: Engine) -> None:
    assert engine.checker("p")(check_nothing) is check_nothing


def test_an_empty_mapping_is_accepted_for_resolve(tmp_path: Path) -> None:
    fmq.open(tmp_path / "other", resolve={}).close()

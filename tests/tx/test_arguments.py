"""What is no name, no queue, no text is refused before anything is changed, in all ways to send."""

from __future__ import annotations

import ctypes
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pickle import PickleBuffer
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import fmq
from fmq import Engine, Message
from fmq.errors import BadName, BadOption, TooLarge, WrongState
from tests.small import CrashDisk, bodies, check, opened

Send = Callable[..., Any]


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk, queues=2) as engine:
        engine.send("old", b"before", queue=0)
        yield engine
        engine.send("old", b"after", queue=0)
        assert bodies(engine, "old") == [b"before", b"after"]
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "old") == [b"before", b"after"]
        assert [info.topic for info in engine.queues()] == ["old", "old"]


def ways(engine: Engine) -> list[Send]:
    """Each takes what `send` takes."""

    def many(topic: str, body: Any, *, queue: Any = None, **carried: Any) -> None:
        engine.send_many(topic, [Message(body, **carried)], queue=queue)

    def in_transaction(topic: str, body: Any, **more: Any) -> None:
        with engine.transaction() as tx:
            tx.send(topic, body, **more)

    def many_in_transaction(topic: str, body: Any, *, queue: Any = None, **carried: Any) -> None:
        with engine.transaction() as tx:
            tx.send_many(topic, [Message(body, **carried)], queue=queue)

    return [engine.send, many, in_transaction, many_in_transaction]


@pytest.mark.parametrize("queue", [0.0, 1.0, Decimal(1), "0", "", [], b"", (), {}, set()], ids=repr)
@pytest.mark.parametrize("topic", ["old", "new"])
def test_a_queue_that_is_no_int(engine: Engine, topic: str, queue: object) -> None:
    """A float that is equal to one would do until a list is asked for its element."""
    for send in ways(engine):
        with pytest.raises(TypeError, match="queue"):
            send(topic, b"x", queue=queue)
    with pytest.raises(TypeError, match="queue"):
        engine.send_many(topic, [b"x"], queue=queue)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="queue"):
        engine.send_many(topic, [], queue=queue)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="queue"):
        engine.transaction().send_many(topic, [], queue=queue)  # type: ignore[arg-type]


def test_a_queue_that_is_falsy_in_a_topic_that_has_one() -> None:
    """There the number needs no choice, and anything falsy was taken for it."""
    with opened(CrashDisk()) as engine:
        engine.send("t", b"0", queue=0)
        queue: Any
        for queue in (0.0, "", [], b"", {}):
            for send in ways(engine):
                with pytest.raises(TypeError, match="queue"):
                    send("t", b"x", queue=queue)
                with pytest.raises(TypeError, match="queue"):
                    send("t", b"x", queue=queue, key="k")
        for send in ways(engine):
            send("t", b"1", queue=False)
            send("t", b"1", queue=0)
        assert bodies(engine, "t") == [b"0"] + [b"1"] * 8


def test_nothing_is_sent_to_where_nothing_can_be(engine: Engine) -> None:
    """A call without messages is checked as one with some, and takes no turn among the queues."""
    junk: Any
    tx = engine.transaction()
    for call in (engine.send_many, tx.send_many):
        for junk in (5, None, [], b"x"):
            with pytest.raises(TypeError, match="topic is a str"):
                call(junk, [])
        for junk in ("", "a\nb"):
            with pytest.raises(BadName):
                call(junk, [])
        with pytest.raises(BadName, match="has queues 0 to 1"):
            call("old", [], queue=2)
        assert not call("new", [], queue=1)
        assert not call("new", [])
    for junk in ("always", 5, ""):
        with pytest.raises(TypeError, match="sync"):
            engine.send_many("old", [], sync=junk)
    for junk in (5, None, object()):
        for call in (engine.send_many, engine.transaction().send_many):
            with pytest.raises(TypeError, match="bodies are several"):
                call("old", junk)
    tx.commit()
    with pytest.raises(WrongState):
        tx.send_many("old", [])
    with opened(CrashDisk(), queues=2) as other:
        turns = [other.send("t", b"").queue for _ in range(2)]
        assert other.send_many("t", []) == []
        assert other.send("t", b"").queue == turns[0] != turns[1]


@pytest.mark.parametrize("sync", ["never", "always", "", 0, 1, ()], ids=repr)
def test_a_sync_that_is_neither_true_nor_false(engine: Engine, sync: Any) -> None:
    """A mode in its place, "never" above all, would be taken for the opposite of what it says."""
    open_one, prepared = engine.transaction(), engine.transaction()
    prepared.send("old", b"y")
    prepared.prepare()
    with engine.consumer("old", group="g") as consumer:
        (delivery,) = consumer.poll()
        for call in (
            lambda: engine.send("old", b"x", sync=sync),
            lambda: engine.send_many("new", [b"x"], sync=sync),
            lambda: delivery.ack(sync=sync),
            lambda: open_one.rollback(sync=sync),
            lambda: prepared.rollback(sync=sync),
            lambda: prepared.commit(sync=sync),
            lambda: engine.decide(prepared.tx_id, "commit", sync=sync),
        ):
            with pytest.raises(TypeError, match=r"sync=.*True, False or None"):
                call()
        delivery.ack()
    assert [each.tx_id for each in engine.undecided()] == [prepared.tx_id]
    prepared.commit()
    open_one.commit()
    for again in (prepared.commit, open_one.commit):
        with pytest.raises(TypeError, match=r"sync=.*True, False or None"):
            again(sync=sync)


FALSY: list[Any] = ["", b"", 0, False, (), [], set()]


@pytest.mark.parametrize(
    "carried",
    [
        {"key": 5},
        {"tag": b"x"},
        {"key": np.array([1, 2])},
        {"tag": np.array([1, 2])},
        {"headers": {"a": np.array([1, 2])}},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
        {"headers": [("a", "b")]},
        {"headers": "x"},
        {"headers": {"a": None}},
        *({"headers": falsy} for falsy in FALSY),
    ],
    ids=str,
)
def test_names_that_are_no_text_are_refused(engine: Engine, carried: dict[str, Any]) -> None:
    for send in ways(engine):
        with pytest.raises(TypeError):
            send("old", b"x", **carried)


@pytest.mark.parametrize(
    "carried", [{"key": "\ud800"}, {"tag": "\ud800"}, {"headers": {"a": "\ud800"}}], ids=repr
)
def test_text_that_utf8_cannot_write(engine: Engine, carried: dict[str, Any]) -> None:
    for send in ways(engine):
        with pytest.raises(BadName):
            send("old", b"x", **carried)


def test_a_transaction_sends_what_was_there_when_it_was_told_to() -> None:
    with opened(CrashDisk()) as engine:
        headers, body = {"n": ""}, bytearray(1)
        with engine.transaction() as tx:
            for number in range(3):
                headers["n"], body[:] = str(number), b"%d" % number
                tx.send("t", body, headers=headers)
                tx.send_many("t", [Message(body, headers=headers), body])
        found = engine.read("t")
        assert [message.body for message in found] == [b"%d" % (i // 3) for i in range(9)]
        assert [message.headers for message in found] == [
            None if i % 3 == 2 else {"n": str(i // 3)} for i in range(9)
        ]


def test_views_of_wide_items_are_as_large_as_their_bytes() -> None:
    with opened(CrashDisk(), message_bytes_max=100) as engine:
        wide = memoryview(array("Q", [0] * 13))
        for send in (engine.send, lambda topic, body: engine.send_many(topic, [b"", body])):
            with pytest.raises(TooLarge, match="104"):
                send("t", wide)
        engine.send_many("t", [bytes(60), bytes(60)])
        assert [len(body) for body in bodies(engine, "t")] == [60, 60]


@pytest.mark.parametrize("place", [{"queue": -1}, {"offset": -1}, {"limit": 0}], ids=str)
def test_a_place_where_nothing_can_be(place: dict[str, int]) -> None:
    """A negative number is no damage, and no way to count from the end."""
    disk = CrashDisk()
    with opened(disk, queues=4) as engine:
        engine.send("t", b"x", queue=3)
        engine.checkpoint()
        with fmq.open("data", read_only=True, disk=disk) as reader:
            for one in (engine, reader):
                with pytest.raises(BadOption, match=next(iter(place))):
                    one.read_batch("t", **place)
                if place != {"limit": 0}:
                    with pytest.raises(BadOption, match=next(iter(place))):
                        one.read("t", **place)
                with pytest.raises(TypeError):
                    one.read_batch("t", **dict.fromkeys(place, 1.5))  # type: ignore[arg-type]
                assert one.read("t", limit=0) == []


@pytest.mark.parametrize(
    ("reason", "error"), [("\udcff", BadName), (5, TypeError), ("r" * 1025, TooLarge)]
)
def test_a_reason_that_no_record_can_hold(reason: Any, error: type[Exception]) -> None:
    with opened(CrashDisk()) as engine:
        engine.transaction(tx_id="T").prepare()
        with pytest.raises(error):
            engine.decide("T", "commit", reason=reason)
        engine.decide("T", "commit", reason="käse")


@pytest.mark.parametrize("producer", [0, False, b"", [], (), {}], ids=repr)
def test_falsy_values_are_refused_as_a_producer(engine: Engine, producer: Any) -> None:
    for batch in ([b"x"], [Message(b"x")], []):
        with pytest.raises(TypeError, match="producer is a str"):
            engine.send_many("old", batch, producer=producer)
    with pytest.raises(TypeError, match="producer is a str"):
        engine.send("old", b"x", producer=producer)


def test_no_headers_and_no_producer_have_two_names_each() -> None:
    with opened(CrashDisk()) as engine:
        for send in ways(engine):
            for key in (None, "k"):
                send("t", b"x", headers={}, key=key)
                send("t", b"x", headers=MappingProxyType({}), key=key)
        assert engine.send("t", b"x", producer="").offset == 16
        engine.send_many("t", [b"x"], producer="")
        found = engine.read("t")
        assert {(message.headers, message.producer) for message in found} == {(None, None)}


class Lying(Mapping[str, str]):
    """Counts otherwise than it iterates, and changes from one look to the next."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._looks = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        self._looks += 1
        return iter([f"{self._looks}", "b"])

    def __getitem__(self, name: str) -> str:
        return name * 2


class Growing(dict[str, str]):
    """As a dict that another thread fills while it is iterated."""

    def keys(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    __iter__ = keys


class Losing(Lying):
    def __getitem__(self, name: str) -> str:
        raise KeyError(name)


def test_headers_are_looked_at_once() -> None:
    """A mapping that changed meanwhile would become a record that cannot be read."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for send in ways(engine):
            for count in (1, 2, 3):
                send("t", b"x", headers=Lying(count))
        engine.send_many("t", [Message(b"x", headers=Lying(1)), Message(b"x", headers={"z": "1"})])
        found = [message.headers for message in engine.read("t")]
        assert found == [{"1": "11", "b": "bb"}] * 13 + [{"z": "1"}]
    check(disk)


@pytest.mark.parametrize("headers", [Growing(a="b"), Losing(2)], ids=["growing", "losing"])
def test_headers_that_change_while_they_are_copied(engine: Engine, headers: Any) -> None:
    for send in ways(engine):
        with pytest.raises(BadOption, match="headers changed"):
            send("old", b"x", headers=headers)


def test_dicts_that_other_threads_fill_are_sent_as_they_are_at_one_instant() -> None:
    """The messages of one call share a dict, and each may find it otherwise; all can be read."""
    disk, shared, ended = CrashDisk(), {"k": "v"}, threading.Event()

    def fill() -> None:
        while not ended.is_set():
            shared["x"] = "y"
            shared.pop("x", None)

    thread = threading.Thread(target=fill)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        with opened(disk, segment_bytes=1 << 20) as engine:
            for _ in range(30):
                engine.send_many("t", [Message(b"1", headers=shared)] * 300)
            found = engine.read("t", limit=9999)
            assert len(found) == 9000
            assert all(message.headers in ({"k": "v"}, {"k": "v", "x": "y"}) for message in found)
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
    check(disk)


LIARS: list[Any] = [
    np.empty((3, 0), np.uint8),
    np.frombuffer(b"abcd", np.uint8).reshape(1, 4),
    PickleBuffer(b"pickled"),
    np.int32(7),
    memoryview(array("H", [1, 2])),
    type("Short", (bytes,), {"__len__": lambda self: 1})(b"xyz"),
    type("Itself", (bytes,), {"__len__": lambda self: 1, "__bytes__": lambda self: self})(b"xyz"),
]


def test_a_body_is_as_long_as_its_bytes_whatever_its_len_is() -> None:
    """The first two have four bytes between them, and so had their len()."""
    disk = CrashDisk()
    with opened(disk) as engine:
        expected = [bytes(memoryview(each)) for each in LIARS]
        for batch in (LIARS, LIARS[:2], *([each] for each in LIARS)):
            wanted = [bytes(memoryview(each)) for each in batch]
            before = len(bodies(engine, "t"))
            engine.send_many("t", batch)
            engine.send_many("t", [*batch, Message(b"m")])
            with engine.transaction() as tx:
                tx.send_many("t", batch)
            assert bodies(engine, "t", offset=before) == [*wanted, *wanted, b"m", *wanted]
        for each in LIARS:
            engine.send("u", each)
        assert bodies(engine, "u") == expected
    check(disk)


def test_a_body_that_was_let_go(engine: Engine) -> None:
    released = memoryview(b"x")
    released.release()
    for send in (*ways(engine), lambda topic, body: engine.send_many(topic, [b"a", body])):
        with pytest.raises(TypeError, match="gives no bytes"):
            send("old", released)


POINTED = [
    np.array([object()], dtype=object),
    np.array([(1, "text")], dtype=[("number", "i4"), ("text", "O")]),
    (ctypes.c_char_p * 1)(b"text"),
    np.str_("text"),
]


@pytest.mark.parametrize("body", POINTED, ids=lambda body: type(body).__name__)
def test_a_body_of_addresses_is_no_bytes(engine: Engine, body: Any) -> None:
    """What they point to is not in it; and text is to be encoded, also that of numpy."""
    with engine.transaction() as tx:
        for call in (
            lambda: engine.send("old", body),
            lambda: engine.send("old", body, key="k"),
            lambda: engine.send_many("old", [b"before", body]),
            lambda: engine.send_many("old", [Message(body)]),
            lambda: tx.send("old", body),
            lambda: tx.send_many("old", [body]),
        ):
            with pytest.raises(TypeError, match="a body is bytes-like"):
                call()


def test_an_array_of_numbers_whose_field_has_a_pointers_letter_is_a_body() -> None:
    numbers: Any = np.array([(1, 2.0)], dtype=[("O", "i4"), ("P", "f4")])
    with opened(CrashDisk()) as engine:
        engine.send("t", numbers)
        assert bodies(engine, "t") == [numbers.tobytes()]

"""What a call to send is given is what is read: as it was at one instant, in all ways to send."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Iterator, Mapping
from pickle import PickleBuffer
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from fmq import Engine, Message
from fmq.errors import BadName, TooLarge, WrongState
from tests.small import CrashDisk, bodies, check, opened, ways_to_send


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


def test_queue_false_means_the_first_queue() -> None:
    """False is an int. Other falsy values are refused, see tests/test_wrong_kinds.py."""
    with opened(CrashDisk()) as engine:
        engine.send("t", b"0", queue=0)
        for send in ways_to_send(engine):
            send("t", b"1", queue=False)
            send("t", b"1", queue=0)
        assert bodies(engine, "t") == [b"0"] + [b"1"] * 8


def test_an_empty_send_many_checks_its_arguments(engine: Engine) -> None:
    """It is checked like one with messages, and takes no turn among the queues."""
    tx = engine.transaction()
    for call in (engine.send_many, tx.send_many):
        with pytest.raises(BadName, match="has queues 0 to 1"):
            call("old", [], queue=2)
        assert not call("new", [], queue=1)
        assert not call("new", [])
    tx.commit()
    with pytest.raises(WrongState):
        tx.send_many("old", [])
    with opened(CrashDisk(), queues=2) as other:
        turns = [other.send("t", b"").queue for _ in range(2)]
        assert other.send_many("t", []) == []
        assert other.send("t", b"").queue == turns[0] != turns[1]


def test_a_transaction_sends_arguments_as_they_were_at_the_call() -> None:
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


def test_the_size_of_a_view_is_counted_in_bytes_and_not_in_items() -> None:
    with opened(CrashDisk(), message_bytes_max=100) as engine:
        wide = memoryview(array("Q", [0] * 13))
        for send in (engine.send, lambda topic, body: engine.send_many(topic, [b"", body])):
            with pytest.raises(TooLarge, match="104"):
                send("t", wide)
        engine.send_many("t", [bytes(60), bytes(60)])
        assert [len(body) for body in bodies(engine, "t")] == [60, 60]


def test_empty_headers_and_an_empty_producer_are_read_as_none() -> None:
    with opened(CrashDisk()) as engine:
        for send in ways_to_send(engine):
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


def test_headers_are_read_only_once() -> None:
    """A mapping that changes meanwhile would make a record that cannot be read."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for send in ways_to_send(engine):
            for count in (1, 2, 3):
                send("t", b"x", headers=Lying(count))
        engine.send_many("t", [Message(b"x", headers=Lying(1)), Message(b"x", headers={"z": "1"})])
        found = [message.headers for message in engine.read("t")]
        assert found == [{"1": "11", "b": "bb"}] * 13 + [{"z": "1"}]
    check(disk)


def test_headers_changed_by_another_thread_are_sent_consistently() -> None:
    """Messages of one call share a dict, and each may find it different. All can be read."""
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


def test_a_body_is_as_long_as_its_bytes_even_if_its_len_differs() -> None:
    """The first two bodies have four bytes together, and their len() adds up to four too."""
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


def test_an_array_with_fields_named_like_pointer_types_is_a_body() -> None:
    numbers: Any = np.array([(1, 2.0)], dtype=[("O", "i4"), ("P", "f4")])
    with opened(CrashDisk()) as engine:
        engine.send("t", numbers)
        assert bodies(engine, "t") == [numbers.tobytes()]

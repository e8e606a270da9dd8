"""Whatever bytes a client sends, it gets an error or is closed, and no other client notices."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Iterator
from struct import Struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fmq.errors import FmqError, ProtocolError, TooMany
from fmq.server.load import HELD_MAX
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.frames import HEAD, VALUES_BYTES_MAX, VERSION, Frame, Op, Splitter, frame
from fmq.wire.values import encode_front, encode_values
from tests.budget import draw, within_budget
from tests.remote.hostile import Hostile, served, work
from tests.test_hostile import DEEP, variants

FRONT = Struct("<I")
OPS = st.integers(0, max(Op) + 2)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from("tTUpgm"),
    lambda each: st.lists(each, max_size=5) | st.dictionaries(st.text(), each, max_size=2),
    max_leaves=12,
)
PAYLOADS = st.binary(max_size=200) | JSONS.map(lambda value: json.dumps(value).encode())


def many(examples: int) -> settings:
    return settings(
        max_examples=within_budget(examples),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def frames_of_a_client() -> list[Frame]:
    with served() as server:
        return Splitter(1 << 30).feed(work(server))


def variants_of(asked: Frame) -> Iterator[bytes]:
    """The frame with other values, if it has values."""
    front = asked.op in (Op.COMMIT, Op.PREPARE)
    start = FRONT.size if front else 0
    end = start + FRONT.unpack_from(asked.payload)[0] if front else len(asked.payload)
    try:
        said = json.loads(asked.payload[start:end])
    except ValueError:
        return
    said_otherwise = [json.dumps(each).encode() for each in variants(said)]
    for values in [*said_otherwise, *DEEP]:
        payload = FRONT.pack(len(values)) + values + asked.payload[end:] if front else values
        yield frame(asked.op, 7, payload, handle=asked.handle)


def replay(frames: list[Frame], number: int, data: bytes) -> None:
    """Send the frames of a client, and `data` in the place of one."""
    with served() as server:
        bad = Hostile(server)
        for each in frames[:number]:
            bad.send(frame(each.op, each.request, each.payload, handle=each.handle))
        assert not bad.has_closed()
        before = len(bad.answers)
        bad.send(data)
        closed = bad.has_closed()
        while server.loop.step():  # a poll may wait
            pass
        assert closed or len(bad.answers) > before


@pytest.mark.parametrize("op", Op, ids=lambda op: str(op.name))
def test_a_request_with_any_other_values_is_answered_or_its_connection_closed(op: Op) -> None:
    frames = frames_of_a_client()
    cases = [
        (number, data)
        for number, asked in enumerate(frames)
        if asked.op == op
        for data in dict.fromkeys(variants_of(asked))
    ]
    for number, data in draw(cases, 15, str(op)):
        try:
            replay(frames, number, data)
        except BaseException as error:
            error.add_note(f"{frames[number]} became {data!r}")
            raise


def said_of(claims: list[list[object]], member: str = "m") -> list[object]:
    """Return the values of a JOIN of a member that has these claims."""
    return [["t"], "g", 30.0, claims, member, None, None, None, *[False] * 4, "count"]


JOINING = encode_values(said_of([]))


@many(20)
@given(st.data())
def test_a_frame_with_other_bytes_is_answered_or_its_connection_closed(data: st.DataObject) -> None:
    frames = frames_of_a_client()
    number = data.draw(st.integers(0, len(frames) - 1))
    asked = frames[number]
    changed = bytearray(frame(asked.op, asked.request, asked.payload, handle=asked.handle))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    HEAD.pack_into(changed, 0, len(changed) - HEAD.size, *HEAD.unpack_from(changed)[1:])
    replay(frames, number, bytes(changed))


@many(25)
@given(st.booleans(), st.lists(st.tuples(OPS, st.integers(0, 3), PAYLOADS), max_size=12))
def test_random_message_bodies_end_no_engine(
    known: bool, asked: list[tuple[int, int, bytes]]
) -> None:
    with served() as server:
        bad = Hostile(server)
        if known:
            bad.hello()
            bad.send(frame(Op.JOIN, 2, JOINING, handle=1))
            bad.send(frame(Op.POLL, 3, encode_values([2, 0.0, True]), handle=1))
            assert len(bad.answers) == 3
        bad.send(b"".join(frame(op, 9, body, handle=handle) for op, handle, body in asked))


@many(25)
@given(st.booleans(), st.lists(st.binary(max_size=100), max_size=8))
def test_random_bytes_on_a_connection_end_no_engine(known: bool, pieces: list[bytes]) -> None:
    with served() as server:
        bad = Hostile(server)
        if known:
            bad.hello()
        for each in pieces:
            bad.send(each)


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        [],
        [VERSION],
        [VERSION, b"short", None, "host", 1],
        {"a": 1},
        [VERSION, 7, None, 8],
        [[]],
        [VERSION, b"h" * 16, None, 7, 1],
        [VERSION, b"h" * 16, None, "host", "1"],
    ],
)
def test_a_malformed_hello_ends_by_a_typed_error(said: object) -> None:
    with served() as server:
        bad = Hostile(server)
        bad.send(frame(Op.HELLO, 5, encode_values(said)))
        assert bad.has_closed()
        assert isinstance(bad.error(), ProtocolError)
        assert bad.answers[-1].request == 5


def test_another_version_is_refused_with_both_versions() -> None:
    with served() as server:
        bad = Hostile(server)
        bad.hello(77, b"h" * CLIENT_BYTES, "what later versions say")
        assert bad.has_closed()
        assert f"version 77 of the protocol, and this process {VERSION}:" in str(bad.error())


@pytest.mark.parametrize(
    ("known", "op", "size"),
    [
        (False, Op.HELLO, 1 << 12),
        (True, Op.CALL, VALUES_BYTES_MAX),
        (True, Op.ASK, VALUES_BYTES_MAX),
        (True, Op.SEND, (1 << 20) + (1 << 16)),
        (True, Op.COMMIT, (1 << 32) - 2),
    ],
)
def test_a_large_frame_is_refused_by_its_head(known: bool, op: Op, size: int) -> None:
    """None of its bytes has come, so none was kept."""
    with served() as server:
        bad = Hostile(server)
        if known:
            bad.hello()
        head = HEAD.pack(size + 1, op, 0, 0, 7)
        bad.send(head[:5])
        assert not bad.has_closed()
        bad.send(head[5:])
        assert bad.has_closed()
        assert (bad.answers[-1].op, bad.answers[-1].request) == (op, 7)
        assert isinstance(bad.error(), ProtocolError)


def test_the_values_before_messages_have_their_own_limit() -> None:
    with served() as server:
        bad = Hostile(server)
        bad.hello()
        bad.send(frame(Op.COMMIT, 7, FRONT.pack(VALUES_BYTES_MAX + 1)))
        assert "are the limit" in str(bad.error())


def test_a_client_has_a_bounded_number_of_consumers_ids_and_waiting_requests() -> None:
    """The one above the limit is refused, and the client goes on."""
    with served() as server:
        bad = Hostile(server)
        bad.hello()
        for n in range(HELD_MAX):
            bad.send(frame(Op.JOIN, n, encode_values(said_of([], f"m{n}")), handle=n))
            bad.send(frame(Op.TAKE_ID, n, encode_values([f"id-{n}"])))
            bad.send(frame(Op.READ, n, encode_values(["none", 0, 0, 1, 60.0])))
        assert len(bad.answers) == 1 + 2 * HELD_MAX
        for op, said in (
            (Op.JOIN, said_of([])),
            (Op.TAKE_ID, ["another"]),
            (Op.READ, ["none", 0, 0, 1, 60.0]),
        ):
            bad.send(frame(op, HELD_MAX, encode_values(said), handle=HELD_MAX))
            error = bad.error()
            assert isinstance(error, TooMany)
            assert (error.count, error.limit) == (HELD_MAX + 1, HELD_MAX)
        bad.send(frame(Op.CALL, 9, encode_values(["sync", [], {}])))
        assert not bad.has_closed()
        assert bad.answers[-1].flags == 0


NUMBERS: tuple[Any, ...] = (0.5, -1, 1 << 64, "0", None, [], True)


def collected(place: int, value: object) -> bytes:
    """The payload of a COMMIT of nothing, with `value` in one of its places."""
    said: list[object] = [0, 0, None, "T", True, None, None, False, [], []]
    said[place] = value
    return encode_front(said, b"")


def joining(claim: object, topic: object, first: object, end: object) -> bytes:
    """The payload of a JOIN that says what it has claimed before."""
    return encode_values(said_of([[claim, topic, 0, first, end]]))


WRONG = [
    *((Op.COMMIT, collected(place, value)) for place in (0, 1) for value in [*NUMBERS[:-1]]),
    *((Op.PREPARE, collected(2, value)) for value in ([1], "", 7)),
    *((Op.COMMIT, collected(8, [[1, 0, value, 1.5]])) for value in NUMBERS),
    *((Op.COMMIT, collected(8, [[1, 0, 0, value]])) for value in NUMBERS),
    *((Op.HOLD, encode_values([0, value, 1.5])) for value in NUMBERS),
    *((Op.HOLD, encode_values([0, 0, value])) for value in NUMBERS),
    *((Op.RELEASE, encode_values([0, 0.0, value])) for value in NUMBERS),
    *((Op.RELEASE, encode_values([value, 0, 1])) for value in (*NUMBERS[:1], [], "0")),
    *((Op.JOIN, encode_values(said_of([[value, "t", 0, 0, 1]]))) for value in (*NUMBERS[:1], [])),
    *((Op.JOIN, joining(0, "t", value, 2)) for value in NUMBERS),
    *((Op.JOIN, joining(0, value, 0, 2)) for value in (*NUMBERS[:1], [])),
]


@pytest.mark.parametrize(("op", "payload"), WRONG)
def test_values_that_are_not_numbers_are_refused(op: Op, payload: bytes) -> None:
    """Each would be a defect in the middle of a change, which ends the engine."""
    with served() as server:
        bad = Hostile(server)
        bad.hello()
        bad.send(frame(Op.JOIN, 2, JOINING, handle=1))
        bad.send(frame(Op.POLL, 3, encode_values([2, 0.0, True]), handle=1))
        bad.send(frame(op, 4, payload, handle=1))
        assert bad.answers[-1].request == 4
        assert isinstance(bad.error(), (TypeError, FmqError))


def collected_of(values: bytes) -> bytes:
    """The payload of a COMMIT with these values, and no messages."""
    return FRONT.pack(len(values)) + values


@pytest.mark.parametrize("op", [Op.HELLO, Op.CALL, Op.CHANGE, Op.COMMIT, Op.PREPARE])
def test_a_request_of_very_many_lists_is_refused_before_they_are_made(op: Op) -> None:
    """They would hold the loop of all clients for seconds. Counts the calls that were made."""
    values = b"[" + b"[]," * 320_000 + b"[]]"
    with served() as server:
        bad = Hostile(server)
        bad.hello()
        payload = collected_of(values) if op in (Op.COMMIT, Op.PREPARE) else values
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            bad.send(frame(op, 7, payload))
        finally:
            sys.setprofile(None)
        assert bad.has_closed()
        assert isinstance(bad.error(), ProtocolError)
        assert calls < 2_000


@pytest.mark.parametrize("size", [(1 << 16) - 1, (1 << 12) - 1, 200])
def test_a_connection_that_has_not_said_hello_takes_little_memory(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Any program that can connect may open thousands, and send all but the last byte of a first
    frame.
    """
    caplog.set_level("ERROR", "fmq.server")  # or the warnings are kept, too
    begun = HEAD.pack(size + 1, Op.HELLO, 0, 0, 1) + b"[" * size
    connections = 200
    with served() as server:
        Hostile(server).send(begun)
        tracemalloc.start()
        try:
            made = [Hostile(server) for _ in range(connections)]
            for each in made:
                each.session.received(bytes(bytearray(begun)))
            gc.collect()
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert used / connections < 8 << 10

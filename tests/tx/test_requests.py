"""What was carried out for a client is known after a restart, so that it is not done twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.engines.engine import Engine
from fmq.store.bytes.content import encode_bodies
from fmq.store.bytes.extension import WAITING_MAX, Request, extension_of, request_in
from fmq.store.bytes.kinds import MESSAGE, Run
from fmq.store.bytes.record import BadRecord
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.tx.commands.transaction import Transaction
from fmq.tx.ledger.carryover import check_carried
from fmq.tx.ledger.done_requests import (
    FORGOTTEN_AFTER_US,
    STEP_US_MAX,
    Done,
    Requests,
    check_request,
)
from tests.small import opened
from tests.store.samples import run_of

A, B = b"a" * 16, b"b" * 16


def send(engine: Engine, request: Request, count: int = 1) -> Run:
    """Write a record as the server does for a frame that has `count` bodies."""
    run = encode_bodies([b"x"] * count, None)
    run.topic = "t"
    run.extension = extension_of(request)
    parts = inside(engine)
    parts.commit_queue.run(parts.writer.send, [run])
    return run


def found(engine: Engine, client: bytes, sequence: int) -> list[Done]:
    return inside(engine).ledger.requests.find(client, sequence)


@given(st.binary(min_size=16, max_size=16), st.integers(0, (1 << 64) - 1), st.integers(0, 1023))
def test_a_request_decodes_to_what_was_encoded(client: bytes, sequence: int, waiting: int) -> None:
    request = Request(client, sequence, waiting, 1 + waiting)
    assert request_in(extension_of(request)) == request


def test_a_request_is_found_after_a_crash() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        joined = send(engine, Request(A, 5, 0, 3), 3)
        alone = send(engine, Request(A, 8, 1), 3)
        killed = disk.after_kill()
    with opened(killed) as engine:
        for sequence in (5, 6, 7):
            assert found(engine, A, sequence) == [Done(5, 3, joined.position, "t", 0, 0, 3)]
        assert found(engine, A, 8) == [Done(8, 1, alone.position, "t", 0, 3, 3)]
        for client, sequence in ((A, 4), (A, 9), (B, 5)):
            assert found(engine, client, sequence) == []


def test_a_record_carries_out_one_request_or_one_for_each_message() -> None:
    run = run_of(MESSAGE, "t", 0, 0, 3, 0)
    with pytest.raises(BadRecord, match="2 requests in a record of 3 messages"):
        check_request(Request(A, 0, 0, 2), run)


def test_the_records_of_one_request_are_found_together() -> None:
    requests = Requests()
    for queue in range(3):
        requests.note(Request(A, 7, 0), run_of(MESSAGE, "t", queue, 0, 2, 0))
    assert [done.queue for done in requests.find(A, 7)] == [0, 1, 2]


def test_answered_requests_are_forgotten() -> None:
    with opened(CrashDisk()) as engine:
        for sequence in range(10):
            send(engine, Request(A, sequence, min(sequence, 3)))
        assert [bool(found(engine, A, n)) for n in range(10)] == [False] * 6 + [True] * 4


def test_requests_outlive_a_checkpoint_and_their_segments() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        run = send(engine, Request(A, 0, 0))
        for _ in range(40):
            engine.send("t", bytes(1000))
        assert engine.stats().first_position > run.position
        killed = disk.after_kill()
    for state in (killed, disk):
        with opened(state) as engine:
            assert found(engine, A, 0) == [Done(0, 1, run.position, "t", 0, 0, 1)]


@pytest.mark.parametrize("two_phases", [False, True])
def test_a_transaction_carries_out_one_request(two_phases: bool) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        manager = inside(engine).manager
        tx = Transaction(manager, manager.buffer_for("T", None, None))
        buffer = tx._buffer
        buffer.send("t", b"x", None, None, None, None)
        buffer.request = Request(A, 7, 0)
        (manager.prepare if two_phases else manager.commit_at_once)(buffer)
        killed = disk.after_kill()
        if two_phases:
            engine.decide("T", "rollback")
    with opened(killed) as engine:
        (done,) = found(engine, A, 7)
        assert (done.first, done.requests, done.topic) == (7, 1, "")


def test_a_client_that_is_silent_for_an_hour_is_forgotten() -> None:
    clock, minutes = FakeClock(), FORGOTTEN_AFTER_US // STEP_US_MAX
    with opened(CrashDisk(), clock) as engine:
        send(engine, Request(A, 0, 0))
        for number in range(minutes):
            assert found(engine, A, 0)
            clock.advance(STEP_US_MAX / 1e6)
            send(engine, Request(B, number, 0))
        assert found(engine, A, 0)
        clock.advance(1)
        send(engine, Request(B, minutes, 0))
        assert not found(engine, A, 0)
        assert found(engine, B, minutes)


def test_all_requests_that_a_client_may_wait_for_are_remembered() -> None:
    requests = Requests()
    run = run_of(MESSAGE, "t", 0, 0, 1, 0)
    for sequence in range(5000):
        requests.note(Request(A, sequence, min(sequence, WAITING_MAX)), run)
    assert sum(bool(requests.find(A, n)) for n in range(5000)) == WAITING_MAX + 1


@pytest.mark.parametrize(
    "client",
    [
        ["00", 0, 0, []],
        ["zz" * 16, 0, 0, []],
        ["00" * 16, -1, 0, []],
        ["00" * 16, 0, 0, [[0, 1, 2, "t", 0, 0]]],
        ["00" * 16, 0, 0, [[0, 0, 2, "t", 0, 0, 1]]],
        ["00" * 16, 0, 0, [[0, 1, 2, None, 0, 0, 1]]],
        None,
    ],
)
def test_carried_requests_of_another_shape_are_refused(client: Any) -> None:
    state = {"floor": 0, "last_us": 0, "topics": {}, "acks": [], "requests": [client]}
    with pytest.raises(ValueError):  # noqa: PT011
        check_carried(state)


def test_a_request_of_another_size_is_refused() -> None:
    from fmq.store.bytes.extension import REQUEST, encode_extension

    with pytest.raises(BadRecord, match="a request of 3 bytes"):
        request_in(encode_extension({REQUEST: b"abc"}))

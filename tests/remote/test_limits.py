"""What one client may ask for at once, and how long it may take: by a clock that a test moves."""

from __future__ import annotations

import pytest

from fmq.errors import NotAllowed, NotServed
from fmq.server.frame_timer import FRAME_SECONDS, HELLO_SECONDS
from fmq.server.load import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, REQUESTS_MAX, Load
from fmq.store.bytes.content import encode_bodies
from fmq.testing.transport import MemoryServer
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.frames import FAILED, VERSION, Op, frame
from fmq.wire.sends import encode_send
from fmq.wire.values import encode_values
from tests.remote.hostile import Hostile, served

SYNC = encode_values(["sync", [], {}])


def read(topic: str = "t", timeout: float = 0.0, offset: int = 0) -> bytes:
    return encode_values([topic, 0, offset, 1, timeout])


def pass_time(server: MemoryServer, seconds: float) -> None:
    """Let the clock move on, and the loop do what is due then."""
    is_over: list[bool] = []
    server.loop.call_later(seconds, is_over.append, True)
    while not is_over:
        assert server.loop.step()
    server.loop.run()


def test_a_connection_without_a_hello_is_closed_after_five_seconds() -> None:
    with served() as server:
        silent = Hostile(server)
        silent.send(frame(Op.HELLO, 1, b"said slowly")[:-1])
        pass_time(server, HELLO_SECONDS - 0.1)
        assert not silent.has_closed()
        pass_time(server, 0.2)
        assert silent.has_closed()
        assert isinstance(silent.error(), NotServed)


def test_a_frame_must_be_complete_within_thirty_seconds() -> None:
    """A client that drips one byte after the other does not put it off."""
    with served() as server:
        dripping = Hostile(server)
        dripping.hello()
        pass_time(server, 10 * FRAME_SECONDS)  # between frames it may be silent
        asked = frame(Op.CALL, 2, SYNC)
        for at in range(3):
            dripping.send(asked[at : at + 1])
            pass_time(server, FRAME_SECONDS / 3 - 0.1)
        assert not dripping.has_closed()
        pass_time(server, 1.0)
        assert dripping.has_closed()


def test_each_frame_has_its_own_thirty_seconds() -> None:
    """A busy client whose bytes always end within a frame is not late."""
    with served() as server:
        busy = Hostile(server)
        busy.hello()
        asked = frame(Op.CALL, 2, SYNC)
        busy.send(asked[:5])
        for _ in range(6):
            pass_time(server, FRAME_SECONDS / 2)
            busy.send(asked[5:] + asked[:5])
        assert not busy.has_closed()
        assert len(busy.answers) == 1 + 6


def test_the_time_limit_of_a_frame_stops_while_the_server_does_not_read() -> None:
    with served() as server:
        slow = Hostile(server)
        slow.hello()
        asked = frame(Op.CALL, 2, SYNC)
        slow.send(asked[:5])
        slow.session.choke()
        slow.send(asked[5:8])  # it was on its way
        pass_time(server, 2 * FRAME_SECONDS)
        assert not slow.has_closed()
        slow.session.unchoke()
        pass_time(server, FRAME_SECONDS + 0.1)
        assert slow.has_closed()


def send_frame(number: int, size: int = 1) -> bytes:
    run = encode_bodies([bytes(size)], None)
    run.topic = "t"
    return frame(Op.SEND, number, *encode_send(number, 0, None, [run]))


@pytest.mark.parametrize(
    ("count", "size", "at_once"),
    [
        (REQUESTS_MAX + 10, 1, REQUESTS_MAX),
        (40, 512 << 10, REQUEST_BYTES_MAX // (512 << 10)),
    ],
)
def test_a_client_with_too_many_unanswered_bytes_is_not_read(
    count: int, size: int, at_once: int
) -> None:
    with served() as server:
        eager = Hostile(server)
        eager.hello()
        assert server.host is not None
        eager.session.received(b"".join(send_frame(n, size) for n in range(count)))
        assert eager.session.is_paused
        server.host.commit()
        assert len(eager.answers) == 1 + at_once
        assert not eager.resumed
        server.loop.run()
        assert len(eager.answers) == 1 + count
        assert not eager.session.is_paused
        assert eager.resumed == 1


def test_a_lone_client_gets_all_answers_to_many_requests_at_once() -> None:
    """Its requests are written when they have been read, without another turn of the loop."""
    with served() as server:
        eager = Hostile(server)
        eager.hello()
        assert server.host is not None
        others = [each for each in server.host.sessions.items() if each[1] is not eager.session]
        for client, _ in others:
            del server.host.sessions[client]
        count = 2 * REQUESTS_MAX + 10
        eager.session.received(b"".join(send_frame(n) for n in range(count)))
        assert len(eager.answers) == 1 + count
        assert not eager.session.is_paused
        server.host.sessions.update(others)


def test_clients_that_send_in_turn_share_a_sync() -> None:
    """A turn looks once more while orders are still coming, and not for ever."""
    with served() as server:
        assert server.host is not None
        queue = server.host.parts.commit_queue
        first, second = Hostile(server), Hostile(server)
        first.hello()
        second.hello(VERSION, b"2" * CLIENT_BYTES, None, "host", 1)
        before = queue.syncs
        first.session.received(send_frame(0))
        server.loop.step()
        second.session.received(send_frame(0))
        assert len(first.answers) == len(second.answers) == 1
        server.loop.step()  # three clients are connected, so there may be more
        server.loop.step()
        assert len(first.answers) == len(second.answers) == 2
        assert queue.syncs == before + 1


def test_collected_answers_are_bounded() -> None:
    """Small requests with large answers do not fill memory within one turn."""
    with served() as server:
        assert server.host is not None
        server.engine.send("large", bytes(1 << 19))
        greedy = Hostile(server)
        greedy.hello()
        sent: list[int] = []
        take = greedy.session._send

        def count(data: bytes) -> None:
            sent.append(len(data))
            take(data)

        greedy.session._send = count
        greedy.send(b"".join(frame(Op.READ, n, read("large")) for n in range(100)))
        assert len(greedy.answers) == 1 + 100
        assert max(sent) < ANSWER_BYTES_MAX + (1 << 20)


def test_a_waiting_request_gets_no_answer_while_its_client_does_not_read() -> None:
    """It gets only its end by timeout, which is small. Messages come when the client reads
    again.
    """
    with served() as server:
        slow = Hostile(server)
        slow.hello()
        slow.send(frame(Op.READ, 2, read("new", 60.0)) + frame(Op.READ, 3, read("new", 5.0)))
        slow.session.choke()
        assert server.host is not None
        server.engine.send("new", b"1")
        pass_time(server, 10.0)
        assert [each.request for each in slow.answers[1:]] == [3]
        slow.send(frame(Op.CALL, 4, SYNC))
        assert len(slow.answers) == 2
        slow.session.unchoke()
        server.loop.run()
        assert {each.request for each in slow.answers[1:]} == {2, 3, 4}


def test_waiting_requests_do_not_block_others() -> None:
    with served() as server:
        patient = Hostile(server)
        patient.hello()
        for number in range(REQUESTS_MAX):
            patient.send(frame(Op.READ, number, read("none", 60.0)))
        patient.send(frame(Op.CALL, 7777, SYNC))
        assert patient.answers[-1].request == 7777


def test_a_load_is_full_at_each_of_its_limits() -> None:
    load = Load()
    for _ in range(REQUESTS_MAX):
        assert not load.is_full(0)
        load.asked(1)
    assert load.is_full(0)
    assert not load.is_full(1)
    load.answered(1, ANSWER_BYTES_MAX)
    assert load.is_full(0)
    load.sent()
    assert not load.is_full(0)
    load.asked(REQUEST_BYTES_MAX)
    load.answered(1, 0)
    assert load.is_full(0)


@pytest.mark.parametrize("shown", [None, bytes(32), b"\1" * 31, "\1" * 32, 7])
def test_a_client_without_the_token_is_refused(shown: object) -> None:
    with served() as server:
        stranger = Hostile(server, token=b"\1" * 32)
        stranger.hello(VERSION, b"h" * 16, shown, "host", 1)
        assert stranger.has_closed()
        assert isinstance(stranger.error(), NotAllowed)
        stranger.send(frame(Op.CALL, 4, SYNC))
        assert len(stranger.answers) == 1


def test_a_client_with_the_token_is_served() -> None:
    with served() as server:
        friend = Hostile(server, token=b"\1" * 32)
        friend.hello(VERSION, b"h" * 16, b"\1" * 32, "host", 1)
        friend.send(frame(Op.CALL, 4, SYNC))
        assert [each.flags & FAILED for each in friend.answers] == [0, 0]

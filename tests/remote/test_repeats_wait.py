"""A repeated request is answered once what carried it out is durable, and not before."""

from __future__ import annotations

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.frames import AGAIN, FAILED, VERSION, Op, frame
from fmq.wire.values import encode_values
from tests.remote.hostile import Hostile
from tests.remote.test_hostile_fields import EVERY, HANDLE, Client
from tests.small import bodies

QUIET = fmq.Options(sync="interval", sync_interval_seconds=1e6, segment_bytes=1 << 20)


def seen(engine: fmq.Engine) -> tuple[int, list[int]]:
    """Return how many messages there are, and what the groups have acked."""
    return len(engine.read("t", limit=99)), [info.acked_below for info in engine.groups()]


@pytest.mark.parametrize("name", ["SEND", "TAKE", "ACK"])
def test_the_answer_to_a_repeated_request_waits_until_its_record_is_durable(name: str) -> None:
    """The first request does not wait for a sync, as the options say. The client repeats it after
    it has lost the connection. So the answer to the repeat promises that the request is durable.
    """
    disk, clock, asked = CrashDisk(), FakeClock(), EVERY[name]
    with fmq.open("data", QUIET, disk=disk, clock=clock) as engine:
        server = MemoryServer(engine, clock)
        engine.send_many("t", [b"1", b"2", b"3"])
        client = Client(server, 0)
        engine.sync()
        journal, ledger = inside(engine).journal, inside(engine).ledger
        sequence, *rest = asked.values
        payload = asked.payload([sequence, *rest])
        client.send(frame(asked.op, 7, payload, handle=HANDLE))
        assert journal.position > ledger.shown_to, "it is planned, and not durable"
        client.send(frame(asked.op, 8, payload, flags=AGAIN, handle=HANDLE))
        (answer,) = [each for each in client.answers if each.request == 8]
        assert not answer.flags & FAILED
        found = ledger.requests.find((0).to_bytes(16, "little"), sequence)
        assert name == "ACK" or found, "it was carried out once"
        assert ledger.shown_to >= journal.position
        shown = seen(engine)
        with fmq.open("data", QUIET, disk=disk.after_power_loss(1), background=False) as left:
            assert seen(left) == shown
        server.close()


@pytest.mark.parametrize("name", ["SEND", "COMMIT"])
def test_a_request_is_carried_out_once_if_its_client_returns_before_the_turn_ends(
    name: str,
) -> None:
    """While there are other clients, a request waits for the end of the loop's turn. Its client
    says HELLO over another connection, and repeats it, before that.
    """
    asked, clock = EVERY[name], FakeClock()
    with fmq.open("data", QUIET, disk=CrashDisk(), clock=clock) as engine:
        server = MemoryServer(engine, clock)
        engine.send_many("t", [b"1", b"2", b"3"])
        Client(server, 1)
        client, before = Client(server, 0), len(bodies(engine, "t"))
        request = asked.op, 7, asked.payload(asked.values)
        client.session.received(frame(*request, handle=HANDLE))
        assert len(bodies(engine, "t")) == before, "it waits"
        returned = Hostile(server)
        hello = frame(
            *(Op.HELLO, 1, encode_values([VERSION, bytes(CLIENT_BYTES), None, "host", 1]))
        )
        returned.session.received(hello + frame(*request, flags=AGAIN, handle=HANDLE))
        server.loop.run()
        assert not returned.answers[-1].flags & FAILED
        assert len(bodies(engine, "t")) == before + 1
        server.close()

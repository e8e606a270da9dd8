"""A client that dies while it is asked about a transaction: another one is asked at once."""

from __future__ import annotations

from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer, MemoryWire
from tests.small import opened


class Wires(MemoryServer):
    """A server that keeps the connections of its clients, the last one last."""

    def dial(self) -> MemoryWire:
        wire = super().dial()
        self.__dict__.setdefault("wires", []).append(wire)
        return wire

    def kill_last(self) -> None:
        """End the last connection, as the death of its client does."""
        self.__dict__["wires"].pop().close()


def test_a_question_of_a_client_that_dies_is_asked_again_at_once() -> None:
    """Not when its lease of 30 s ends. If the next one dies of it, too, the lease goes on, so it
    does not kill one checker after the other. An answer makes it one of the first sort again.
    """
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        tx = engine.transaction(tx_id="T", producer="p", check_after=0.0)
        tx.send("t", b"1")
        tx.prepare()
        server = Wires(engine, clock)
        lives = server.connect()
        dying = server.connect()
        assert [each.tx_id for each in dying.feedback.ask("p")] == ["T"]
        assert lives.feedback.ask("p") == []
        began = clock.monotonic()
        server.kill_last()
        dying = server.connect()
        assert [each.tx_id for each in dying.feedback.ask("p")] == ["T"]
        assert clock.monotonic() - began < 1.0

        server.kill_last()
        assert lives.feedback.ask("p") == []
        (question,) = lives.feedback.ask("p", wait=40.0)
        assert clock.monotonic() - began > 29.0
        lives.feedback.answer(question, "unknown")

        dying = server.connect()
        assert dying.feedback.ask("p", wait=60.0)
        server.kill_last()
        assert lives.feedback.ask("p")


def test_an_answered_question_is_not_asked_again_when_its_client_dies() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        tx = engine.transaction(tx_id="T", producer="p", check_after=0.0)
        tx.send("t", b"1")
        tx.prepare()
        server = Wires(engine, clock)
        lives, dying = server.connect(), server.connect()
        (question,) = dying.feedback.ask("p")
        dying.feedback.answer(question, "unknown")
        server.kill_last()
        assert lives.feedback.ask("p") == [], "it waits for its backoff"

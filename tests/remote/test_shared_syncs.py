"""Transactions that one client has in flight at once share syncs, in one phase and in two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fmq.errors import AlreadyDecided
from fmq.store.bytes.content import encode_bodies
from fmq.store.bytes.kinds import PRE_MESSAGE, TX_MESSAGE, Kind
from fmq.wire.frames import FAILED, Frame, Op, frame
from fmq.wire.runs import encode_runs
from fmq.wire.transaction_frames import Collected, encode_collected
from fmq.wire.values import decode_error, decode_values, encode_values
from tests.remote.hostile import Hostile, served
from tests.small import bodies

COUNT = 8


def transaction(op: Op, kind: Kind, number: int) -> bytes:
    """Return the frame that commits or prepares a transaction with one message."""
    run = encode_bodies([b"%d" % number], None)
    run.topic = "shared"
    collected = Collected(number + 1, 0, None, f"T{number}", False, "p", None, False, [], [])
    return frame(op, number, encode_collected(collected), *encode_runs([run]))


def call(name: str, number: int, *args: object) -> bytes:
    """Return the frame of a call by name."""
    return frame(Op.CALL, number, encode_values([name, [*args], {}]))


class Pipelined(Hostile):
    """A client that sends several requests before it reads an answer, as threads of one do."""

    def ask(self, *frames: bytes) -> tuple[list[Frame], int]:
        """Send all at once; return the answers in the order of the requests, and the syncs."""
        assert self.server.host is not None
        engine = self.server.engine
        before = engine.stats().syncs
        del self.answers[:]
        self.send(b"".join(frames))
        syncs = engine.stats().syncs - before
        assert len(self.answers) == len(frames)
        return sorted(self.answers, key=lambda each: each.request), syncs

    def prepare(self, count: int = COUNT) -> list[int]:
        """Prepare transactions T0, T1 and so on; return the numbers that the engine gave them."""
        answers, syncs = self.ask(
            *(transaction(Op.PREPARE, PRE_MESSAGE, number) for number in range(count))
        )
        assert syncs == 1
        return [decode_values(each.payload)[0] for each in answers]


@pytest.fixture
def client() -> Iterator[Pipelined]:
    with served() as server:
        client = Pipelined(server)
        client.hello()
        yield client


def found(client: Pipelined) -> list[bytes]:
    """Return the messages of the transactions that are committed."""
    assert client.server.host is not None
    return bodies(client.server.engine, "shared")


def values(answers: list[Frame]) -> list[Any]:
    """Return what successful answers hold."""
    assert not any(each.flags & FAILED for each in answers), answers
    return [decode_values(each.payload) for each in answers]


def test_transactions_of_one_phase_share_a_sync(client: Pipelined) -> None:
    frames = [transaction(Op.COMMIT, TX_MESSAGE, number) for number in range(COUNT)]
    answers, syncs = client.ask(*frames)
    assert [receipt.offset for (receipt,) in values(answers)] == [*range(COUNT)]
    assert syncs == 1
    assert found(client) == [b"%d" % number for number in range(COUNT)]


def test_commits_of_prepared_transactions_share_a_sync(client: Pipelined) -> None:
    numbers = client.prepare()
    answers, syncs = client.ask(
        *(call("commit_prepared", n, f"T{n}", tx, None) for n, tx in enumerate(numbers))
    )
    assert [receipt.offset for (receipt,) in values(answers)] == [*range(COUNT)]
    assert syncs == 1
    assert found(client) == [b"%d" % number for number in range(COUNT)]


def test_roll_backs_share_a_sync_with_commits_and_sends(client: Pipelined) -> None:
    numbers = client.prepare()
    names = ["commit_prepared", "roll_back_prepared"] * (COUNT // 2)
    frames = [
        call(name, n, f"T{n}", tx, None)
        for n, (name, tx) in enumerate(zip(names, numbers, strict=True))
    ]
    more = transaction(Op.COMMIT, TX_MESSAGE, COUNT)
    answers, syncs = client.ask(*frames, more)
    values(answers)
    assert syncs == 1
    assert found(client) == [b"0", b"2", b"4", b"6", b"8"]


def test_a_decision_in_the_turn_of_the_opposite_one_is_refused(client: Pipelined) -> None:
    """The first one wins, and the same decision again gets its receipts."""
    (tx,) = client.prepare(1)
    first, opposite, again = client.ask(
        call("commit_prepared", 0, "T0", tx, None),
        call("roll_back_prepared", 1, "T0", tx, None),
        call("commit_prepared", 2, "T0", tx, None),
    )[0]
    assert values([first]) == values([again])
    assert isinstance(decode_error(opposite.payload), AlreadyDecided)
    assert found(client) == [b"0"]


def test_a_confirmation_is_written_after_its_clients_orders(client: Pipelined) -> None:
    """It costs no sync of its own, neither alone nor among others."""
    numbers = client.prepare(2)
    answers, syncs = client.ask(
        transaction(Op.COMMIT, TX_MESSAGE, 2),
        *(call("confirm_prepared", 3 + n, f"T{n}", tx) for n, tx in enumerate(numbers)),
    )
    values(answers)
    assert syncs == 1
    assert found(client) == [b"2", b"0", b"1"]


def test_a_sync_argument_that_is_no_bool_fails_only_its_own_call(client: Pipelined) -> None:
    first, second = client.prepare(2)
    wrong, right = client.ask(
        call("commit_prepared", 0, "T0", first, []), call("commit_prepared", 1, "T1", second, None)
    )[0]
    assert isinstance(decode_error(wrong.payload), TypeError)
    values([right])
    assert found(client) == [b"1"]

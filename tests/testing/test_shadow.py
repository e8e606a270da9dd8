"""The shadow that all tests run beside finds an engine whose memory is not what its bytes say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fmq import Engine
from fmq.errors import EngineFailed
from fmq.testing.inside import inside
from fmq.tx.ledger.ledger import Ledger
from tests.small import SHADOWS, CrashDisk, opened


def shift_a_queue(ledger: Ledger) -> None:
    ledger.topics["t"].queues[0].first = 1


def forget_an_undecided_transaction(ledger: Ledger) -> None:
    ledger.undecided.clear()


def add_an_ack(ledger: Ledger) -> None:
    ledger.acked_of("g", "t", 0).add(1, 2)


def send(engine: Engine) -> object:
    return engine.send("t", b"x")


def ack(engine: Engine) -> None:
    engine.consumer("t", group="g").poll(limit=1)[0].ack()


@pytest.mark.parametrize(("tamper", "act"), [(shift_a_queue, send), (add_an_ack, ack)])
def test_the_shadow_notices_a_wrong_ledger_at_the_next_append(
    tamper: Callable[[Ledger], None], act: Callable[[Engine], object]
) -> None:
    with opened(CrashDisk()) as engine:
        engine.send_many("t", [b"1", b"2"])
        tamper(inside(engine).ledger)
        with pytest.raises((AssertionError, EngineFailed), match=r"remembers|stopped"):
            act(engine)
            engine.send("t", b"y")
        SHADOWS.pop()


def test_the_shadow_compares_the_whole_ledger_in_verify() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1")
        tx.prepare()
        shadow = SHADOWS.pop()
        shadow.verify()
        forget_an_undecided_transaction(inside(engine).ledger)
        with pytest.raises(AssertionError, match="undecided"):
            shadow.verify()

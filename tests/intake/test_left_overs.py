"""What a job has prepared and can commit no more is rolled back, though no process comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock

MARK = "job"


class Shop:
    """An engine whose chores run at the end of its calls."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = fmq.open("shop", disk=CrashDisk(), clock=self.clock, background=False)

    def prepare(self, value: int, task: str = "t", producer: str = f"rows/{MARK}") -> str:
        tx = self.engine.transaction(tx_id=f"rows/{value}/attempt/{task}", producer=producer)
        tx.send("out", b"x")
        tx.prepare()
        return str(tx.tx_id)

    def move(self, value: int) -> None:
        with self.engine.transaction() as tx:
            tx.mark(MARK, value)

    def left(self, seconds: float) -> list[str]:
        """Return what is undecided so many seconds later."""
        self.clock.advance(seconds)
        self.engine.send("other", b"a call, after which chores run")
        return [each.tx_id for each in self.engine.undecided()]


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.engine.close()


def test_what_its_mark_has_passed_is_rolled_back(shop: Shop) -> None:
    """And nothing that may still be committed: a later value, another mark, another program's."""
    passed = [shop.prepare(1), shop.prepare(2), shop.prepare(2, "twin")]
    kept = [shop.prepare(3), shop.prepare(1, "u", "rows/other")]
    kept += [str(shop.engine.transaction(tx_id="rows", producer=f"rows/{MARK}").tx_id)]
    with shop.engine.transaction(tx_id="mine", producer=f"rows/{MARK}") as tx:
        tx.send("out", b"x")
        tx.prepare()
        shop.move(2)
        assert {*shop.left(11)} == {*kept[:2], "mine"}
    for tx_id in passed:
        assert shop.engine.outcome(tx_id).state == "rolled back"
    assert shop.engine.read("out") and len(shop.engine.read("out")) == 1


def test_what_nobody_has_decided_in_a_day_is_rolled_back(shop: Shop) -> None:
    """Its job has no mark yet, or none at all."""
    prepared = [shop.prepare(1), shop.prepare(0, "u", "rows/attempt")]
    assert shop.left(24 * 3600 - 60) == prepared
    assert shop.left(120) == []


def test_a_job_that_comes_back_too_late_is_refused(shop: Shop) -> None:
    ids = [shop.prepare(1)]
    shop.left(25 * 3600)
    with pytest.raises(fmq.errors.AlreadyDecided):
        shop.engine.decide_many(ids, "commit", mark=(MARK, 1, None))
    assert shop.engine.mark(MARK) is None

"""Messages that were sent with a delay, as tables show them and their transactions."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
import fmq.table
from fmq.testing import CrashDisk, FakeClock
from tests.small import fill, opened


def rows(disk: CrashDisk, view: str = "messages", **kwargs: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        fmq.table.read("data", view, disk=disk, **kwargs).read_all().to_pylist()
    )
    return found


def send_some(engine: fmq.Engine, *, prepare: bool) -> None:
    """Commit two messages that are visible at once, and three that wait a minute."""
    tx = engine.transaction(tx_id="T", producer="shop")
    tx.send("t", b"now")
    tx.send_many("t", [b"1", b"2"], delay=60)
    tx.send("t", bytes(1000), delay=60)
    tx.send("t", b"now, too")
    if prepare:
        tx.prepare()
    tx.commit()


@pytest.mark.parametrize("prepare", [False, True])
def test_no_two_messages_share_a_place(prepare: bool) -> None:
    """The places that `transactions` gives are those that `messages` gives, and no others."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send_many("t", [b"first", b"second"])
        send_some(engine, prepare=prepare)
    [tx] = rows(disk, "transactions")
    told = [
        (run["topic"], run["queue"], run["offset"] + number)
        for run in tx["queues"]
        for number in range(run["messages"])
    ]
    found = [row for row in rows(disk) if row["tx_id"] == "T"]
    assert told == [(row["topic"], row["queue"], row["offset"]) for row in found]
    assert told == [("t", 0, 2), ("t", 0, 3)]
    assert (tx["messages"], tx["delayed"]) == (5, 3)


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("meanwhile", ["nothing", "killed", "dropped"])
def test_a_delayed_message_still_belongs_to_its_transaction(prepare: bool, meanwhile: str) -> None:
    """Once all are due there are as many rows as the transaction has messages. So also after a
    kill, and after a retention, which writes again what waits.
    """
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock, retain_bytes=3 * 4096)
    send_some(engine, prepare=prepare)
    engine.send_many("t", [b"of no transaction"] * 2, delay=60)
    before = rows(disk, "transactions")
    if meanwhile == "killed":
        left = disk.after_kill()
        engine.close()
        engine = opened(disk := left, clock, retain_bytes=3 * 4096)
    elif meanwhile == "dropped":
        for _ in range(8):
            fill(engine)
        assert not rows(disk, "transactions")  # its decision is dropped, and what waits is not
    clock.advance(61)
    engine.sync()
    read = engine.read("t", offset=engine.queues("t")[0].first, limit=100)
    engine.close()
    found = [row for row in rows(disk) if row["topic"] == "t"]
    late = [row for row in found if row["delayed"]]
    assert [len(row["body"]) for row in late if row["tx_id"] == "T"] == [1, 1, 1000]
    assert [row["producer"] for row in late] == ["shop"] * 3 + [None] * 2
    if meanwhile != "dropped":
        [tx] = before
        assert sum(row["tx_id"] == "T" for row in found) == tx["messages"]
        assert sum(row["tx_id"] == "T" and row["delayed"] for row in found) == tx["delayed"]
    assert [(each.offset, each.tx_id) for each in read] == [
        (row["offset"], row["tx_id"]) for row in found
    ]


@pytest.mark.parametrize("clean", [True, False])
def test_any_choice_of_columns_shows_equal_values(clean: bool) -> None:
    """A record with a transaction must not be read as one without, whichever columns are read."""
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock, segment_bytes=64 << 10)
    for number in range(40):
        engine.send("t", b"%d" % number)
        with engine.transaction(tx_id=f"T{number}") as tx:
            tx.send("t", b"late %d" % number, delay=60)
    clock.advance(100)
    engine.sync()
    engine.send("t", b"the last")
    left = disk if clean else disk.after_kill()
    engine.close()
    expected = [(None, False)] * 40 + [(f"T{number}", True) for number in range(40)]
    for names in (["tx_id", "delayed"], ["tx_id"], ["delayed"], ["delayed", "body", "tx_id"]):
        found = rows(left, columns=names)[: len(expected)]  # a kill hides the last one
        shown = [
            (row.get("tx_id", tx_id), row.get("delayed", late))
            for row, (tx_id, late) in zip(found, expected, strict=True)
        ]
        assert shown == expected, names


def test_an_undecided_transaction_lists_its_queues() -> None:
    """Without offsets, which its messages have not got yet."""
    disk = CrashDisk()
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="U")
        tx.send_many("a", [b"1", b"2"])
        tx.send("b", b"3", delay=60)
        tx.prepare()
    [row] = rows(disk, "transactions")
    assert row["state"] == "undecided"
    assert row["queues"] == [{"topic": "a", "queue": 0, "offset": None, "messages": 2}]
    assert (row["messages"], row["delayed"]) == (3, 1)

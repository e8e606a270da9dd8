"""Each limit has its typed error at the call that exceeds it, and nothing is written by then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fmq
from fmq import Engine, Message
from fmq.errors import FmqError, TooLarge, TooMany
from tests.small import CrashDisk, bodies, check, fill, opened


@contextmanager
def refused(engine: Engine, error: type[FmqError], option: str) -> Iterator[None]:
    """The block raises `error`, which names `option`, and writes nothing."""
    before = engine.stats().position, engine.stats().topics
    with pytest.raises(error, match=option) as caught:
        yield
    assert (engine.stats().position, engine.stats().topics) == before
    assert isinstance(getattr(caught.value, "limit", None), int)


def prepared(engine: Engine, tx_id: str, body: bytes = b"1", producer: str | None = None) -> None:
    """Prepare a transaction of one message, or leave nothing of it."""
    tx = engine.transaction(tx_id=tx_id, producer=producer)
    tx.send("t", body)
    try:
        tx.prepare()
    except FmqError:
        tx.rollback()
        raise


SENDS: dict[str, Callable[[Engine, bytes], object]] = {
    "send": lambda engine, body: engine.send("t", body),
    "send with a key": lambda engine, body: engine.send("t", body, key="k"),
    "send_many": lambda engine, body: engine.send_many("t", [b"1", body]),
    "send_many of Messages": lambda engine, body: engine.send_many("t", [Message(body, "k")]),
    "tx.send": lambda engine, body: engine.transaction().send("t", body),
    "tx.send with a tag": lambda engine, body: engine.transaction().send("t", body, tag="k"),
    "tx.send_many": lambda engine, body: engine.transaction().send_many("t", [b"1", body]),
    "tx.send_many of Messages": lambda engine, body: engine.transaction().send_many(
        "t", [Message(body)]
    ),
}


@pytest.mark.parametrize("how", SENDS)
def test_a_message_over_message_bytes_max_is_refused_at_its_send(how: str) -> None:
    with opened(CrashDisk(), message_bytes_max=100) as engine:
        SENDS[how](engine, b"x" * 100)
        with refused(engine, TooLarge, "message_bytes_max"):
            SENDS[how](engine, b"x" * 101)


def test_a_batch_that_fits_no_segment_is_refused_whole() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        with refused(engine, TooLarge, "segment_bytes"):
            engine.send_many("t", [b"x" * 1000] * 4)
        with refused(engine, TooLarge, "segment_bytes"):
            engine.send("t", b"x" * 4096)
        assert engine.send("t", b"1").offset == 0
    check(disk)


def test_a_send_that_makes_a_transaction_too_large_is_refused() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction()
        tx.send("t", b"x" * 2000)
        with refused(engine, TooLarge, "segment_bytes"):
            tx.send("t", b"x" * 2000)
        tx.send("t", b"2")
        tx.commit()
        assert [len(body) for body in bodies(engine, "t")] == [2000, 1]


def test_a_send_beyond_the_messages_of_a_transaction_is_refused() -> None:
    with opened(CrashDisk(), transaction_messages_max=3) as engine:
        tx = engine.transaction()
        tx.send_many("t", [b"1", b"2"])
        tx.send("u", b"3")
        with refused(engine, TooMany, "transaction_messages_max"):
            tx.send("t", b"4")
        tx.commit()
        assert bodies(engine, "t") == [b"1", b"2"]


@pytest.mark.parametrize("option", ["transaction_messages_max", "segment_bytes"])
def test_a_send_many_that_exceeds_a_limit_adds_nothing_to_its_transaction(option: str) -> None:
    """After the error, the earlier messages can be committed."""
    with opened(CrashDisk(), transaction_messages_max=5) as engine:
        tx = engine.transaction()
        tx.send("t", b"before")
        many = [b"x" * 2000] * 3 if option == "segment_bytes" else [b"x"] * 5
        with refused(engine, TooLarge if option == "segment_bytes" else TooMany, option):
            tx.send_many("t", many)
        tx.commit()
        assert bodies(engine, "t") == [b"before"]


def test_a_prepare_beyond_transactions_max_waits_for_a_decision() -> None:
    disk = CrashDisk()
    with opened(disk, transactions_max=2) as engine:
        prepared(engine, "A")
        prepared(engine, "B")
        with refused(engine, TooMany, "transactions_max"):
            prepared(engine, "C")
    with opened(disk, transactions_max=2) as engine:
        with refused(engine, TooMany, "transactions_max"):
            prepared(engine, "C")
        engine.decide("A", "rollback")
        prepared(engine, "C")
    check(disk)


def test_a_prepare_beyond_a_producers_share_of_transactions_is_refused() -> None:
    disk = CrashDisk()
    with opened(disk, transactions_max=10, producer_share=0.1) as engine:
        prepared(engine, "A", producer="p")
        prepared(engine, "B", producer="q")
        prepared(engine, "C")
        prepared(engine, "D")
        with refused(engine, TooMany, "producer_share"):
            prepared(engine, "E", producer="p")
    with opened(disk, transactions_max=10, producer_share=0.1) as engine:
        with refused(engine, TooMany, "producer_share"):
            prepared(engine, "E", producer="p")
        engine.decide("A", "commit")
        prepared(engine, "E", producer="p")


def test_too_many_undecided_bytes_are_refused_at_prepare() -> None:
    disk = CrashDisk()
    with opened(disk, undecided_bytes_max=1000) as engine:
        prepared(engine, "A", b"x" * 600)
        with refused(engine, TooMany, "undecided_bytes_max"):
            prepared(engine, "B", b"x" * 401)
        prepared(engine, "C", b"x" * 400)
        assert engine.stats().undecided_bytes == 1000
        engine.decide("A", "commit")
        assert engine.stats().undecided_bytes == 400
    with opened(disk, undecided_bytes_max=1000) as engine:
        assert engine.stats().undecided_bytes == 400
        with refused(engine, TooMany, "undecided_bytes_max"):
            prepared(engine, "D", b"x" * 601)


def prepared_many(engine: Engine, tx_id: str, messages: int, producer: str | None = None) -> None:
    """Prepare so many messages of one byte, or leave nothing of them."""
    tx = engine.transaction(tx_id=tx_id, producer=producer)
    tx.send_many("t", [b"1"] * messages)
    try:
        tx.prepare()
    except FmqError:
        tx.rollback()
        raise


def test_too_many_undecided_messages_are_refused_at_prepare() -> None:
    disk = CrashDisk()
    with opened(disk, undecided_messages_max=10) as engine:
        prepared_many(engine, "A", 6)
        with refused(engine, TooMany, "undecided_messages_max"):
            prepared_many(engine, "B", 5)
        prepared_many(engine, "C", 4)
        engine.decide("A", "commit")
        prepared_many(engine, "D", 6)
    with opened(disk, undecided_messages_max=10) as engine:
        with refused(engine, TooMany, "undecided_messages_max"):
            prepared_many(engine, "E", 1)
        engine.decide("C", "rollback")
        prepared_many(engine, "E", 4)


@pytest.mark.parametrize("option", ["undecided_messages_max", "undecided_bytes_max"])
def test_a_prepare_beyond_a_producers_share_of_a_limit_is_refused(option: str) -> None:
    disk, limit = CrashDisk(), {option: 100, "producer_share": 0.1}
    with opened(disk, None, **limit) as engine:
        prepared_many(engine, "A", 6, "p")
        prepared_many(engine, "B", 6, "q")
        prepared_many(engine, "C", 60)
        with refused(engine, TooMany, "of 'p'.*producer_share"):
            prepared_many(engine, "D", 5, "p")
        prepared_many(engine, "E", 4, "p")
    with opened(disk, None, **limit) as engine:
        with refused(engine, TooMany, "of 'p'.*producer_share"):
            prepared_many(engine, "F", 1, "p")
        engine.decide("A", "commit")
        prepared_many(engine, "F", 6, "p")


def test_a_prepare_that_was_refused_may_be_tried_again() -> None:
    with opened(CrashDisk(), transactions_max=1) as engine:
        prepared(engine, "A")
        tx = engine.transaction(tx_id="B")
        tx.send("t", b"2")
        with refused(engine, TooMany, "transactions_max"):
            tx.prepare()
        engine.decide("A", "rollback")
        tx.prepare()
        tx.commit()
        assert bodies(engine, "t") == [b"2"]


@pytest.mark.parametrize("name_bytes", [1, 255])
@pytest.mark.parametrize("body_bytes", [0, 1, 100, 1500])
def test_a_prepared_transaction_can_be_committed_with_any_reason(
    name_bytes: int, body_bytes: int
) -> None:
    """The commit of the largest transaction, as copies, fits an empty segment.

    Method: send until refused, with short and with the longest names, prepare, go on to the next
    segment, and decide with the longest reason.
    """
    disk = CrashDisk()
    name = "n" * name_bytes
    with opened(disk, segment_bytes=8192, queues=3) as engine:
        for kind in ("two phases", "one phase"):
            tx = engine.transaction(tx_id=name[:-1] + kind[0], producer=name)
            sent = 0
            with pytest.raises(TooLarge):
                while True:
                    tx.send(name, b"x" * body_bytes, queue=sent % 3, headers={"h": "v"})
                    sent += 1
            if kind == "one phase":
                tx.commit()
            else:
                tx.prepare()
                fill(engine, body_bytes=800)
                engine.decide(tx.tx_id, "commit", reason="r" * 1024, decided_by=name)
        assert sum(info.next for info in engine.queues(name)) == 2 * sent
    check(disk)


@pytest.mark.parametrize(
    "limit",
    [
        {"transactions_max": 2},
        {"undecided_messages_max": 2},
        {"undecided_bytes_max": 20},
        {"transactions_max": 20, "producer_share": 0.1},
        {"undecided_messages_max": 20, "producer_share": 0.1},
        {"undecided_bytes_max": 200, "producer_share": 0.1},
    ],
    ids=str,
)
def test_transactions_being_prepared_count_as_undecided(
    tmp_path: Path, limit: dict[str, float]
) -> None:
    """Eight threads prepare 9 bytes each at once, and share a sync or two."""
    options = fmq.Options(segment_bytes=1 << 16, **limit)  # type: ignore[arg-type]
    with fmq.open(tmp_path / "d", options) as engine:
        refusals: list[FmqError] = []
        begin = threading.Barrier(8)

        def prepare(number: int) -> None:
            tx = engine.transaction(tx_id=f"T{number}", producer="p")
            tx.send("t", b"123456789")
            begin.wait()
            try:
                tx.prepare()
            except TooMany as error:
                refusals.append(error)

        threads = [threading.Thread(target=prepare, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(engine.undecided()) == 2
        assert len(refusals) == 6

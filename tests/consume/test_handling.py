"""Handling: loops, blocks, batches and draining, and what becomes of what fails."""

from __future__ import annotations

from itertools import islice

import pytest

from fmq import Engine, Retry
from fmq.errors import BadOption, Closed, LeaseLost, TooMany
from fmq.testing import CrashDisk, FakeClock


class Oops(Exception):
    """What handlers of these tests raise."""


def sent(engine: Engine, *said: str) -> None:
    engine.send_many("t", [each.encode() for each in said])


def left(engine: Engine) -> int:
    """Return how many messages of the group are not acked."""
    return engine.groups("g")[0].unread


def test_a_loop_yields_deliveries_one_by_one_and_ends_with_a_drain(engine: Engine) -> None:
    sent(engine, "a", "b", "c")
    seen = []
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer:
            seen.append((delivery.body, delivery.attempt))
            delivery.ack()
            if delivery.body == b"b":
                assert consumer.drain()
        assert seen == [(b"a", 1), (b"b", 1)]
        assert consumer.poll() == []
        assert consumer.poll_batch() is None
    assert left(engine) == 1
    with engine.consumer("t", group="g") as consumer:
        assert [delivery.attempt for delivery in consumer.poll()] == [1]  # "c" was not tried


def test_a_loop_raises_closed_when_its_engine_closes(engine: Engine) -> None:
    consumer = engine.consumer("t", group="g")
    engine.close()
    with pytest.raises(Closed):
        next(iter(consumer))


def test_a_block_acks_its_delivery_at_the_end_or_gives_it_back(
    engine: Engine, clock: FakeClock
) -> None:
    sent(engine, "a", "b")
    with engine.consumer("t", group="g", retry=Retry(backoff=10)) as consumer:
        first, second = consumer.poll()
        with first:
            pass
        with pytest.raises(Oops), second:
            raise Oops
        assert left(engine) == 1
        assert consumer.poll() == []
        clock.advance(10)
        (again,) = consumer.poll()
        assert (again.body, again.attempt) == (b"b", 2)
        with again:
            again.release()  # the block does not ack what was settled inside of it
        assert left(engine) == 1


def test_a_block_leaves_a_delivery_that_a_transaction_took(engine: Engine) -> None:
    sent(engine, "a")
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll()
        with delivery, engine.transaction() as tx:
            tx.ack(delivery)
            tx.send("u", b"done")
        assert left(engine) == 0


def test_extending_makes_the_lease_longer(engine: Engine, clock: FakeClock) -> None:
    sent(engine, "a", "b")
    with (
        engine.consumer("t", group="g", lease_seconds=10) as one,
        engine.consumer("t", group="g") as other,
    ):
        first, second = one.poll()
        first.extend(50)
        clock.advance(49)
        (again,) = other.poll()
        assert again.body == b"b"
        first.extend(10)
        clock.advance(5)
        first.ack()
        with pytest.raises(LeaseLost):
            second.extend(5)
        with pytest.raises(LeaseLost):
            first.extend(5)
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(BadOption, match="seconds="):
            first.extend(wrong)


def test_batches_are_handed_out_when_full_or_at_their_maximum_age(
    engine: Engine, clock: FakeClock
) -> None:
    sent(engine, *"abcde")
    begun = clock.monotonic()
    sizes = []
    with engine.consumer("t", group="g") as consumer:
        for batch in consumer.batches(2, 3):
            with batch:
                sizes.append(len(batch))
            if len(sizes) == 3:
                consumer.drain()
    assert sizes == [2, 2, 1]
    assert clock.monotonic() - begun == pytest.approx(3, abs=0.1)
    assert left(engine) == 0


def test_a_batch_whose_block_raises_is_given_back(engine: Engine) -> None:
    sent(engine, "a", "b")
    with engine.consumer("t", group="g") as consumer:
        with pytest.raises(Oops):
            for batch in consumer.batches(2, 0):
                with batch:
                    batch[0].ack()
                    raise Oops
        (again,) = consumer.poll()
        assert (again.body, again.attempt) == (b"b", 2)


def test_a_batch_with_gaps_is_acked_whole_or_not_at_all(engine: Engine, clock: FakeClock) -> None:
    """Two stretches are left, and one message of the second was redelivered."""
    sent(engine, *"abcdef")
    with (
        engine.consumer("t", group="g", lease_seconds=10) as consumer,
        engine.consumer("t", group="g") as other,
    ):
        (batch,) = islice(consumer.batches(6, 0), 1)
        batch[2].ack()
        for each in batch:
            if each.offset not in (2, 4):
                each.extend(100)
        clock.advance(11)
        assert [each.offset for each in other.poll()] == [4]
        with pytest.raises(LeaseLost, match=r"offset [34]"):
            batch.ack()
        assert left(engine) == 5
        del batch[4]
        batch.ack()
        assert left(engine) == 1


def test_a_batch_with_gaps_is_one_append(engine: Engine, disk: CrashDisk) -> None:
    """It costs the disk as much as a single ack."""
    sent(engine, *"abcdef")
    with engine.consumer("t", group="g") as consumer:
        (batch,) = islice(consumer.batches(6, 0), 1)
        counts = [disk.operations]
        batch[2].ack()
        counts.append(disk.operations)
        del batch[4]
        batch.ack()
        counts.append(disk.operations)
    assert counts[2] - counts[1] == counts[1] - counts[0]
    assert left(engine) == 1


def test_a_batch_with_one_delivery_twice_is_refused(engine: Engine) -> None:
    sent(engine, "a", "b")
    with engine.consumer("t", group="g") as consumer:
        (batch,) = islice(consumer.batches(2, 0), 1)
        batch.append(batch[0])
        with pytest.raises(LeaseLost):
            batch.ack()
        assert left(engine) == 2
        batch.pop()
        batch.ack()
        assert left(engine) == 0


def test_a_drain_waits_for_unsettled_deliveries(engine: Engine, clock: FakeClock) -> None:
    sent(engine, "a", "b")
    with engine.consumer("t", group="g", lease_seconds=10) as consumer:
        first, second = consumer.poll()
        assert not consumer.drain(timeout=1)
        first.ack()
        assert not consumer.drain(timeout=1)
        second.release()
        assert consumer.drain(timeout=0)
    with engine.consumer("t", group="g", lease_seconds=10) as consumer:
        consumer.poll()
        assert consumer.drain()  # until the lease of what was forgotten has ended
        with pytest.raises(BadOption):
            consumer.drain(timeout=float("nan"))


def test_used_up_attempts_make_a_dead_letter_though_no_handler_returns(
    engine: Engine, clock: FakeClock
) -> None:
    """Its lease ends each time, as if it killed its process."""
    sent(engine, "kills")
    with engine.consumer("t", group="g", lease_seconds=10, retry=Retry(2, backoff=1)) as consumer:
        for attempt in (1, 2):
            (delivery,) = consumer.poll(timeout=5)
            assert delivery.attempt == attempt
            clock.advance(11)
        assert consumer.poll(timeout=100) == []
    (dead,) = engine.dead_letters("g").list()
    assert (dead.body, dead.attempts) == (b"kills", 2)
    assert "attempt 2 did not end" in dead.reason


def test_delays_grow_from_0_to_ten_minutes_by_default(engine: Engine, clock: FakeClock) -> None:
    sent(engine, "a")
    delays = []
    with engine.consumer("t", group="g") as consumer:
        for _ in range(13):
            begun = clock.monotonic()
            (delivery,) = consumer.poll(timeout=1000)
            delays.append(round(clock.monotonic() - begun))
            with pytest.raises(Oops), delivery:
                raise Oops
    assert delays == [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]


def test_a_retry_sets_its_delays() -> None:
    assert [Retry(backoff=10).delay(n) for n in (1, 2, 3, 99)] == [10, 20, 40, 600]
    assert [Retry(backoff=[1, 5]).delay(n) for n in (1, 2, 3)] == [1, 5, 5]
    assert Retry(backoff=10, jitter=0.5).delay(1, lambda: 1.0) == 5
    assert 5 <= Retry(backoff=10, jitter=0.5).delay(1) <= 10
    assert Retry(3).is_last(3)
    assert not Retry(3).is_last(2)
    assert not Retry().is_last(99)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 1 << 40},
        {"backoff": -1},
        {"backoff": []},
        {"backoff": [1, -1]},
        {"jitter": 2},
        {"jitter": float("nan")},
    ],
)
def test_an_impossible_retry_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        Retry(**wrong)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused(engine: Engine) -> None:
    with pytest.raises(TypeError, match="retry="):
        engine.consumer("t", group="g", retry=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Retry(backoff="long")  # type: ignore[arg-type]
    with engine.consumer("t", group="g") as consumer:
        with pytest.raises(TypeError, match="handler="):
            consumer.run(None)  # type: ignore[arg-type]
        with pytest.raises(TooMany, match="workers"):
            consumer.run(print, workers=100_000)
        for wrong in (0, -1):
            with pytest.raises(BadOption, match="workers"):
                consumer.run(print, workers=wrong)
            with pytest.raises(BadOption, match="max_size"):
                consumer.batches(wrong, 1)
    for call in (consumer.drain, lambda: consumer.run(print), lambda: [*consumer]):
        with pytest.raises(Closed):
            call()

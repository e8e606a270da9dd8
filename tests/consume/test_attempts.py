"""Attempts: how often a group has tried a message, over kills, and when it gets it again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.errors import BadOption, LeaseLost
from fmq.testing.inside import inside
from fmq.tx.ledger.carryover import carried_of
from tests.interrupts import in_thread
from tests.small import CrashDisk, FakeClock, check, opened

YEARS_11 = 11 * 366 * 86400


def tried(deliveries: list[fmq.Delivery]) -> list[tuple[int, int]]:
    """Return the offset of each delivery, and which attempt it is."""
    return [(delivery.offset, delivery.attempt) for delivery in deliveries]


def polled(engine: Engine, limit: int = 99) -> list[tuple[int, int]]:
    with engine.consumer("t", group="g") as consumer:
        return tried(consumer.poll(limit=limit))


def test_a_first_delivery_is_attempt_1_and_each_later_one_is_one_more(engine: Engine) -> None:
    engine.send("t", b"x")
    with engine.consumer("t", group="g") as consumer:
        for attempt in range(1, 5):
            (delivery,) = consumer.poll(limit=1)
            assert delivery.attempt == attempt
            delivery.release(delay=0)
        batch = consumer.poll_batch()
        assert batch is not None
        assert batch.attempt == 5


def test_a_failing_message_and_new_messages_do_not_starve_each_other(engine: Engine) -> None:
    """A message that fails again and again is tried in turn with new ones."""
    engine.send_many("t", [b"poison", b"good", b"good"])
    seen = []
    with engine.consumer("t", group="g") as consumer:
        for number in range(9):
            (delivery,) = consumer.poll(limit=1)
            seen.append((delivery.offset, delivery.attempt))
            delivery.ack() if delivery.body == b"good" else delivery.release(delay=0)
            if number < 4:
                engine.send("t", b"good")
    assert [offset for offset, _ in seen[:3]] == [0, 1, 2]
    assert sorted(offset for offset, _ in seen if offset) == [1, 2, 3, 4, 5, 6]
    assert [attempt for offset, attempt in seen if not offset] == [1, 2, 3]


def test_an_attempt_is_written_before_the_message_is_seen_and_survives_a_kill(
    disk: CrashDisk,
) -> None:
    with opened(disk) as engine:
        engine.send("t", b"kills its process")
    for attempt in range(1, 5):
        clock = FakeClock()
        with opened(disk, clock) as engine, engine.consumer("t", group="g") as consumer:
            assert tried(consumer.poll(timeout=1000)) == [(0, attempt)]
            left = disk.after_kill()
        disk = left
    check(disk)


def test_an_attempt_takes_no_sync_of_its_own(engine: Engine) -> None:
    engine.send_many("t", [b"%d" % number for number in range(5)])
    with engine.consumer("t", group="g") as consumer:
        before = engine.stats().syncs
        for _ in range(5):
            (delivery,) = consumer.poll(limit=1)
        assert engine.stats().syncs == before
        delivery.ack()
        assert engine.stats().syncs == before + 1


def test_messages_that_were_only_read_ahead_count_no_attempt(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send_many("t", [b"0", b"1", b"2"])
        assert polled(engine, limit=1) == [(0, 1)]
    with opened(disk) as engine, engine.consumer("t", group="g") as consumer:
        assert tried(consumer.poll()) == [(1, 1), (2, 1)]
        assert tried(consumer.poll()) == [(0, 2)]
    check(disk)


def test_a_delay_is_kept_to_the_moment_and_over_restarts(disk: CrashDisk) -> None:
    clock = FakeClock()
    with opened(disk, clock) as engine, engine.consumer("t", group="g") as consumer:
        engine.send("t", b"x")
        (delivery,) = consumer.poll()
        delivery.release(delay=60)
        clock.advance(59)
        assert consumer.poll() == []
        clock.advance(1)
        (delivery,) = consumer.poll()
        assert delivery.attempt == 2
        delivery.release(delay=60)
        clock.advance(20)
    with opened(disk, clock) as engine, engine.consumer("t", group="g") as consumer:
        clock.advance(39)
        assert consumer.poll() == []
        assert tried(consumer.poll(timeout=2)) == [(0, 3)]
    check(disk)


def test_a_release_may_leave_the_attempt_uncounted(disk: CrashDisk) -> None:
    with opened(disk) as engine, engine.consumer("t", group="g") as consumer:
        engine.send("t", b"x")
        for _ in range(3):
            (delivery,) = consumer.poll()
            assert delivery.attempt == 1
            delivery.release(count=False)
    with opened(disk) as engine:
        assert polled(engine) == [(0, 1)]


def test_each_group_counts_for_itself(engine: Engine) -> None:
    engine.send("t", b"x")
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="h") as other:
        one.poll()[0].release()
        assert tried(one.poll()) == [(0, 2)]
        assert tried(other.poll()) == [(0, 1)]


def test_attempts_are_forgotten_with_the_message(disk: CrashDisk) -> None:
    """When it is acked, skipped, sought past, or its group or topic is deleted."""
    with opened(disk) as engine, engine.consumer("t", group="g") as consumer:
        engine.send_many("t", [b"0", b"1", b"2"])
        consumer.poll(limit=1)[0].ack()
        consumer.poll(limit=1)
        engine.group("g").skip("t", 0, 1)
        assert carried(engine) == []
        consumer.poll(limit=1)
        engine.sync()
        assert carried(engine) == [["g", "t", 0, [[2, 3, 1, 0]]]]
        engine.group("g").seek("t", to="earliest")
        assert carried(engine) == []
        assert tried(consumer.poll()) == [(0, 1), (1, 1), (2, 1)]
        engine.sync()
        engine.group("g").delete()
        assert carried(engine) == []
    check(disk)


def carried(engine: Engine) -> object:
    return carried_of(inside(engine).ledger)["tried"]


def test_attempts_outlive_the_segment_with_their_records(disk: CrashDisk) -> None:
    options: dict[str, Any] = {"retain_bytes": 8192, "segment_bytes": 4096}
    with opened(disk, **options) as engine:
        engine.send("t", b"x")
        for _ in range(3):
            polled(engine)
        with engine.consumer("fill", group="g") as consumer:
            for _ in range(40):
                engine.send("fill", b"f" * 500)
                for delivery in consumer.poll():
                    delivery.ack()
    with opened(disk, keep_unread=True, **options) as engine:
        engine.checkpoint()
        assert carried(engine) == [["g", "t", 0, [[0, 1, 3, 0]]]]
    check(disk)


@pytest.mark.parametrize("delay", [-1, float("nan"), YEARS_11, float("inf")])
def test_an_impossible_delay_is_refused(engine: Engine, delay: float) -> None:
    engine.send("t", b"x")
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll()
        with pytest.raises(BadOption, match="delay="):
            delivery.release(delay=delay)
        with pytest.raises(TypeError, match="count="):
            delivery.release(count=0)  # type: ignore[arg-type]
        delivery.ack()
        with pytest.raises(LeaseLost):
            delivery.release(delay=5)


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_attempts_are_counted_in_every_mode(sync: str) -> None:
    disk = CrashDisk()
    with opened(disk, sync=sync) as engine:
        engine.send("t", b"x")
        engine.sync()
        assert polled(engine) == [(0, 1)]
        assert polled(engine) == [(0, 2)]
    with opened(disk, sync=sync) as engine:
        assert carried(engine) == [["g", "t", 0, [[0, 1, 2, 0]]]]
    check(disk)


def test_a_message_tried_once_is_delivered_by_the_first_poll_after_a_restart(
    tmp_path: Path,
) -> None:
    """It is due before that poll begins, on a clock that moves too."""
    for attempt in (1, 2):
        with fmq.open(tmp_path / "data") as engine:
            if attempt == 1:
                engine.send("t", b"x")
            assert polled(engine) == [(0, attempt)]


def test_a_message_that_is_never_settled_waits_longer_after_each_lease(clock: FakeClock) -> None:
    """Its handler hangs, or kills the process. So each attempt waits longer than the one before."""
    disk = CrashDisk()
    came = []
    with opened(disk, clock) as engine:
        engine.send("t", b"it kills who handles it")
        retry = fmq.Retry(backoff=10)
        with engine.consumer("t", group="g", lease_seconds=5, retry=retry) as consumer:
            for _ in range(4):
                assert len(consumer.poll(timeout=1000)) == 1
                came.append(round(clock.monotonic()))
    assert [later - earlier for earlier, later in pairwise(came)] == [15, 25, 45]
    check(disk)


def test_a_message_too_large_to_become_a_dead_letter_waits_between_attempts(
    clock: FakeClock,
) -> None:
    """It fills a segment, so its dead letter finds no room: a poll must not try that for ever."""
    disk = CrashDisk()
    with opened(disk, clock, segment_bytes=4096) as engine:
        engine.send("t", b"x" * 3860)  # and there is room for a name of a client's request
        with engine.consumer("t", group="g", retry=fmq.Retry(1, backoff=[0])) as consumer:
            (delivery,) = consumer.poll()
            delivery.release()
            assert in_thread(consumer.poll, "the poll") == []
    check(disk)


def test_a_release_without_a_delay_waits_as_the_consumers_retry_says(
    engine: Engine, clock: FakeClock
) -> None:
    """So a loop that releases what it cannot handle does not spin."""
    engine.send("t", b"x")
    retry = fmq.Retry(backoff=10)
    with engine.consumer("t", group="g", retry=retry) as consumer:
        (delivery,) = consumer.poll()
        delivery.release()
        assert consumer.poll() == []
        clock.advance(10)
        (delivery,) = consumer.poll()
        delivery.release(count=False)
        (delivery,) = consumer.poll()
        assert delivery.attempt == 2
        delivery.release(delay=0)
        assert tried(consumer.poll()) == [(0, 3)]


def test_without_a_retry_repeated_releases_begin_to_wait(engine: Engine) -> None:
    """By default only the first one is handed out again at once."""
    engine.send("t", b"x")
    count = 0
    with engine.consumer("t", group="g") as consumer:
        while deliveries := consumer.poll():
            deliveries[0].release()
            count += 1
    assert count == 2


def test_the_delay_after_a_kill_counts_from_the_last_delivery(disk: CrashDisk) -> None:
    """Method: after two kills, the third attempt waits for a while. A day later it does not
    wait.
    """
    with opened(disk) as engine:
        engine.send("t", b"kills its process")
    for attempt in (1, 2):
        with opened(disk) as engine, engine.consumer("t", group="g") as consumer:
            assert tried(consumer.poll(timeout=1000)) == [(0, attempt)]
            left = disk.after_kill()
        disk = left
    with opened(disk.after_kill()) as engine:
        assert polled(engine) == [], "so soon it waits"
    clock = FakeClock()
    clock.advance(86400)
    with opened(disk, clock) as engine, engine.consumer("t", group="g") as consumer:
        begun = clock.monotonic()
        assert tried(consumer.poll(timeout=100)) == [(0, 3)]
        assert clock.monotonic() - begun < 4, "a client waits for those who had it"


class Stopped(SystemExit):
    """What a signal handler raises."""


def test_an_attempt_that_an_exit_or_a_drain_ends_does_not_count(engine: Engine) -> None:
    engine.send_many("t", [b"1", b"2"])
    with pytest.raises(Stopped), engine.consumer("t", group="g") as consumer:
        assert tried(consumer.poll()) == [(0, 1), (1, 1)]
        raise Stopped
    with engine.consumer("t", group="g") as consumer:
        assert tried(consumer.poll()) == [(0, 1), (1, 1)]
        assert not consumer.drain(timeout=0)
    with pytest.raises(Stopped), engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll(limit=1)
        assert delivery.attempt == 1
        with delivery:
            raise Stopped
    with pytest.raises(ValueError, match="failed"), engine.consumer("t", group="g") as consumer:
        assert {attempt for _, attempt in tried(consumer.poll())} == {1}
        raise ValueError("failed")
    with engine.consumer("t", group="g") as consumer:
        assert {attempt for _, attempt in tried(consumer.poll())} == {2}
        assert sorted(each for each, _ in polled(engine)) == []


def test_an_attempt_that_an_exit_took_back_does_not_count_after_a_kill(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send("t", b"x")
        with pytest.raises(Stopped), engine.consumer("t", group="g") as consumer:
            assert tried(consumer.poll()) == [(0, 1)]
            raise Stopped
        left = disk.after_kill()
    with opened(left) as engine, engine.consumer("t", group="g") as consumer:
        assert tried(consumer.poll(timeout=100)) == [(0, 1)]
    check(left)

"""The relay: what it copies, where it goes on, and when it refuses to."""

from __future__ import annotations

from dataclasses import replace
from threading import Semaphore, Thread
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayBatch, RelayPlace, StoreDiffers, Unsure
from fmq.relay.envelope import Envelope
from fmq.relay.relay_status import relayed_queues
from fmq.relay.source import QueueEnds
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.relay import CASES, check_target
from tests.conftest import OPTIONS, PATH
from tests.relay.systems import (
    AsksFirst,
    LinesTarget,
    NoFence,
    OwnMemory,
    PlaceLater,
    Table,
    TableTarget,
    system_of,
)


@pytest.mark.parametrize("case", [*CASES])
@pytest.mark.parametrize("kind", [TableTarget, LinesTarget])
def test_a_correct_target_passes_check_target(kind: type[TableTarget], case: str) -> None:
    check_target(system_of(kind), only=case)


@pytest.mark.parametrize("kind", [NoFence, PlaceLater, OwnMemory])
def test_a_target_that_breaks_a_rule_fails_check_target(kind: type[TableTarget]) -> None:
    with pytest.raises(AssertionError):
        check_target(system_of(kind))


def test_asking_before_the_fence_shows_messages_twice(engine: Engine) -> None:
    """The old relay delivers between the question and the fence."""
    table = Table()
    fill(engine, 3)
    old = table.target()
    Relay(engine, old, topics=["t"], name="n").run(once=True)
    fill(engine)

    class Asks(AsksFirst):
        def before_fence(self) -> None:
            Relay(engine, old, topics=["t"], name="n").run(once=True)

    Relay(engine, Asks(table.kept), topics=["t"], name="n").run(once=True)
    shown = [*table.shown()]
    assert len(shown) > len({*shown})


def fill(engine: Engine, count: int = 10) -> None:
    for _ in range(count):
        engine.send("t", b"x")


def offsets(table: Table) -> list[int]:
    return [offset for _, _, offset in table.shown()]


def relayed(engine: Any, table: Table, **more: Any) -> Relay:
    relay = Relay(engine, table.target(), topics=["t"], name="n", **more)
    relay.run(once=True)
    return relay


def test_copied_messages_are_acked_for_the_group_of_the_relay(engine: Engine) -> None:
    fill(engine)
    relay = relayed(engine, Table(), batch=4)
    assert [each.unread for each in engine.group("relay-n").infos()] == [0]
    assert relay.stats()._replace(claims=1)[:7] == (10, 3, 1, 0, 0, 0, 0.0)
    assert (relay.stats().fences, relay.stats().commits.count) == (0, 3)


def test_a_relay_goes_on_where_the_last_one_was(engine: Engine) -> None:
    table = Table()
    fill(engine)
    relayed(engine, table)
    fill(engine, 5)
    assert relayed(engine, table).stats().messages == 5
    assert offsets(table) == [*range(15)]


def test_acks_that_a_crash_has_lost_are_made_again(engine: Engine) -> None:
    """A relay may die between the delivery and its ack."""
    fill(engine)
    table = Table()

    class Dies(TableTarget):
        def deliver(self, batch: RelayBatch) -> None:
            super().deliver(batch)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Relay(engine, Dies(table.kept), topics=["t"], name="n").run(once=True)
    assert [each.unread for each in engine.group("relay-n").infos()] == [10]
    relayed(engine, table)
    assert [each.unread for each in engine.group("relay-n").infos()] == [0]
    assert offsets(table) == [*range(10)]


class AcksAtOnce(Relay):
    """It acks before each read what is copied, and not five times a second."""

    def _due(self) -> QueueEnds:
        return self._taken()


def test_the_next_batch_is_read_while_a_batch_is_stored(engine: Engine) -> None:
    """And what is acked meanwhile is copied: the relay dies while the other thread has read on."""
    fill(engine)
    table, read = Table(), Semaphore(0)

    class Slow(TableTarget):
        def deliver(self, batch: RelayBatch) -> None:
            first = batch.messages[0].offset
            for _ in range(1 if first else 2):  # this batch was read, too
                assert read.acquire(timeout=60), "the next batch is not read"
            if first == 6:
                raise KeyboardInterrupt
            super().deliver(batch)

    relay = AcksAtOnce(Counted(engine, read), Slow(table.kept), topics="t", name="n", batch=2)
    with pytest.raises(KeyboardInterrupt):
        relay.run(once=True)
    assert offsets(table) == [*range(6)]
    assert [each.acked_below for each in engine.group("relay-n").infos()] == [6]
    relayed(engine, table)
    assert offsets(table) == [*range(10)]


class Counted:
    """An engine that counts how often `tail` has returned."""

    def __init__(self, engine: Engine, tails: Semaphore) -> None:
        self.engine = engine
        self.tails = tails

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def tail(self, position: int, **how: Any) -> fmq.Appended:
        found = self.engine.tail(position, **how)
        self.tails.release()
        return found


@pytest.mark.parametrize("stored", [False, True])
def test_a_batch_that_was_read_ahead_waits_for_one_in_doubt(engine: Engine, stored: bool) -> None:
    """After a doubt the relay reads from the place of the target, whatever it has read before."""
    fill(engine)
    table = Table()

    class Doubtful(TableTarget):
        doubts = 0

        def deliver(self, batch: RelayBatch) -> None:
            is_doubt = batch.messages[0].offset == 4 and not self.doubts
            self.doubts += is_doubt
            if stored or not is_doubt:
                super().deliver(batch)
            if is_doubt:
                raise Unsure("the answer is lost")

    Relay(engine, Doubtful(table.kept), topics="t", name="n", batch=2).run(once=True)
    assert offsets(table) == [*range(10)]


def test_a_topic_that_was_made_again_is_copied_from_its_start(engine: Engine) -> None:
    table = Table()
    fill(engine, 7)
    relayed(engine, table)
    engine.topic("t").delete()
    fill(engine, 3)
    relayed(engine, table)
    assert offsets(table) == [*range(7), *range(3)]
    fill(engine, 9)
    relayed(engine, table)
    assert offsets(table) == [*range(7), *range(12)]


def test_the_status_has_what_the_target_lacks_beside_the_ends_here(
    engine: Engine, clock: FakeClock
) -> None:
    engine.create_topic("t", queues=2)
    table = Table()
    target = table.target()
    engine.send_many("t", [b"x"] * 5, queue=0)
    assert relayed_queues(engine, target, ["t"])[0][2:5] == (0, 5, 5)
    relayed(engine, table)
    clock.advance(60)
    engine.send_many("t", [b"x"] * 3, queue=1)
    engine.send("t", b"x", queue=0)
    first, second = relayed_queues(engine, target, ["t"])
    assert first == ("t", 0, 5, 6, 1, engine.read("t", offset=5)[0].time)
    assert second == ("t", 1, 0, 3, 3, engine.read("t", queue=1)[0].time)
    relayed(engine, table)
    assert [each[2:] for each in relayed_queues(engine, target, ["t"])] == [
        (6, 6, 0, None),
        (3, 3, 0, None),
    ]
    assert offsets(table)[:5] == [*range(5)]  # it has claimed nothing


def test_the_status_of_a_target_with_another_directory_is_refused(engine: Engine) -> None:
    table = Table()
    fill(engine)
    relayed(engine, table)
    strange = CrashDisk()
    strange.random(16)
    with (
        fmq.open(PATH, disk=strange) as other,
        pytest.raises(StoreDiffers, match="messages of the directory"),
    ):
        relayed_queues(other, table.target(), ["t"])


def test_a_new_queue_is_copied(engine: Engine) -> None:
    table = Table()
    fill(engine, 2)
    relayed(engine, table)
    engine.topic("t").add_queues(1)
    engine.send("t", b"x", queue=1)
    relayed(engine, table)
    assert [*table.shown()] == [("t", 0, 0), ("t", 0, 1), ("t", 1, 0)]


def test_another_directory_is_refused(engine: Engine, clock: FakeClock) -> None:
    table = Table()
    fill(engine)
    relayed(engine, table)
    strange = CrashDisk()
    strange.random(16)  # so that its directory has another id
    with fmq.open(PATH, disk=strange, clock=clock) as other:
        fill(other)
        with pytest.raises(StoreDiffers, match="messages of the directory"):
            relayed(other, table)


def test_a_target_that_knows_nothing_is_refused_once_something_is_acked(engine: Engine) -> None:
    fill(engine)
    relayed(engine, Table())
    with pytest.raises(StoreDiffers, match="its place was lost"):
        relayed(engine, Table())


@pytest.mark.parametrize("more", [0, 1, 30])
def test_an_older_copy_of_the_directory_is_refused(clock: FakeClock, more: int) -> None:
    """Also when it has grown past the place of the target."""
    disk, table = CrashDisk(), Table()
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock) as engine:
        fill(engine, 3)
        relayed(engine, table)
    old = disk.after_kill()
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock) as engine:
        fill(engine, 10)
        relayed(engine, table)
    clock.advance(5)
    with fmq.open(PATH, OPTIONS, disk=old, clock=clock) as engine:
        fill(engine, more)
        with pytest.raises(StoreDiffers, match="older copy"):
            relayed(engine, table)


def test_messages_that_retention_dropped_before_their_copy_are_an_error(clock: FakeClock) -> None:
    options = replace(OPTIONS, retain_bytes=3 * 16 * 1024, keep_unread=False)
    table = Table()
    with fmq.open(PATH, options, disk=CrashDisk(), clock=clock) as engine:
        fill(engine)
        relayed(engine, table)
        while engine.topic("t").queues()[0].first < 20:
            engine.send("t", bytes(2000))
            engine.checkpoint()
        with pytest.raises(StoreDiffers, match="retention has dropped"):
            relayed(engine, table)


def test_a_refused_message_ends_the_relay(engine: Engine) -> None:
    fill(engine)

    class Refuses(TableTarget):
        def insert(self, batch: RelayBatch) -> None:
            raise MessageRefused(batch.messages[3], "too large")

    table = Table()
    with pytest.raises(MessageRefused, match="t/0 offset 3 is refused by the target: too large"):
        Relay(engine, Refuses(table.kept), topics="t", name="n").run(once=True)
    assert offsets(table) == []


class Picky(TableTarget):
    """It refuses some offsets."""

    refused: tuple[int, ...] = (3, 7)

    def insert(self, batch: RelayBatch) -> None:
        for each in batch.messages:
            if each.offset in self.refused:
                raise MessageRefused(each, "too large")
        super().insert(batch)


def parking(engine: Engine, target: Any, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", on_refused="park", **more)
    relay.run(once=True)
    return relay


def letters(engine: Engine) -> list[tuple[int | None, str]]:
    return [(each.offset, each.reason) for each in engine.dead_letters("relay-n").list()]


@pytest.mark.parametrize("batch", [1, 4, 1000])
def test_refused_messages_become_dead_letters(engine: Engine, batch: int) -> None:
    fill(engine)
    table = Table()
    relay = parking(engine, Picky(table.kept), batch=batch)
    assert offsets(table) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert letters(engine) == [(n, "refused by the target: too large") for n in (3, 7)]
    assert (relay.stats().messages, relay.stats().parked, relay.stats().lag) == (8, 2, 0)
    fill(engine, 2)
    parking(engine, Picky(table.kept))
    assert offsets(table)[8:] == [10, 11]


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_stub_stands_in_an_atomic_target_for_what_it_refuses(
    engine: Engine, is_atomic: bool
) -> None:
    """It has the place of the message, and says why. What a codec fails for has one, too."""
    with engine.transaction() as tx:
        for number in range(6):
            tx.send("t", b"%d" % number, key="k", tag="T", headers={"fmq-parked": "mine"})
    found: list[fmq.Message] = []

    class OfBodies(TableTarget):
        atomic = is_atomic

        def insert(self, batch: RelayBatch) -> None:
            for each in batch.messages:
                if each.body == b"<3>":
                    raise MessageRefused(each, "three")
            super().insert(batch)
            found.extend(batch.messages)

    def encode(message: fmq.Message) -> bytes:
        if message.body == b"1":
            raise ValueError("not one")
        return b"<" + message.body + b">"

    table = Table()
    relay = parking(engine, OfBodies(table.kept), encode=encode)
    left = [0, 1, 2, 3, 4, 5] if is_atomic else [0, 2, 4, 5]
    assert offsets(table) == left
    assert (relay.stats().messages, relay.stats().parked, len(letters(engine))) == (4, 2, 2)
    stubs = [each for each in found if not each.body]
    said = [(each.offset, each.key, each.tag, each.headers) for each in stubs]
    reasons = {1: "it cannot be encoded: ValueError not one", 3: "three"}
    wanted = [(n, None, None, {"fmq-parked": why}) for n, why in reasons.items()]
    assert said == (wanted if is_atomic else [])
    batch = RelayBatch(found, RelayPlace("S", 0, "t", 0, 0, 0))
    headers = {each.message.offset: dict(each.headers) for each in Envelope().headers(batch)}
    assert "fmq-parked" not in headers[0], "only the relay says so"
    if is_atomic:
        assert headers[3].pop("fmq-parked") == "three"
        assert [*headers[3]] == ["fmq-id", "fmq-tx", "fmq-tx-count", "fmq-time"]
        assert headers[0]["fmq-tx-count"] == "6"


class Everything(Picky):
    refused = tuple(range(10))


def test_a_batch_of_refused_messages_alone_is_passed(engine: Engine) -> None:
    fill(engine)
    table = Table()
    parking(engine, Everything(table.kept))
    assert (offsets(table), len(letters(engine))) == ([], 10)
    assert parking(engine, Everything(table.kept)).stats().parked == 0


@pytest.mark.parametrize("refused", [0, 4])
def test_a_crash_between_the_dead_letter_and_its_batch_leaves_one(
    engine: Engine, refused: int
) -> None:
    """Also if nothing was copied before: the next relay must not take that for a lost place."""
    fill(engine)
    table = Table()

    class Dies(Picky):
        claims = 0

        def claim(self) -> Any:
            self.claims += 1
            if self.claims == 2:
                raise KeyboardInterrupt
            return super().claim()

    target, again = Dies(table.kept), Picky(table.kept)
    target.refused = again.refused = (refused,)
    with pytest.raises(KeyboardInterrupt):
        parking(engine, target)
    assert (len(letters(engine)), offsets(table)) == (1, [])
    parking(engine, again)
    assert (len(letters(engine)), offsets(table)) == (1, [n for n in range(10) if n != refused])


def test_a_message_that_is_parked_and_refused_again_ends_the_relay(engine: Engine) -> None:
    fill(engine)
    wrong = engine.tail().messages[0]

    class Wrong(TableTarget):
        def insert(self, batch: RelayBatch) -> None:
            raise MessageRefused(wrong, "always the same")

    with pytest.raises(MessageRefused, match="offset 0 is refused by the target: always the same"):
        parking(engine, Wrong(Table().kept))


def test_another_word_for_what_to_do_about_refusals_is_an_error(engine: Engine) -> None:
    with pytest.raises(fmq.BadOption, match="on_refused='pass'"):
        Relay(engine, InMemory(), topics="t", on_refused="pass")


class InMemory:
    """A target that keeps what it is given, for any thread."""

    atomic = True

    def __init__(self) -> None:
        self.seen: list[fmq.Message] = []

    def claim(self) -> None:
        return None

    def status(self) -> None:
        return None

    def deliver(self, batch: RelayBatch) -> None:
        self.seen += batch.messages

    def close(self) -> None:
        pass


def test_a_relay_that_waits_copies_what_comes(engine: Engine, clock: FakeClock) -> None:
    target = InMemory()
    relay = Relay(engine, target, topics=["t"], name="n")
    thread = Thread(target=relay.run)
    thread.start()
    fill(engine, 4)
    clock.until(lambda: len(target.seen) == 4)
    relay.stop()
    fill(engine, 1)  # wakes it
    thread.join(60)
    assert not thread.is_alive()

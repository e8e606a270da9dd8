"""The engine against a model in dicts and lists, driven by Hypothesis through any sequence of
calls, kills and power cuts.

After every step the two must say the same. A call that a power cut interrupts may have
happened or not, wholly; nothing else is ever in doubt. Segments are tiny, so that everything
rolls, moves and is dropped. A failure prints the steps; `@reproduce_failure` repeats them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import fmq
from fmq.errors import AlreadyDecided, LeaseLost, TxIdInUse, WrongState
from fmq.testing import CrashDisk, FakeClock, Loss, PowerLoss
from tests.budget import SEED, SEED_IS_GIVEN, within_budget
from tests.model import (
    GROUP,
    QUEUES,
    Model,
    Offset,
    Parcel,
    Place,
    Plain,
    differences,
    done,
    place_of,
)

SEGMENT_BYTES = 4096
LEASE_SECONDS = 30.0

topics = st.sampled_from(list(QUEUES))
keys = st.sampled_from([None, None, "a", "b", "c"])
bodies = st.one_of(st.binary(max_size=20), st.integers(100, 400).map(lambda size: b"x" * size))
extras = st.sampled_from(
    [(None, {}), ("paid", {}), ("", {"trace": "9f"}), (None, {"a": "", "b": "é"})]
)
tx_ids = st.sampled_from([None, None, "t-1", "t-2", "t-3", "t-4"])
decisions = st.sampled_from(["commit", "rollback"])
some = st.integers(0, 7)
options = st.builds(
    fmq.Options,
    sync=st.sampled_from(["always", "always", "interval", "never"]),
    segment_bytes=st.just(SEGMENT_BYTES),
    checkpoint_bytes=st.sampled_from([500, 3000, 100_000]),
    topic_queues=st.just(QUEUES),
    compress_bytes_min=st.sampled_from([None, 50]),
    reference_bytes_min=st.sampled_from([1, 64, 4096]),
    relocate_bytes=st.sampled_from([1500, 6000, 100_000]),
    retain_bytes=st.sampled_from([None, 2 * SEGMENT_BYTES, 4 * SEGMENT_BYTES]),
    keep_unread=st.booleans(),
    lease_seconds=st.just(LEASE_SECONDS),
    read_ahead_bytes=st.sampled_from([300, 1 << 20]),
)


class Held:
    """A delivery that has not been acked, and until when it is certainly ours."""

    def __init__(self, delivery: fmq.Delivery, deadline: float) -> None:
        self.delivery = delivery
        self.offset: Offset = delivery.topic, delivery.queue, delivery.offset
        self.deadline = deadline


class Open:
    """A transaction in the hands of its user, and what it has been given."""

    def __init__(self, tx: fmq.Transaction) -> None:
        self.tx = tx
        self.parcel = Parcel()
        self.held: list[Held] = []


class EngineMachine(RuleBasedStateMachine):
    """What a user, a killer and a thunderstorm do to one directory."""

    @initialize(options=options)
    def begin(self, options: fmq.Options) -> None:
        self.options = options
        self.clock = FakeClock()
        self.model = Model()
        self.may_be = [self.model]  # what a power cut may leave
        self.past = [self.model]
        self.ids: set[str] = set()
        self.disk = CrashDisk()
        self.follower: fmq.ReadOnlyEngine | None = None
        self.firsts: dict[Place, int] = {}
        self.tried: set[Offset] = set()
        self.open_engine()

    def open_engine(self) -> None:
        self.engine = fmq.open(
            "data", self.options, disk=self.disk, clock=self.clock, background=False
        )
        self.opened: list[Open] = []
        self.holds: dict[Offset, Held] = {}
        retry = fmq.Retry(backoff=0)
        self.consumer = self.engine.consumer(list(QUEUES), group=GROUP, retry=retry)

    # --- how a step is done -----------------------------------------------------------------

    def do(self, call: Callable[[], Any], change: Callable[[Model], None] = lambda _: None) -> Any:
        """Let the engine do something and the model the same; None if the power failed in it."""
        after = self.model.changed(change)
        try:
            result = call()
        except PowerLoss:
            self.crash(lambda disk, seed: disk.after_power_loss(seed), [*self.may_be, after])
            return None
        self.model = after
        self.past.append(after)
        self.may_be = [*self.may_be, after] if self.options.sync == "never" else [after]
        return result

    def durable(
        self, call: Callable[[], Any], change: Callable[[Model], None] = lambda _: None
    ) -> Any:
        """The same for a call after which nothing is in doubt, whatever the mode."""
        result = self.do(call, change)
        self.may_be = [self.model]
        return result

    def crash(
        self, die: Callable[[CrashDisk, int], CrashDisk], may_be: list[Model], seed: int = 0
    ) -> None:
        """Go on in another life, which must be one of those that may be."""
        dead, engine = self.disk, self.engine
        if self.follower is not None:
            self.follower.close()
            self.follower = None
        self.disk = die(dead, seed)
        self.close_the_dead(engine)
        while True:
            try:
                self.open_engine()
                break
            except PowerLoss:
                # Before recovery has made it durable, what a kill left can still be lost.
                may_be = [*self.may_be, *may_be]
                self.disk = self.disk.after_power_loss(seed)
        self.settle(may_be)

    @staticmethod
    def close_the_dead(engine: fmq.Engine) -> None:
        """Close an engine that counts as killed: its disk has a new owner, and only its memory is
        freed.
        """
        try:
            engine.close()
        except PowerLoss:
            engine.close()

    def settle(self, may_be: list[Model]) -> None:
        """Find out which of the lives in doubt this is; from now on it is certain."""
        found = []
        for model in reversed(may_be):
            wrong = [*differences(self.engine, model, self.ids, dropped=self.dropped)]
            acked = {offset for offset in model.acked | model.held if self.is_there(offset)}
            if (seen := done(self.engine)) != acked:
                wrong.append(f"done with {seen}, expected {acked}")
            if not wrong:
                self.model = model
                self.may_be, self.past = [model], [*self.past, model]
                return
            found.append("\n".join(wrong))
        raise AssertionError("none of what may be:\n" + "\nor\n".join(found))

    def is_there(self, offset: Offset) -> bool:
        return any(
            (info.topic, info.queue) == offset[:2] and info.first <= offset[2]
            for info in self.engine.queues()
        )

    @property
    def dropped(self) -> bool:
        return self.options.retain_bytes is not None and self.engine.stats().first_position > 0

    # --- sending ----------------------------------------------------------------------------

    @rule(topic=topics, body=bodies, key=keys, extra=extras)
    def send(self, topic: str, body: bytes, key: str | None, extra: Any) -> None:
        place = place_of(topic, key)
        tag, headers = extra
        queue = None if key else 0
        receipt = self.do(
            lambda: self.engine.send(topic, body, key=key, tag=tag, headers=headers, queue=queue),
            lambda model: model.publish([(place, (body, key, tag, headers, None))]),
        )
        if receipt:
            assert (receipt.topic, receipt.queue) == place
            assert receipt.offset == len(self.model.queues[place]) - 1

    @rule(topic=topics, bodies=st.lists(bodies, max_size=4), key=keys)
    def send_many(self, topic: str, bodies: list[bytes], key: str | None) -> None:
        """Plain bodies, or Messages of which every second one has a key."""
        if key is None:
            sent: list[tuple[Place, Plain]] = [
                ((topic, 0), (body, None, None, {}, None)) for body in bodies
            ]
            self.do(
                lambda: self.engine.send_many(topic, bodies, queue=0),
                lambda model: model.publish(sent),
            )
            return
        each = [fmq.Message(body, key if i % 2 else "k") for i, body in enumerate(bodies)]
        sent = [
            (place_of(topic, one.key), (bytes(one.body), one.key, None, {}, None)) for one in each
        ]
        self.do(lambda: self.engine.send_many(topic, each), lambda model: model.publish(sent))

    # --- transactions -----------------------------------------------------------------------

    @rule(tx_id=tx_ids)
    def begin_transaction(self, tx_id: str | None) -> None:
        taken = {one.tx.tx_id for one in self.opened} | self.model.undecided.keys()
        if tx_id in taken:
            with pytest.raises(TxIdInUse):
                self.engine.transaction(tx_id=tx_id)
            return
        try:
            tx = self.engine.transaction(tx_id=tx_id)
        except TxIdInUse:
            assert tx_id in self.model.outcomes
            return
        assert tx_id not in self.model.outcomes or self.dropped
        self.ids.add(tx.tx_id)
        self.opened.append(Open(tx))

    def one_open(self, number: int) -> Open:
        return self.opened[number % len(self.opened)]

    @precondition(lambda self: self.opened)
    @rule(number=some, topic=topics, body=bodies, key=keys)
    def add_to_transaction(self, number: int, topic: str, body: bytes, key: str | None) -> None:
        one = self.one_open(number)
        if one.tx.tx_id in self.model.undecided:
            with pytest.raises(WrongState):
                one.tx.send(topic, body)
        elif len(one.parcel.messages) < 3:
            one.tx.send(topic, body, key=key, queue=None if key else 0)
            place = place_of(topic, key)
            one.parcel.messages.append((place, (body, key, None, {}, one.tx.tx_id)))

    @precondition(lambda self: self.opened and self.holds)
    @rule(number=some, which=some)
    def ack_in_transaction(self, number: int, which: int) -> None:
        one, held = self.one_open(number), self.one_held(which)
        if one.tx.tx_id in self.model.undecided:
            with pytest.raises(WrongState):
                one.tx.ack(held.delivery)
            return
        one.tx.ack(held.delivery)
        del self.holds[held.offset]
        one.held.append(held)
        one.parcel.acks.append(held.offset)

    @precondition(lambda self: self.opened)
    @rule(number=some)
    def prepare(self, number: int) -> None:
        one = self.one_open(number)
        tx_id = one.tx.tx_id
        if one.tx.phase.value == "open":
            self.durable(one.tx.prepare, lambda model: model.undecided.update({tx_id: one.parcel}))

    @precondition(lambda self: self.opened)
    @rule(number=some)
    def commit(self, number: int) -> None:
        one = self.one_open(number)
        tx_id = one.tx.tx_id
        if tx_id in self.model.undecided:
            receipts = self.do(one.tx.commit, lambda model: model.decide(tx_id, "commit"))
        else:
            receipts = self.do(one.tx.commit, lambda model: model.commit_at_once(tx_id, one.parcel))
        if receipts is not None:
            self.opened.remove(one)
            assert sum(receipt.count for receipt in receipts) == len(one.parcel.messages)
            assert one.tx.commit() == receipts

    @precondition(lambda self: self.opened)
    @rule(number=some)
    def roll_back(self, number: int) -> None:
        one = self.one_open(number)
        tx_id = one.tx.tx_id
        engine = self.engine
        if tx_id in self.model.undecided:
            self.do(one.tx.rollback, lambda model: model.decide(tx_id, "rollback"))
        else:
            self.do(one.tx.rollback)  # it writes nothing itself, but the chores after it may
            for held in one.held if self.engine is engine else ():
                held.deadline = self.clock.monotonic() + LEASE_SECONDS
                self.holds[held.offset] = held
        if self.engine is engine:
            self.opened.remove(one)

    @precondition(lambda self: self.model.undecided)
    @rule(number=some, decision=decisions)
    def decide(self, number: int, decision: Any) -> None:
        """In the producer's place, who may still be there."""
        undecided = self.engine.undecided()
        tx = undecided[number % len(undecided)]
        engine = self.engine
        outcome = self.do(
            lambda: self.engine.decide(tx.tx_id, decision, reason="why", seal=tx.seal),
            lambda model: model.decide(tx.tx_id, decision),
        )
        if engine is self.engine:
            assert outcome.state == self.model.outcomes[tx.tx_id]
            self.opened = [one for one in self.opened if one.tx.tx_id != tx.tx_id]

    @precondition(lambda self: self.model.undecided)
    @rule(number=some, decision=decisions)
    def decide_many(self, number: int, decision: Any) -> None:
        """Together: all that are undecided, or all but the first ones."""
        undecided = [each.tx_id for each in self.engine.undecided()]
        names = undecided[number % len(undecided) :]

        def decided(model: Model) -> None:
            for name in names:
                model.decide(name, decision)

        engine = self.engine
        self.do(lambda: self.engine.decide_many(names, decision), decided)
        if engine is self.engine:
            self.opened = [one for one in self.opened if one.tx.tx_id not in names]
            if not self.dropped:
                self.engine.decide_many(names, decision)
                assert len({self.engine.outcome(name).joint for name in names}) == 1

    @precondition(lambda self: self.model.outcomes and not self.dropped)
    @rule(number=some)
    def decide_again(self, number: int) -> None:
        tx_ids = sorted(self.model.outcomes)
        tx_id = tx_ids[number % len(tx_ids)]
        same, other = ("commit", "rollback")
        if self.model.outcomes[tx_id] == "rolled back":
            same, other = other, same
        outcome = self.do(lambda: self.engine.decide(tx_id, same))  # type: ignore[arg-type]
        assert outcome in (None, self.engine.outcome(tx_id))
        with pytest.raises(AlreadyDecided):
            self.engine.decide(tx_id, other)  # type: ignore[arg-type]

    # --- consuming --------------------------------------------------------------------------

    def one_held(self, number: int) -> Held:
        return self.holds[sorted(self.holds)[number % len(self.holds)]]

    def expire(self) -> None:
        now = self.clock.monotonic()
        for held in list(self.holds.values()):
            if held.deadline <= now:
                del self.holds[held.offset]

    @rule(limit=st.sampled_from([1, 2, 100]))
    def poll(self, limit: int) -> None:
        """A poll returns visible messages that are neither acked nor held, and leaves none out."""
        self.expire()
        busy = {offset for one in self.opened for offset in one.parcel.acks} | self.model.held
        busy |= self.model.acked | self.holds.keys()
        deliveries = self.durable(lambda: self.and_sync(self.consumer.poll(limit=limit)))
        if deliveries is None:
            return  # the power failed when it wrote the attempts
        assert len(deliveries) <= (0 if self.model.paused else limit)
        for delivery in deliveries:
            held = Held(delivery, self.clock.monotonic() + LEASE_SECONDS)
            topic, queue, offset = held.offset
            assert held.offset not in busy
            assert delivery.body == self.model.queues[topic, queue][offset][0]
            self.holds[held.offset] = held
            self.tried.add(held.offset)
        if not deliveries and not self.model.paused:
            waiting = {
                (info.topic, info.queue, offset)
                for info in self.engine.queues()
                for offset in range(info.first, info.next)
            } - busy
            assert waiting <= self.tried  # after a restart, what was in hand may wait

    @rule(reason=st.sampled_from(["slow", "at night"]))
    def pause(self, reason: str) -> None:
        def change(model: Model) -> None:
            model.paused = reason

        self.durable(lambda: self.engine.group(GROUP).pause(reason=reason), change)

    @precondition(lambda self: self.model.paused)
    @rule()
    def resume(self) -> None:
        def change(model: Model) -> None:
            model.paused = ""

        self.durable(lambda: self.engine.group(GROUP).resume(), change)

    def and_sync(self, result: Any) -> Any:
        """Leave no attempt for a later call to write: one that only reads may meet the end then."""
        self.engine.sync()
        return result

    @precondition(lambda self: self.holds)
    @rule(which=some)
    def ack(self, which: int) -> None:
        held = self.one_held(which)
        engine = self.engine
        self.do(held.delivery.ack, lambda model: model.ack([held.offset]))
        if engine is self.engine:
            del self.holds[held.offset]
            with pytest.raises(LeaseLost):
                held.delivery.ack()

    @precondition(lambda self: self.holds)
    @rule(which=some)
    def release(self, which: int) -> None:
        held = self.one_held(which)
        engine = self.engine

        def give_back() -> None:
            held.delivery.release()
            self.engine.sync()

        self.durable(give_back)
        if engine is self.engine:
            del self.holds[held.offset]

    @rule(seconds=st.sampled_from([0.5, 2.0, LEASE_SECONDS + 1]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # --- the engine's own -------------------------------------------------------------------

    @rule()
    def checkpoint(self) -> None:
        self.durable(self.engine.checkpoint)

    @rule()
    def sync(self) -> None:
        self.durable(self.engine.sync)

    @rule()
    def look(self) -> None:
        """A reader without a lock sees a moment of the past, and after a checkpoint the present."""
        if self.options.sync == "never":
            return  # what was shown there need not be on the disk yet
        if self.follower is None:
            self.follower = fmq.open("data", read_only=True, disk=self.disk, clock=self.clock)
        self.follower.refresh()
        assert self.follower.damage is None
        now = self.engine.stats().checkpointed_upto == self.engine.stats().applied_upto
        moments = self.past[-1:] if now else reversed(self.past)
        found = []
        for model in moments:
            wrong = [*differences(self.follower, model, self.ids, dropped=self.dropped)]
            if not wrong:
                return
            found.append(wrong)
        raise AssertionError(f"no moment of the past, the last differs in {found[0]}")

    @rule()
    def reopen(self) -> None:
        engine = self.engine
        self.durable(engine.close)
        if engine is self.engine:
            report = fmq.check("data", disk=self.disk)
            assert report.ok, report.problems
            self.crash(lambda disk, _: disk, [self.model])
            assert self.engine.stats().recovery.clean

    @rule(crash_at=st.one_of(st.none(), st.integers(0, 30)))
    def kill(self, crash_at: int | None) -> None:
        """Whatever was shown stays. In the next life the power fails at `crash_at`."""
        self.crash(lambda disk, _: disk.after_kill(crash_at=crash_at), [self.model])

    @rule(seed=st.integers(0, 1 << 16), crash_at=st.one_of(st.none(), st.integers(0, 30)))
    def cut_the_power(self, seed: int, crash_at: int | None) -> None:
        self.crash(
            lambda disk, seed: disk.after_power_loss(seed, crash_at=crash_at), self.may_be, seed
        )

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def engine_and_model_agree(self) -> None:
        if not hasattr(self, "engine"):
            return
        wrong = [*differences(self.engine, self.model, self.ids, dropped=self.dropped)]
        assert not wrong, "\n".join(wrong)

    @invariant()
    def retention_never_takes_back(self) -> None:
        """And with keep_unread it takes nothing that the group has not acked."""
        if not hasattr(self, "engine"):
            return
        for info in self.engine.queues():
            place = info.topic, info.queue
            assert info.first >= self.firsts.get(place, 0)
            self.firsts[place] = info.first

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            if self.follower is not None:
                self.follower.close()
            self.close_the_dead(self.engine)


def test_an_engine_agrees_with_a_model_after_any_calls_and_crashes() -> None:
    """Method: see the docstring of the module. `FMQ_BUDGET=10 FMQ_SEED=3` tries more and others."""
    machine = seed(SEED)(EngineMachine) if SEED_IS_GIVEN else EngineMachine
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=within_budget(40),
            stateful_step_count=40,
            deadline=None,
            derandomize=not SEED_IS_GIVEN,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- what it found, one rule each -----------------------------------------------------------


def test_close_makes_everything_durable_with_sync_never() -> None:
    """A clean close promises that nothing is in doubt, so it syncs in every mode."""
    disk = CrashDisk()
    with fmq.open("data", fmq.Options(sync="never"), disk=disk) as engine:
        engine.send("one", b"body")
    with fmq.open("data", disk=disk.after(Loss())) as engine:
        assert [message.body for message in engine.read("one")] == [b"body"]
        assert engine.stats().recovery.clean


def test_without_a_thread_a_call_runs_the_chores_at_its_end() -> None:
    """With sync="interval" the call must sync by itself."""
    options = fmq.Options(sync="interval")
    with fmq.open("data", options, disk=CrashDisk(), background=False) as engine:
        with engine.transaction() as tx:
            tx.send("one", b"body")
        assert [message.body for message in engine.read("one")] == [b"body"]


def test_a_reader_continues_in_a_segment_that_it_found_empty() -> None:
    """It does not look for the segment before again, as it has applied all of that.

    Method: it refreshes after each send, and retention drops what it has read.
    """
    disk = CrashDisk()
    options = fmq.Options(segment_bytes=2048, retain_bytes=4096)
    with (
        fmq.open("data", options, disk=disk, clock=FakeClock(), background=False) as engine,
        fmq.open("data", options, read_only=True, disk=disk) as reader,
    ):
        for _ in range(50):
            engine.send("one", bytes(150))
            reader.refresh()
            assert reader.damage is None

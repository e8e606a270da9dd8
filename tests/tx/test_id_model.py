"""The window of message ids against a model: dicts of what was sent, and of who holds an id.

Rules send under few ids, alone, in batches and in transactions, let time pass, delete topics, fill
the journal so that retention drops segments, and open the directory again. An id within number and
age must give the receipt of its first message. One beyond the age must be free. One beyond the
number may be either, and the model learns which.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import fmq
from fmq import Message
from fmq.basics.message import Decision, Receipt
from fmq.errors import MessageIdUndecided, TopicInUse
from fmq.testing import CrashDisk, FakeClock
from tests.budget import within_budget

KEPT, SECONDS = 8, 100
OPTIONS = fmq.Options(
    segment_bytes=4096,
    checkpoint_bytes=4096,
    retain_bytes=12288,
    message_ids_kept=KEPT,
    message_id_seconds=SECONDS,
    reference_bytes_min=200,
)
topics = st.sampled_from(["a", "b"])
ids = st.sampled_from("pqrstuvwxyz")
sizes = st.sampled_from([5, 300])


class First(NamedTuple):
    """The message that has taken an id, when, and how many ids had been taken before."""

    place: tuple[str, int]
    time: float
    rank: int


class IdModel(RuleBasedStateMachine):
    """One engine, and what its users know."""

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.now, self.rank, self.numbers = 0.0, 0, 0
        self.ends: dict[str, int] = {}
        self.first: dict[tuple[str, str], First] = {}
        self.held: dict[str, list[tuple[str, str]]] = {}
        self.engine = self.opened()

    def opened(self) -> fmq.Engine:
        return fmq.open("data", OPTIONS, disk=self.disk, clock=self.clock, background=False)

    def teardown(self) -> None:
        self.engine.close()
        report = fmq.check("data", disk=self.disk)
        assert report.ok, [str(problem) for problem in report.problems]

    # --- what is expected ---------------------------------------------------------------------

    def holder(self, key: tuple[str, str]) -> str | None:
        return next((tx_id for tx_id, keys in self.held.items() if key in keys), None)

    def fate(self, key: tuple[str, str]) -> str:
        """Return whether an id is known, free, or either."""
        first = self.first.get(key)
        if first is None or self.now - first.time > SECONDS:
            return "free"
        return "known" if first.rank >= self.rank - KEPT else "either"

    def take(self, key: tuple[str, str], place: tuple[str, int]) -> None:
        self.first[key] = First(place, self.now, self.rank)
        self.rank += 1

    def published(self, keys: list[tuple[str, str]], receipts: list[Receipt]) -> None:
        """Compare the receipts of messages, and note what they have taken."""
        places = {
            (each.topic, each.offset + number) for each in receipts for number in range(each.count)
        }
        new = {place for place in places if place[1] >= self.ends.get(place[0], 0)}
        for topic, message_id in keys:
            key, end = (topic, message_id), self.ends.get(topic, 0)
            first = self.first.get(key)
            fate = self.fate(key)
            if fate == "known" or (
                fate == "either" and first is not None and first.place in places
            ):
                assert first is not None
                assert first.place in places, f"{key} was sent as {first.place}, not {places}"
                continue
            assert (topic, end) in new, f"{key} is free, and was not sent"
            new.remove((topic, end))
            self.take(key, (topic, end))
            self.ends[topic] = end + 1
        assert not new, f"{new} were sent besides"

    # --- rules --------------------------------------------------------------------------------

    @rule(topic=topics, message_id=ids, size=sizes)
    def send(self, topic: str, message_id: str, size: int) -> None:
        key = topic, message_id
        holder = self.holder(key)
        if holder is not None:
            with pytest.raises(MessageIdUndecided, match=holder):
                self.engine.send(topic, bytes(size), message_id=message_id)
            return
        self.published([key], [self.engine.send(topic, bytes(size), message_id=message_id)])

    @rule(topic=topics, named=st.lists(ids, min_size=1, max_size=5), one_phase=st.booleans())
    def send_several(self, topic: str, named: list[str], one_phase: bool) -> None:
        keys = [(topic, each) for each in named]
        if any(map(self.holder, keys)):
            return
        messages = [Message(b"x", message_id=each) for each in named]
        if one_phase:
            tx = self.engine.transaction()
            tx.send_many(topic, messages)
            receipts = tx.commit()
        else:
            receipts = self.engine.send_many(topic, messages)
        self.published(keys, receipts)

    @rule(topic=topics, named=st.lists(ids, min_size=1, max_size=3, unique=True), size=sizes)
    def prepare(self, topic: str, named: list[str], size: int) -> None:
        keys = [(topic, each) for each in named]
        if any(map(self.holder, keys)) or any(self.fate(key) != "free" for key in keys):
            return
        self.numbers += 1
        tx_id = f"T{self.numbers}"
        tx = self.engine.transaction(tx_id=tx_id)
        tx.send_many(topic, [Message(bytes(size), message_id=each) for each in named])
        tx.prepare()
        self.held[tx_id] = keys

    @precondition(lambda self: self.held)
    @rule(data=st.data(), commits=st.booleans())
    def decide(self, data: st.DataObject, commits: bool) -> None:
        tx_id = data.draw(st.sampled_from(sorted(self.held)))
        decision: Decision = "commit" if commits else "rollback"
        outcome = self.engine.decide(tx_id, decision)
        keys = self.held.pop(tx_id)
        if commits:
            for key in keys:
                self.first.pop(key, None)
            self.published(keys, list(outcome.receipts))

    @rule(seconds=st.sampled_from([1, 40, 101]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.now += seconds

    @rule(topic=topics)
    def fill(self, topic: str) -> None:
        """Send what has no id: more than a segment."""
        receipts = self.engine.send_many(topic, [bytes(900)] * 3)
        receipts += self.engine.send_many(topic, [bytes(900)] * 3)
        self.ends[topic] = receipts[-1].offset + receipts[-1].count

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        if topic not in {queue.topic for queue in self.engine.queues()}:
            return
        try:
            self.engine.topic(topic).delete()
        except TopicInUse:
            return
        self.ends.pop(topic, None)
        for key in [key for key in self.first if key[0] == topic]:
            del self.first[key]

    @rule(killed=st.booleans())
    def open_again(self, killed: bool) -> None:
        before, self.disk = self.disk, self.disk.after_kill()
        self.engine.close()
        if not killed:
            self.disk = before
        self.engine = self.opened()

    @invariant()
    def all_was_sent_that_should_be(self) -> None:
        ends = {queue.topic: queue.next for queue in self.engine.queues() if queue.next}
        assert ends == {topic: end for topic, end in self.ends.items() if end}


IdModel.TestCase.settings = settings(
    max_examples=within_budget(25), stateful_step_count=40, deadline=None
)
TestIdModel: Any = IdModel.TestCase

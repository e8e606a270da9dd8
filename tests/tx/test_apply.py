"""What may not stand in a journal although its bytes are sound: every refusal of `apply`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fmq.store.bytes.kinds import (
    AckRange,
    Acks,
    Carryover,
    Decided,
    Kind,
    Prepare,
    Record,
    Run,
    TopicMade,
)
from fmq.tx.ledger.apply import apply
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.seal import seal_of
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.ledger.transitions import show
from tests.store.samples import run_of


class Steps:
    """A ledger with the topic `t` of two queues, and a journal that exists only as positions."""

    def __init__(self) -> None:
        self.ledger = Ledger(0)
        self.position = 64
        self.apply(TopicMade("t", 2, 1))

    def place(self, *records: Record) -> list[Record]:
        for record in records:
            record.position, record.size = self.position, 96
            self.position += 96
        return list(records)

    def apply(self, *records: Record) -> None:
        apply(self.ledger, self.place(*records), self.position)
        show(self.ledger, self.ledger.end)

    def refuses(self, *records: Record, match: str) -> None:
        """The append is refused, and with it nothing has become visible or undecided."""
        before = self.seen()
        with pytest.raises(IllegalStep, match=match):
            self.apply(*records)
        assert self.seen() == before

    def seen(self) -> object:
        ledger = self.ledger
        visible = [(queue.first, queue.next) for queue in ledger.topics["t"].queues]
        return visible, dict(ledger.undecided), ledger.shown_to, dict(ledger.acked)

    def prepare(self, tx_id: str = "T", runs: int = 1, **changed: Any) -> list[Record]:
        """The append that seals a transaction of `runs` runs of two messages each."""
        tx = self.position
        pre = [run(Kind.PRE_MESSAGE, tx, number % 2) for number in range(runs)]
        prepare = Prepare(tx_id, "p", 1, runs, 2 * runs, 20, seal_of(pre), tx=tx)
        for name, value in changed.items():
            setattr(prepare, name, value)
        return [prepare, *pre]

    def undecided(self, tx_id: str = "T", runs: int = 1) -> Prepare:
        records = self.prepare(tx_id, runs)
        self.apply(*records)
        assert isinstance(records[0], Prepare)
        return records[0]


def run(kind: Kind, tx: int, queue: int = 0, offset: int = 0, topic: str = "t") -> Run:
    return run_of(kind, topic, queue, offset, 2, 1, tx, "T", "p")


def decided(kind: Kind, prepare: Prepare, **changed: Any) -> Decided:
    committed = kind == Kind.COMMIT
    counts = (prepare.records, prepare.messages) if committed else (0, 0)
    record = Decided(kind, prepare.tx, prepare.tx_id, "p", 1, 1, *counts, 20, prepare.seal)
    for name, value in changed.items():
        setattr(record, name, value)
    return record


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_prepared_messages_are_published_only_by_their_commit(steps: Steps) -> None:
    prepare = steps.undecided()
    assert steps.ledger.topics["t"].queues[0].next == 0
    steps.apply(run(Kind.TX_MESSAGE, prepare.tx), decided(Kind.COMMIT, prepare))
    assert steps.ledger.topics["t"].queues[0].next == 2
    assert not steps.ledger.undecided


def one_phase(steps: Steps, **changed: Any) -> list[Record]:
    """TX_MESSAGE and COMMIT of a transaction without a PREPARE."""
    tx = steps.position
    sent = run(Kind.TX_MESSAGE, tx)
    record = Decided(Kind.COMMIT, tx, "T", "p", 1, 1, 1, 2, 20, seal_of([sent]))
    for name, value in changed.items():
        setattr(record, name, value)
    return [sent, record]


def test_a_transaction_in_one_phase_begins_with_its_first_record(steps: Steps) -> None:
    steps.apply(*one_phase(steps))
    assert steps.ledger.topics["t"].queues[0].next == 2
    sent, commit = one_phase(steps)
    steps.position += 96
    steps.refuses(sent, commit, match="TX_MESSAGE cannot follow absent")


def test_a_one_phase_commit_that_does_not_fit_its_messages_is_refused(steps: Steps) -> None:
    steps.refuses(*one_phase(steps, seal=bytes(16)), match="seal")
    steps.refuses(*one_phase(steps, messages=3), match="does not publish")
    steps.refuses(*one_phase(steps, tx=7), match="two transactions")


def test_a_one_phase_commit_of_an_undecided_id_is_refused(steps: Steps) -> None:
    steps.undecided("T")
    steps.refuses(*one_phase(steps), match="undecided 'T'")


def test_references_without_their_commit_publish_nothing(steps: Steps) -> None:
    prepare = steps.undecided()
    steps.apply(run(Kind.REF_MESSAGE, prepare.tx))
    assert steps.ledger.topics["t"].queues[0].next == 0
    assert list(steps.ledger.undecided) == [prepare.tx]


def test_a_message_of_a_topic_that_was_never_made_is_refused(steps: Steps) -> None:
    steps.refuses(run(Kind.MESSAGE, 0, topic="other"), match="never made")


def test_a_message_of_a_queue_that_the_topic_does_not_have_is_refused(steps: Steps) -> None:
    steps.refuses(run(Kind.MESSAGE, 0, queue=2), match="never made")


@pytest.mark.parametrize("offset", [1, 3, 1 << 40])
def test_a_gap_or_a_step_back_in_a_queue_is_refused(steps: Steps, offset: int) -> None:
    steps.apply(run(Kind.MESSAGE, 0))
    steps.refuses(run(Kind.MESSAGE, 0, offset=offset), match=f"continues at offset {offset}, not 2")


def test_a_topic_made_twice_is_refused(steps: Steps) -> None:
    steps.refuses(TopicMade("t", 2, 1), match="a second time")


def test_a_pre_message_without_its_prepare_is_refused(steps: Steps) -> None:
    prepare = steps.undecided()
    steps.refuses(run(Kind.PRE_MESSAGE, prepare.tx), match="outside of its PREPARE")


@pytest.mark.parametrize("kind", [Kind.PRE_MESSAGE, Kind.TX_MESSAGE, Kind.REF_MESSAGE])
def test_a_message_of_an_unknown_transaction_is_refused(steps: Steps, kind: Kind) -> None:
    steps.refuses(run(kind, 4000), match="cannot follow absent")


@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.ROLLBACK])
def test_a_decision_of_an_unknown_transaction_is_refused(steps: Steps, kind: Kind) -> None:
    prepare = Prepare("T", "p", 1, 0, 0, 0, seal_of([]), tx=4000)
    steps.refuses(decided(kind, prepare), match="cannot follow absent")


@pytest.mark.parametrize("second", [Kind.COMMIT, Kind.ROLLBACK])
@pytest.mark.parametrize("first", [Kind.COMMIT, Kind.ROLLBACK])
def test_a_second_decision_is_refused(steps: Steps, first: Kind, second: Kind) -> None:
    prepare = steps.undecided(runs=0)
    steps.apply(decided(first, prepare))
    steps.refuses(decided(second, prepare), match="cannot follow absent")


def test_a_rollback_after_references_in_one_append_is_refused(steps: Steps) -> None:
    prepare = steps.undecided()
    publish = run(Kind.REF_MESSAGE, prepare.tx)
    steps.refuses(publish, decided(Kind.ROLLBACK, prepare), match="cannot follow committing")


def test_an_append_about_two_transactions_is_refused(steps: Steps) -> None:
    one, other = steps.undecided("A"), steps.undecided("B")
    steps.refuses(run(Kind.TX_MESSAGE, one.tx), decided(Kind.COMMIT, other), match="two transac")


def test_a_commit_that_publishes_less_than_was_prepared_is_refused(steps: Steps) -> None:
    prepare = steps.undecided(runs=2)
    publish = run(Kind.TX_MESSAGE, prepare.tx)
    steps.refuses(publish, decided(Kind.COMMIT, prepare), match="does not publish what was")


def test_a_commit_that_states_other_counts_than_its_prepare_is_refused(steps: Steps) -> None:
    """The COMMIT agrees with its own append, but not with what was sealed."""
    prepare = steps.undecided(runs=2)
    half = decided(Kind.COMMIT, prepare, records=1, messages=2)
    steps.refuses(run(Kind.TX_MESSAGE, prepare.tx), half, match="what its PREPARE stated")


@pytest.mark.parametrize("end", [2, 4])
def test_a_commit_with_other_acks_than_its_prepare_is_refused(steps: Steps, end: int) -> None:
    records = steps.prepare(runs=0, acks=(AckRange("g", "t", 0, 0, 3),))
    steps.apply(*records)
    prepare = records[0]
    assert isinstance(prepare, Prepare)
    acks = Acks([AckRange("g", "t", 0, 0, end)], 1, prepare.tx)
    steps.refuses(acks, decided(Kind.COMMIT, prepare), match="what its PREPARE stated")
    steps.refuses(decided(Kind.COMMIT, prepare), match="what its PREPARE stated")


@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.ROLLBACK])
@pytest.mark.parametrize("changed", [{"seal": bytes(16)}, {"tx_id": "other"}])
def test_a_decision_that_names_another_seal_or_id_is_refused(
    steps: Steps, kind: Kind, changed: dict[str, Any]
) -> None:
    prepare = steps.undecided(runs=0)
    steps.refuses(decided(kind, prepare, **changed), match="does not fit its PREPARE")


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"records": 2}, "were stated"),
    ({"messages": 3}, "were stated"),
    ({"seal": bytes(16)}, "seal does not match"),
    ({"tx": 8}, "with the number 8|cannot follow|two transactions"),
]


@pytest.mark.parametrize(("changed", "match"), CHANGES)
def test_a_prepare_that_does_not_fit_its_messages_is_refused(
    steps: Steps, changed: dict[str, Any], match: str
) -> None:
    steps.refuses(*steps.prepare(**changed), match=match)


def test_a_prepare_without_all_its_pre_messages_is_refused(steps: Steps) -> None:
    steps.refuses(*steps.prepare(runs=2)[:-1], match="2 messages prepared where 4 were stated")


def test_a_second_prepare_of_an_undecided_id_is_refused(steps: Steps) -> None:
    steps.undecided("T")
    steps.refuses(*steps.prepare("T"), match="second PREPARE")


def test_an_id_may_be_prepared_again_once_it_is_decided(steps: Steps) -> None:
    """The journal allows it. The manager keeps ids from being reused within the window."""
    steps.apply(decided(Kind.ROLLBACK, steps.undecided("T")))
    steps.undecided("T")


def test_a_relocation_replaces_the_old_transaction(steps: Steps) -> None:
    old = steps.undecided()
    again = steps.prepare(tx=old.tx, replaces=old.position)
    for record in again[1:]:
        record.tx = old.tx  # type: ignore[union-attr]
    steps.apply(*again)
    (entry,) = steps.ledger.undecided.values()
    assert (entry.tx, entry.prepare.position) == (old.tx, again[0].position)


def test_a_relocation_of_no_undecided_transaction_is_refused(steps: Steps) -> None:
    steps.refuses(*steps.prepare(replaces=64), match="not undecided")


def test_a_relocation_must_name_the_newest_position(steps: Steps) -> None:
    old = steps.undecided()
    again = steps.prepare(tx=old.tx, replaces=8)
    for record in again[1:]:
        record.tx = old.tx  # type: ignore[union-attr]
    steps.refuses(*again, match="not the newest")


def test_an_ack_that_ends_before_it_begins_is_refused(steps: Steps) -> None:
    steps.refuses(Acks([AckRange("g", "t", 0, 3, 2)], 1), match="an ack from 3 to 2")


def test_a_state_that_contradicts_the_records_before_it_is_refused(steps: Steps) -> None:
    steps.apply(run(Kind.MESSAGE, 0))
    carried = {"floor": 0, "last_us": 0, "topics": {"t": [[0, 9], [0, 0]]}, "acks": []}
    steps.refuses(Carryover(json.dumps(carried).encode(), 1), match="ends at 9, not 2")


def test_a_decision_without_a_prepare_is_allowed_below_the_floor(steps: Steps) -> None:
    """The PREPARE was dropped after it had been relocated or decided."""
    steps.ledger.known_from = 5000
    prepare = Prepare("T", "p", 1, 1, 2, 0, seal_of([]), tx=64)
    steps.apply(run(Kind.TX_MESSAGE, 64), decided(Kind.COMMIT, prepare))
    assert steps.ledger.topics["t"].queues[0].next == 2


APPENDS: list[Callable[[Steps], list[Record]]] = [
    lambda steps: [run(Kind.MESSAGE, 0)],
    lambda steps: steps.prepare(runs=2),
    lambda steps: [Acks([AckRange("g", "t", 0, 0, 0)], 1)],
]


@pytest.mark.parametrize("append", APPENDS)
def test_applying_an_append_moves_the_applied_position_to_its_end(
    steps: Steps, append: Callable[[Steps], list[Record]]
) -> None:
    steps.apply(*append(steps))
    assert steps.ledger.shown_to == steps.ledger.index.end == steps.position

"""The frontier gives out each offset once, whatever is planned and becomes durable in between."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from fmq.store.kinds import MESSAGE, PRE_MESSAGE, TX_MESSAGE, Decided, Kind, Prepare, Run, TopicMade
from fmq.tx.frontier import Frontier
from fmq.tx.ledger import Entry, Ledger

QUEUES = 2
ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "prepare", "commit"]), st.integers(0, QUEUES - 1)),
        st.tuples(st.just("durable"), st.just(0)),
    ),
    max_size=40,
)


def run(kind: Kind, queue: int, count: int) -> Run:
    return Run(kind, "t", queue, 0, count, 0, 0, "", "")


@given(ACTS, st.integers(1, 3))
def test_offsets_have_no_gaps_in_the_order_of_plans(
    acts: list[tuple[str, int]], count: int
) -> None:
    """Plan a send, a prepare or a commit, or let the oldest plan become durable."""
    ledger = Ledger(0)
    frontier = Frontier(ledger)
    ledger.topic("t", QUEUES)
    ends = [0] * QUEUES
    planned: deque[list[Run | Prepare]] = deque()
    for number, (act, queue) in enumerate(acts):
        if act == "prepare":
            prepare = Prepare(f"T{number}", "", 0, 1, count, 0, b"")
            frontier.add_prepare(prepare)
            planned.append([prepare, run(PRE_MESSAGE, queue, count)])
        elif act == "durable" and planned:
            append = planned.popleft()
            for record in append:
                if isinstance(record, Run) and record.kind != PRE_MESSAGE:
                    ledger.topics["t"].queues[record.queue].next = record.offset + record.count
            frontier.settle(append)
        elif act != "durable":
            planned.append([one := run(MESSAGE if act == "send" else TX_MESSAGE, queue, count)])
            frontier.give_offsets(one)
            assert one.offset == ends[queue]
            ends[queue] += count
        assert [frontier.next_offset("t", each) for each in range(QUEUES)] == ends


def test_an_id_is_in_use_until_its_transaction_is_in_the_ledger() -> None:
    ledger = Ledger(0)
    frontier = Frontier(ledger)
    prepare = Prepare("T", "", 0, 0, 0, 0, b"")
    frontier.add_prepare(prepare)
    frontier.add_commit("U")
    assert (frontier.has_id("T"), frontier.is_preparing("T")) == (True, True)
    assert (frontier.has_id("U"), frontier.is_preparing("U")) == (True, False)
    assert [*frontier.preparing()] == [prepare]
    frontier.settle([prepare])
    frontier.settle([Decided(Kind.COMMIT, 8, "U", "", 0, 0, 0, 0, 0, b"")])
    assert not frontier.has_id("T")
    assert not frontier.has_id("U")


def test_a_planned_decision_differs_from_a_planned_relocation() -> None:
    frontier = Frontier(Ledger(0))
    entries = []
    for tx in (8, 16):
        prepare = Prepare(f"T{tx}", "", 0, 0, 0, 0, b"", tx=tx, replaces=tx)
        entries.append(Entry(prepare))
        frontier.add_ending(entries[-1], decides=tx == 8)
    assert [frontier.is_ending(entry) for entry in entries] == [True, True]
    assert [frontier.is_deciding(entry) for entry in entries] == [True, False]
    frontier.settle([Decided(Kind.ROLLBACK, 8, "T8", "", 0, 0, 0, 0, 0, b"")])
    frontier.settle([entries[1].prepare])
    assert not any(frontier.is_ending(entry) for entry in entries)


def test_a_new_topic_exists_before_it_is_durable() -> None:
    ledger = Ledger(0)
    frontier = Frontier(ledger)
    made = TopicMade("t", 1, 0)
    frontier.add_topics([made])
    assert frontier.has_topic("t")
    assert frontier.next_offset("t", 0) == 0
    frontier.settle([made])
    assert not frontier.has_topic("t")  # the ledger, which applies the record, has it

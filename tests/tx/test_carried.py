"""What `apply` takes, `check_carried` takes as well. Otherwise an engine could write a record, and
then never a checkpoint again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from struct import error as StructError
from typing import Any

import pytest

from fmq import TopicCodec
from fmq.errors import IllegalRecord
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.encoding import encode_all, size_of
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.bytes.internal import dead_topic
from fmq.store.bytes.kinds import (
    AckRange,
    Acks,
    Append,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    Erasure,
    Hole,
    IdsKept,
    Joint,
    Kind,
    MarkChange,
    Marks,
    Prepare,
    QueuePlace,
    Run,
    TopicMade,
    Tried,
    TriedRange,
)
from fmq.store.bytes.timing import Timing, with_timing
from fmq.store.index.id_table import table_of
from fmq.tx.ledger.apply import apply
from fmq.tx.ledger.carryover import carried_of, check_carried, from_json, to_json
from fmq.tx.ledger.dead_letters import REPLAYED
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.seal import seal_of
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.said.codec_met import codec_text
from fmq.tx.said.limit_met import LimitMet
from fmq.tx.said.schedule_met import ScheduleMet
from tests.store.samples import run_at, run_of

BASE = 4096
DUE_US = 1_000
SCHEDULED = ScheduleMet("n", "a", "* * * * *", "UTC", "once", b"", None, None, {}, "ann").text()
Make = Callable[[Ledger], Append]
"""Makes an append that the ledger takes. All of its numbers but those of places are given."""

CODEC = TopicCodec("json", 2, {"id": "integer"})


def run(kind: Kind, topic: str = "a", offset: int = 0, tx: int = 0) -> Run:
    made = run_at(encode_one(b"x", None), kind, topic, 0, offset)
    made.tx, made.tx_id = tx, "U" if tx else ""
    return made


def timer() -> Run:
    made = run(Kind.TIMER)
    made.extension = with_timing(b"", Timing(DUE_US))
    return made


def prepared(ledger: Ledger, tx_id: str = "T") -> Append:
    pre = run(Kind.PRE_MESSAGE, tx=ledger.end)
    return [Prepare(tx_id, "", 1, 1, 1, 1, seal_of([pre]), tx=ledger.end), pre]


def one_phase(ledger: Ledger, *records: Any) -> Append:
    runs = [each for each in records if type(each) is Run]
    for each in records:
        each.tx = ledger.end
    counts = len(runs), len(runs), len(runs)
    return [*records, Decided(Kind.COMMIT, ledger.end, "T", "", 0, 0, *counts, seal_of(runs))]


def decision(ledger: Ledger, kind: Kind) -> Append:
    """Return the decision of the transaction that `fill` has prepared."""
    (entry,) = ledger.undecided.values()
    decided = Decided(kind, entry.tx, "U", "", 0, 0, 1, 1, 1, entry.prepare.seal)
    if kind == Kind.ROLLBACK:
        return [decided]
    place = "a", 0, 1, 1, 0, entry.tx, "U", "", entry.runs[0].position
    return [run_of(Kind.REF_MESSAGE, *place), decided]


def change(
    asked: ChangeKind, group: str, topic: str, places: Any = (), value: int = 0, text: str = ""
) -> Changed:
    return Changed(asked, group, topic, [QueuePlace(*each) for each in places], value, text)


def fill(ledger: Ledger) -> None:
    """Let the ledger have a topic with a message and a timer, a group with a dead letter, a pause
    and a limit, and an undecided transaction.
    """
    for append in (
        [TopicMade("a", 2, 0)],
        [run(Kind.MESSAGE)],
        [timer()],
        [change(ChangeKind.MAKE_GROUP, "g", "a")],
        [change(ChangeKind.BEGIN_DEAD, "g", "")],
        [TopicMade(dead_topic("g"), 1, 0)],
        [run(Kind.MESSAGE, dead_topic("g"))],
        [change(ChangeKind.PAUSE, "", "a", text="ann\n")],
        [change(ChangeKind.LIMIT, "g", "", text=LimitMet(3, 0.5, fair=True).text())],
        [change(ChangeKind.CODEC, "", "a", text=codec_text(CODEC))],
        [change(ChangeKind.SCHEDULE, "", "a", value=5, text=SCHEDULED)],
    ):
        assert taken(ledger, append)
    assert taken(ledger, prepared(ledger, "U"))


GOOD: dict[Kind, Make] = {
    Kind.MESSAGE: lambda _: [run(Kind.MESSAGE, offset=1)],
    Kind.PREPARE: prepared,
    Kind.PRE_MESSAGE: prepared,
    Kind.REF_MESSAGE: partial(decision, kind=Kind.COMMIT),
    Kind.TX_MESSAGE: lambda ledger: one_phase(ledger, run(Kind.TX_MESSAGE, offset=1)),
    Kind.COMMIT: one_phase,
    Kind.ROLLBACK: partial(decision, kind=Kind.ROLLBACK),
    Kind.ACK: lambda _: [Acks([AckRange("g", "a", 0, 0, 1)], 0)],
    Kind.STATE: lambda ledger: [Carryover(to_json(carried_of(ledger)), 0)],
    Kind.TOPIC: lambda _: [TopicMade("b", 1, 0)],
    Kind.MARK: lambda ledger: one_phase(ledger, Marks([MarkChange("m", 1, b"x")], 0)),
    Kind.TRIED: lambda _: [Tried([TriedRange("g", "a", 0, 0, 1, 1)])],
    Kind.TIMER: lambda _: [timer()],
    Kind.IDS: lambda _: [IdsKept(table_of(0, []).encode(), 0)],
    Kind.HOLE: lambda _: [Hole(b"", 0)],
    Kind.JOINT: lambda ledger: [
        Joint(Kind.COMMIT, [MarkChange("m", 1, b"x")], [*ledger.undecided])
    ],
    Kind.ERASE: lambda _: [Erasure(1, [AckRange("", "a", 0, 0, 1)], [BASE], 0)],
}


def timers_in(ledger: Ledger) -> list[tuple[int, int]]:
    return [(0, due.number) for due in ledger.timers.after(bytes(16), 9)]


GOOD_CHANGES: dict[ChangeKind, Callable[[Ledger, ChangeKind], Changed]] = {
    ChangeKind.MAKE_GROUP: lambda _, asked: change(asked, "h", "a", [(0, 1)]),
    ChangeKind.SEEK: lambda _, asked: change(asked, "g", "a", [(0, 1)]),
    ChangeKind.SKIP: lambda _, asked: change(asked, "g", "a", [(0, 0)], 1),
    ChangeKind.FILTER: lambda _, asked: change(asked, "g", "a"),
    ChangeKind.DELETE_GROUP: lambda _, asked: change(asked, "g", ""),
    ChangeKind.ADD_QUEUES: lambda _, asked: change(asked, "", "a", (), 3),
    ChangeKind.RETAIN: lambda _, asked: change(asked, "", "a", (), 5),
    ChangeKind.TRIM: lambda _, asked: change(asked, "", "a", [(0, 1)]),
    ChangeKind.DELETE_TOPIC: lambda _, asked: change(asked, "", "a"),
    ChangeKind.BEGIN_DEAD: lambda _, asked: change(asked, "h", ""),
    ChangeKind.END_DEAD: lambda _, asked: change(
        asked, "g", "a", [(0, 0), (0, 1), (0, 0)], REPLAYED
    ),
    ChangeKind.FIRE: lambda ledger, asked: change(asked, "", "", timers_in(ledger)),
    ChangeKind.RECALL: lambda ledger, asked: change(asked, "", "", timers_in(ledger), DUE_US),
    ChangeKind.PAUSE: lambda _, asked: change(asked, "g", "", text="ann\nwhy"),
    ChangeKind.RESUME: lambda _, asked: change(asked, "", "a"),
    ChangeKind.CONFIGURE: lambda _, asked: change(
        asked, "", "", text='{"set":{"queues":2},"reset":["x"]}'
    ),
    ChangeKind.CODEC: lambda _, asked: change(asked, "", "a", text=codec_text(CODEC)),
    ChangeKind.LIMIT: lambda _, asked: change(asked, "g", "", text=LimitMet(3, 0.5).text()),
    ChangeKind.SCHEDULE: lambda _, asked: change(asked, "", "a", value=9, text=SCHEDULED),
    ChangeKind.DUE: lambda _, asked: change(asked, "", "a", value=9, text='{"name":"n","due":5}'),
    ChangeKind.UNSCHEDULE: lambda _, asked: change(asked, "", "a", text='{"name":"n"}'),
}


def make_change(ledger: Ledger, asked: ChangeKind) -> Append:
    made = GOOD_CHANGES[asked](ledger, asked)
    made.time_us = 2 * DUE_US
    return [made]


ALL: dict[str, Make] = {kind.name: make for kind, make in GOOD.items()} | {
    f"CHANGE {asked.name}": partial(make_change, asked=asked) for asked in GOOD_CHANGES
}

# --- what a field may hold -----------------------------------------------------------------------

APART = {
    "position",
    "size",
    "flags",
    "tail",
    "columns",
    "bodies",
    "id_keys",
    "target",
    "kind",
    "asked",
}
NUMBERS = (0, -1, 4096, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = ("", "zz", '{"set":{"":1},"reset":[]}')


def others(value: Any) -> Iterator[Any]:
    """Yield values at the edges of what a field may hold that has this value now."""
    if isinstance(value, str):
        yield from TEXTS
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from NUMBERS
    elif isinstance(value, AckRange):
        for key in others_of_parts(value.key()):
            yield AckRange(*key)
    elif isinstance(value, QueuePlace | TriedRange | MarkChange | Request):
        for parts in others_of_parts(value):
            yield type(value)(*parts)
    elif isinstance(value, list | tuple):
        yield from ([], *others_of_parts(value))


def others_of_parts(parts: Any) -> Iterator[list[Any]]:
    for i, each in enumerate(parts):
        for other in others(each):
            yield [*parts[:i], other, *parts[i + 1 :]]


def fields_of(record: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name of each field of a record with its other values. The extension gets requests
    of clients.
    """
    for name in sorted({*type(record).__slots__} - APART):
        yield name, [*others(getattr(record, name))]
    requests = []
    for request in others(Request(bytes(16), 1, 0)):
        with suppress(StructError):
            requests.append(extension_of(request, record.extension))
    yield "extension", requests


def changed_ones(make: Make, ledger: Ledger) -> Iterator[tuple[str, Callable[[Ledger], Append]]]:
    """Yield `make`, and once more for each other value of each field of its records, with what it
    changes.
    """
    example = make(ledger)
    yield "as it is", make
    for number, record in enumerate(example):
        for name, values in fields_of(record):
            for value in values:

                def change_one(ledger: Ledger, number=number, name=name, value=value) -> Append:
                    append = make(ledger)
                    setattr(append[number], name, value)
                    return append

                yield f"{name} of {Kind(record.kind).name} is {value!r}", change_one


def taken(ledger: Ledger, append: Append) -> bool | None:
    """Place an append, encode it and apply it. Return whether that was allowed; None if it was not,
    and the ledger has changed.
    """
    try:
        for record in append:
            record.size = size_of(record)
        *_, end = encode_all(append, ledger.end, append[-1].time_us, BASE, 0, 0)
    except (IllegalRecord, StructError, OverflowError):
        return False
    try:
        apply(ledger, append, end)
    except IllegalStep as error:
        return False if error.is_first else None
    except (StructError, OverflowError):
        return None
    return True


def live() -> Ledger:
    ledger = replayed()
    ledger.all_is_shown()
    return ledger


def replayed() -> Ledger:
    ledger = Ledger(BASE)
    fill(ledger)
    return ledger


def unsettled() -> Ledger:
    """A replay of a journal whose first segments were dropped. It takes records about what it does
    not know, until a STATE says what there is.
    """
    ledger = replayed()
    ledger.unsettled = True
    ledger.known_from = ledger.timers.known_from = 1 << 62
    for topic in ledger.topics.values():
        for queue in topic.queues:
            queue.is_placed = False
    return ledger


# --- the rule ------------------------------------------------------------------------------------


def test_each_kind_and_each_change_has_a_good_record_in_the_test() -> None:
    """A kind of record that is added needs an example here that the ledger takes."""
    assert GOOD.keys() | {Kind.CHANGE} == set(Kind)
    assert GOOD_CHANGES.keys() == set(ChangeKind)


@pytest.mark.parametrize("ledger_of", [live, replayed, unsettled], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", ALL)
def test_every_record_that_apply_accepts_leads_to_a_valid_carryover(
    name: str, ledger_of: Callable[[], Ledger]
) -> None:
    """Each field of each kind has values at its edges. Those that `apply` refuses do not count."""
    ledger = ledger_of()
    state = to_json(carried_of(ledger))
    for how, make in changed_ones(ALL[name], ledger):
        is_taken = taken(ledger, make(ledger))
        if how == "as it is":
            assert is_taken or (name == "HOLE" and ledger.is_live)
        if is_taken and (not ledger.unsettled or taken(ledger, [Carryover(state, 0)])):
            try:
                check_carried(from_json(to_json(carried_of(ledger))))
            except ValueError as error:
                pytest.fail(f"apply takes what check_carried refuses: {error}, as {how}")
        if is_taken is not False:
            ledger = ledger_of()

"""What is planned and not yet durable: no look shows it, and none takes it for damage.

An engine syncs only when it is told to. Something of every sort is planned in it: every kind of
record, and every sort of CHANGE. Then every look of the interface is asked, through every face. It
shows what was durable before, or it waits until what it shows is durable, so that a power cut takes
nothing back that somebody has seen. Only messages that are being deleted are gone at once.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq import TopicCodec
from fmq.errors import Damaged, EngineFailed, FmqError
from fmq.steps.call_steps import Durable
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.kinds import (
    Carryover,
    Changed,
    ChangeKind,
    IdsKept,
    Kind,
    QueuePlace,
    TopicMade,
    Tried,
    TriedRange,
)
from fmq.store.bytes.timing import Timing, with_timing
from fmq.store.index.id_table import table_of
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fault_disk import FaultDisk
from fmq.testing.inside import inside
from fmq.testing.shadow import appends_in
from fmq.tx.commands.due import timing_of
from fmq.tx.ledger.carryover import carried_of, to_json
from fmq.tx.said.codec_met import codec_text
from fmq.tx.said.limit_met import LimitMet
from fmq.tx.said.schedule_met import ScheduleMet
from tests.budget import draw
from tests.remote.over_frames import OverFrames

OPTIONS = fmq.Options(segment_bytes=1 << 20, sync="interval", sync_interval_seconds=1e6)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
CHANGING_ALONE = {"behind_seconds", "members", "in_hand"}  # with the clock, or in memory alone
REMOVES, READS = ("trim", "delete_topic"), ("read", "read_batch", "find", "offset_at")
SCHEDULED = "old", "* * * * *", "UTC", "once", b"x", None, None, {"a": "b"}, "ann"
LOOKS_OF_EACH = 4
LATE_US = 1 << 52  # in a century
COUNTS = ("topics", "queues", "messages", "groups", "dead_letters", "undecided", "delayed")

# --- the looks ------------------------------------------------------------------------------------

LOOKS: dict[str, Callable[[Any], Any]] = {
    "read": lambda face: [message.body for message in face.read("t", limit=999)],
    "read_batch": lambda face: face.read_batch("t", limit=999).messages[-1].body,
    "read of a new topic": lambda face: [m.body for m in face.read("new", limit=999)],
    "find": lambda face: [message.body for message in face.find("t", key="k", limit=999)],
    "tail": lambda face: [message.body for message in face.tail(limit=999).messages],
    "wait": lambda face: face.wait({("t", 0): 0, ("new", 0): 0}, timeout=0),
    "outcome": lambda face: [_state(face, f"{n}") for n in range(99)],
    "undecided": lambda face: [each.tx_id for each in face.undecided()],
    "mark": lambda face: face.mark("m"),
    "marks": lambda face: face.marks(prefix=""),
    "queues": lambda face: face.queues(),
    "queues of a topic": lambda face: face.topic("t").queues(),
    "groups": lambda face: face.groups(),
    "infos": lambda face: face.group("g").infos(),
    "explain": lambda face: [
        re.sub(r", [0-9.]+ s behind", "", line)
        for line in face.group("g").explain().splitlines()
        if "queue" in line
    ],
    "members": lambda face: face.group("other").members(),
    "former members": lambda face: [each.name for each in face.group("g").former_members()],
    "in hand": lambda face: [each.offset for each in face.group("g").in_hand()],
    "clients": lambda face: len(face.clients()),
    "unread": lambda face: [message.offset for message in face.unread("g", "t", limit=999)],
    "delayed": lambda face: face.delayed(limit=999),
    "dead letters": lambda face: [each.number for each in face.dead_letters("g").list(limit=999)],
    "count of dead letters": lambda face: face.dead_letters("g").count(),
    "offset_at": lambda face: face.offset_at("t", 0, LONG_AGO),
    "schedules": lambda face: face.schedules(),
    "stats": lambda face: {name: getattr(face.stats(), name) for name in COUNTS},
}


def _state(face: Any, tx_id: str) -> str:
    try:
        return str(face.outcome(tx_id).state)
    except fmq.errors.UnknownTransaction:
        return "unknown"


def seen(look: Callable[[Any], Any], face: Any) -> Any:
    """Return what a look shows, without values that change by themselves, or the name of the error
    that it raises.
    """
    try:
        return _plain(look(face))
    except Damaged:
        raise
    except FmqError as error:
        return type(error).__name__


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: each for name, each in asdict(value).items() if name not in CHANGING_ALONE}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


# --- what is planned ------------------------------------------------------------------------------


class Plans:
    """Plans one thing of each sort, and returns before it is durable."""

    def __init__(self, engine: fmq.Engine) -> None:
        self.engine = engine
        self.parts = inside(engine)
        self.number = 0
        self.kinds: set[int] = set()
        self.asked: set[int] = set()
        engine.create_topic("t")
        engine.create_topic("old")
        for number in range(200):
            engine.send("t", b"%d" % number, key="k", message_id=f"first {number}")
        engine.create_group("g", "t")
        engine.create_group("other", "t")
        self.consumer = engine.consumer("t", group="g")
        for delivery in self.consumer.poll(limit=80):
            delivery.reject("bad")
        engine.sync()

    def raw(self, *records: Any) -> None:
        self.parts.commit_queue.run(self.parts.writer.send, [*records], wait=False)

    def change(self, *said: Any, **more: Any) -> None:
        self.raw(Changed(*said, **more))

    def message(self) -> None:
        self.engine.send("t", b"new", key="k", message_id=f"id {self.number}", sync=False)

    def message_of_a_new_topic(self) -> None:
        self.engine.send("new", b"1", sync=False)
        self.engine.send(f"new {self.number}", b"1", sync=False)

    def timer(self) -> None:
        self.engine.send("t", b"later", delay=1000, sync=False)

    def recall(self) -> None:
        receipt = self.engine.send("t", b"later", delay=1000)
        self.engine.sync()
        timing = timing_of(receipt)
        assert timing is not None
        self.parts.commit_queue.run(self.parts.delays.plan_recall, timing, wait=False)

    def fire(self) -> None:
        """With its TIMER, as the thread of the engine would be faster."""
        timer = encode_one(b"x", None)
        timer.kind, timer.topic = Kind.TIMER, "t"
        timer.extension = with_timing(b"", Timing(1, 0))
        places = [QueuePlace(0, self.parts.journal.position)]
        self.raw(timer, Changed(ChangeKind.FIRE, "", "", places))

    def transaction(self) -> Any:
        tx = self.engine.transaction(tx_id=f"{self.number}")
        tx.send("t", b"in it", key="k", message_id=f"tx {self.number}")
        tx.mark("m", self.number)
        return tx

    def commit(self) -> None:
        self.transaction().commit(sync=False)

    def prepare(self) -> None:
        manager, tx = self.parts.manager, self.transaction()
        plan, what, _ = manager.preparing(tx._buffer)
        self.parts.commit_queue.run(plan, what, wait=False)
        self.left = tx.tx_id

    def commit_of_a_prepared_one(self) -> None:
        tx = self.transaction()
        tx.prepare()
        tx.commit(sync=False)

    def roll_back(self) -> None:
        tx = self.transaction()
        tx.prepare()
        tx.rollback()

    def decision(self) -> None:
        tx = self.transaction()
        tx.prepare()
        self.engine.sync()
        call = self.parts.manager.decisions.rolling_back(tx.tx_id, tx._buffer.number)
        step = next(call)
        assert isinstance(step, Durable)
        self.parts.commit_queue.run(step.plan, step.what, wait=False)

    def ack(self) -> None:
        (delivery,) = self.consumer.poll(limit=1)
        self.engine.sync()
        delivery.ack(sync=False)

    def tries(self) -> None:
        self.raw(Tried([TriedRange("g", "t", 0, 190, 191, 1)]))

    def dead_letter(self) -> None:
        (delivery,) = self.consumer.poll(limit=1)
        self.engine.sync()
        queue = self.parts.ledger.topics["t"].queues[0]
        what = "g", queue, delivery.offset, delivery.offset + 1, "bad", lambda offset: 1
        for _, _, append in self.parts.burying.appends_of(*what):
            self.parts.commit_queue.run(self.parts.writer.send, append, wait=False)

    def first_dead_letter(self) -> None:
        self.change(ChangeKind.BEGIN_DEAD, f"g {self.number}", "")

    def purge(self) -> None:
        letter = self.engine.dead_letters("g").list(limit=1)[0].number
        places = [QueuePlace(0, offset) for offset in (letter, letter + 1, 0)]
        self.change(ChangeKind.END_DEAD, "g", "", places)

    def group(self) -> None:
        self.change(ChangeKind.MAKE_GROUP, f"group {self.number}", "t", [QueuePlace(0, 0)])

    def seek(self) -> None:
        self.change(ChangeKind.SEEK, "g", "t", [QueuePlace(0, 100 + self.number % 7)])

    def skip(self) -> None:
        self.change(ChangeKind.SKIP, "other", "t", [QueuePlace(0, self.number % 100)], 1)

    def filter(self) -> None:
        self.change(ChangeKind.FILTER, "other", "t", text="" if self.number % 2 else "tags:x")

    def topic(self) -> None:
        self.raw(TopicMade(f"topic {self.number}", 2, 0))

    def queues(self) -> None:
        queues = len(self.parts.ledger.topics["old"].queues)
        self.change(ChangeKind.ADD_QUEUES, "", "old", value=queues + 1)

    def option(self) -> None:
        said = f'{{"set":{{"lease_seconds":{self.number + 1}.5}},"reset":[]}}'
        self.raw(Changed(ChangeKind.CONFIGURE, "", "", text=said))

    def retention(self) -> None:
        self.change(ChangeKind.RETAIN, "", "old", value=1_000_000 + self.number)

    def codec(self) -> None:
        text = codec_text(TopicCodec("json", 1 + self.number))
        self.change(ChangeKind.CODEC, "", "old", text=text)

    def pause(self) -> None:
        self.change(ChangeKind.PAUSE, "other", "", text=f"ann\n{self.number}")

    def pause_of_a_topic(self) -> None:
        self.change(ChangeKind.PAUSE, "", "t", text=f"ann\n{self.number}")

    def limit(self) -> None:
        text = LimitMet(1 + self.number, by="ann").text()
        self.change(ChangeKind.LIMIT, "other", "", text=text)

    def resume(self) -> None:
        self.change(ChangeKind.PAUSE, "other", "", text="ann\n")
        self.engine.sync()
        self.change(ChangeKind.RESUME, "other", "", text="ann\n")

    def schedule(self) -> None:
        self.raw(self._scheduled(LATE_US))

    def _scheduled(self, next_us: int) -> Changed:
        text = ScheduleMet(f"n {self.number}", *SCHEDULED).text()
        return Changed(ChangeKind.SCHEDULE, "", "old", value=next_us, text=text)

    def due(self) -> None:
        """With its SCHEDULE, as the thread of the engine would be faster."""
        text = json.dumps({"name": f"n {self.number}", "due": 5})
        message = encode_one(b"x", None)
        message.topic = "t"
        due = Changed(ChangeKind.DUE, "", "old", value=LATE_US, text=text)
        self.raw(self._scheduled(5), due, message)

    def unschedule(self) -> None:
        self.schedule()
        self.engine.sync()
        text = json.dumps({"name": f"n {self.number}"})
        self.change(ChangeKind.UNSCHEDULE, "", "old", text=text)

    def trim(self) -> None:
        first = self.parts.ledger.topics["t"].queues[0].first
        self.change(ChangeKind.TRIM, "", "t", [QueuePlace(0, first + 1)])

    def delete_topic(self) -> None:
        self.engine.create_topic(f"gone {self.number}")
        self.engine.sync()
        self.change(ChangeKind.DELETE_TOPIC, "", f"gone {self.number}")

    def delete_group(self) -> None:
        self.engine.create_group(f"gone {self.number}", "t")
        self.engine.sync()
        self.change(ChangeKind.DELETE_GROUP, f"gone {self.number}", "")

    def state(self) -> None:
        self.raw(Carryover(to_json(carried_of(self.parts.ledger) | {"floor": 0}), 0))

    def ids(self) -> None:
        self.raw(IdsKept(table_of(0, []).encode(), 0))

    def references(self) -> None:
        """A commit that refers to what was prepared in its segment, as large bodies do."""
        tx = self.engine.transaction(tx_id=f"{self.number}")
        tx.send("t", bytes(9000))
        tx.prepare()
        tx.commit(sync=False)

    def joint(self) -> None:
        """One decision over two transactions, with a mark. It is planned, and nobody waits."""
        for name in ("one", "two"):
            tx = self.engine.transaction(tx_id=f"{name} {self.number}")
            tx.send("t", b"x")
            tx.prepare()
        ids = [f"{name} {self.number}" for name in ("one", "two")]
        call = self.parts.manager.joint_decisions.deciding(ids, "commit", ("m", self.number, None))
        step: Any = next(call)
        queue = self.parts.commit_queue
        queue.run(step.plan, step.what, False)

    def run(self, sort: Callable[[Plans], None]) -> None:
        self.number += 1
        sort(self)
        journal = self.parts.journal
        pending = journal.pending
        for append in appends_in(b"".join(pending.buffers), pending.start, journal.seed):
            self.kinds |= {record.kind for record in append}
            self.asked |= {each.asked for each in append if isinstance(each, Changed)}

    def settle(self) -> None:
        """Make all durable, and leave nothing undecided."""
        self.engine.sync()
        for each in self.engine.undecided():
            self.engine.decide(each.tx_id, "rollback")
        self.engine.sync()


HELPERS = {"raw", "change", "transaction", "run", "settle"}
SORTS = {
    name: sort
    for name, sort in vars(Plans).items()
    if inspect.isfunction(sort) and name not in HELPERS and not name.startswith("_")
}

# --- the faces ------------------------------------------------------------------------------------


class Blocking:
    """A face of asyncio, and what it returns, as blocking calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, asked: Any) -> None:
        self._loop = loop
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._asked, name)

        def call(*args: Any, **more: Any) -> Any:
            async def ask() -> Any:
                found = method(*args, **more)
                return await found if inspect.isawaitable(found) else found

            found = self._loop.run_until_complete(ask())
            is_handle = type(found).__name__.startswith("Async")
            return Blocking(self._loop, found) if is_handle else found

        return call


class Stage:
    """An engine, a face of it, and what a power cut would leave."""

    sorts = tuple(SORTS)
    name = ""

    def __init__(self, engine: fmq.Engine, face: Any) -> None:
        self.face = face
        self.plans = Plans(engine)

    def left(self) -> fmq.Engine:
        raise NotImplementedError


class InMemory(Stage):
    def __init__(self, disk: CrashDisk, face: Callable[[fmq.Engine, FakeClock], Any]) -> None:
        self.disk, clock = disk, FakeClock()
        engine = fmq.open("data", OPTIONS, disk=disk, clock=clock)
        super().__init__(engine, face(engine, clock))

    def left(self) -> fmq.Engine:
        return fmq.open("data", OPTIONS, disk=self.disk.after_power_loss(1), background=False)


class OnDisk(Stage):
    """As the tests of the other faces ask everything, this one asks only some: it is slow."""

    sorts = ("message", "timer", "recall", "commit", "prepare", "decision", "ack", "group")

    def __init__(self, path: Path, face: Callable[[fmq.Engine], Any]) -> None:
        self.path = path
        engine = fmq.open(path / "data", OPTIONS)
        engine.serve()
        super().__init__(engine, face(engine))

    def left(self) -> fmq.Engine:
        shutil.rmtree(self.path / "left", ignore_errors=True)
        shutil.copytree(
            self.path / "data", self.path / "left", ignore=shutil.ignore_patterns("SOCKET*")
        )
        return fmq.open(self.path / "left", OPTIONS, background=False)


@pytest.fixture(params=["open", "connect", "aio", "aio connect"])
def stage(request: Any, tmp_path: Path) -> Iterator[Stage]:
    if request.param in ("open", "connect"):
        face = OverFrames if request.param == "connect" else lambda engine, clock: engine
        made: Stage = InMemory(CrashDisk(), face)
        made.name = request.param
        yield made
        made.plans.consumer.close()
        made.face.close()
        return
    loop = asyncio.new_event_loop()
    if request.param == "aio":
        made = InMemory(CrashDisk(), lambda engine, _: Blocking(loop, fmq.aio.of(engine)))
        made.name = request.param
        yield made
    else:
        connecting: Any = fmq.aio.connect(tmp_path / "data", start=False)
        face_of = loop.run_until_complete
        made = OnDisk(tmp_path, lambda _: Blocking(loop, face_of(connecting.__aenter__())))
        made.name = request.param
        yield made
        face_of(connecting.__aexit__(None, None, None))
    loop.close()
    made.plans.consumer.close()
    made.plans.engine.close()


def mixes(shown: Any, before: Any, on_disk: Any) -> bool:
    """Return whether each queue of `shown` is as it was before or as it is now. `groups` promises
    that each queue is shown at one instant, not that all are at the same one.
    """
    if not len(shown) == len(before) == len(on_disk):
        return False
    return all(one in both for one, *both in zip(shown, before, on_disk, strict=True))


def test_calls_that_look_show_only_durable_changes(stage: Stage) -> None:
    """Each run draws some looks at each change, through each face; `FMQ_BUDGET=7` asks all."""
    plans = stage.plans
    wrong = []
    for sort_name in stage.sorts:
        for name, look in draw(LOOKS.items(), LOOKS_OF_EACH, f"{stage.name} {sort_name}"):
            plans.settle()
            before = seen(look, stage.face)
            plans.run(SORTS[sort_name])
            shown = seen(look, stage.face)
            if shown != before and not (sort_name in REMOVES and name in READS):
                with stage.left() as left:
                    on_disk = seen(look, left)
                    if on_disk != shown and not (
                        name == "groups" and mixes(shown, before, on_disk)
                    ):
                        wrong.append(f"{name} while there is a {sort_name}: {before} -> {shown}")
    plans.settle()
    assert not wrong, "\n".join(wrong)
    if stage.sorts == tuple(SORTS):
        # A HOLE is never planned. An ERASE is planned when its messages are overwritten already.
        assert plans.kinds == {*Kind} - {Kind.HOLE, Kind.ERASE}, "of every other kind one was"
        assert plans.asked == {*ChangeKind}


@pytest.mark.parametrize("sort", SORTS)
def test_after_a_failed_write_calls_show_durable_state_or_raise(sort: str) -> None:
    """Messages stay readable. A look at what was being written raises EngineFailed."""
    assert any(fails(sort) for _ in range(20)), "the thread of chores was faster each time"


def fails(sort: str) -> bool:
    """Let the write of a plan fail, and look. Return False if it was written before."""
    disk = FaultDisk(CrashDisk())
    engine = fmq.open("data", OPTIONS, disk=disk, clock=FakeClock())
    plans = Plans(engine)
    plans.settle()
    before = {name: seen(look, engine) for name, look in LOOKS.items() if name != "stats"}
    plans.run(SORTS[sort])
    disk.fail("write", names="*.seg", persistently=True)
    with suppress(EngineFailed):
        engine.sync()
    has_failed = engine.stats().failure is not None
    if has_failed:
        for name, value in before.items():
            shown = seen(LOOKS[name], engine)
            if name in READS:
                assert shown == value or sort in REMOVES, name
            else:
                assert shown in (value, "EngineFailed"), name
    disk.heal()
    plans.consumer.close()
    engine.close()
    return has_failed

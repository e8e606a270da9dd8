"""Makes the golden directories of a format version: `python -m tests.data.make_golden`.

Run it once for a version of the format, when that version is new, and never again for the
same: what lies in tests/data/v1 was written by the fmq of that day, and every later one must
read it. Hence it makes only those that are not there.

Of a version there are two directories: `closed`, after several lives and a retention; and `killed`,
which was never closed and ends in the first bytes of an append. What a version learns later needs a
directory more, as `v1-bound` is one. What is done in those of version 2 is in story_v2.py; the
story of `v1` was here while that was the newest. What each holds is in expected.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fmq
from fmq.basics.message import Decision
from fmq.testing import CrashDisk, FakeClock
from tests.data.story_v2 import (
    DAY,
    HOUR,
    LONG,
    decide_some,
    everything,
    fill,
    killed_life,
    prepare_some,
    text,
)
from tests.golden import DATA, EXPECTED, Seen, as_text, handed_out, published, seen

TOPICS = {"orders": 2}
CLOSED: dict[str, Any] = {
    "segment_bytes": 4096,
    "compress_bytes_min": 200,
    "reference_bytes_min": 64,
    "relocate_bytes": 2 * 4096,
}
RETAINING: dict[str, Any] = CLOSED | {"retain_bytes": 6 * 4096, "keep_unread": False}
KILLED: dict[str, Any] = {"segment_bytes": 4096, "checkpoint_bytes": 2500}
TORN_BYTES = 100
WHO = ("max", "erika")  # the second is erased in v2-erased
LINE = 400

Files = dict[str, bytes]


@dataclass
class Order:
    """What a message of the directory with codecs says."""

    number: int
    customer: str
    note: str | None = None


def opened(disk: CrashDisk, clock: FakeClock, chosen: dict[str, Any]) -> fmq.Engine:
    usual: dict[str, Any] = {"topic_queues": TOPICS, "checkpoint_bytes": 2000}
    options = fmq.Options(**(usual | chosen))
    return fmq.open("data", options, disk=disk, clock=clock, background=False)


# What must be in the directory, whatever the engine says; of queues the last ones.
CLOSED_SENT = {
    "emails/0": [
        *("receipt", "copy", "", "small", "waits at first, 3"),
        *("in a second", "with it", "later 3"),
    ],
    "jobs/0": [f"job {i} of {time}" for time in (2, 3) for i in range(9)],
    "tasks/0": [
        f"{what} {time}" for time in (2, 3) for what in ("plain", "stale", "urgent", "of a day")
    ],
    "news/0": ["news 3"],
    "scratch/0": ["made again 3"],
}
CLOSED_DUE = [
    *(f"in {days} days, {time} " * times for days, times in ((1, 1), (2, 4)) for time in (1, 2, 3)),
    *(as_text(b"in 3 days, %d " % time * 40) for time in (1, 2, 3)),
    *(f"in four days, {time}" for time in (1, 2, 3)),
    *(f"in five days, {time}" for time in (1, 2, 3)),
]


def check_closed(shown: Seen) -> None:
    """Compare with what was sent."""
    for place, bodies in CLOSED_SENT.items():
        got = [message["body"] for message in shown["queues"][place]["messages"]]
        assert got[-len(bodies) :] == bodies, (place, got)
    due = shown["due"][f"{6 * DAY:g}"]
    got = [message["body"] for place in ("emails/0", "orders/1") for message in due[place]]
    assert got == CLOSED_DUE, got
    dead = [(each["body"], each["reason"]) for each in shown["dead letters"]["workers"]]
    for time in (1, 2, 3):
        for i in (4, 5, 6, 7):
            is_there = (f"job {i} of {time}", f"no such address: {i}") in dead
            assert is_there == (i in (5, 7)), "4 was replayed, and 6 purged"
    assert [each["body"] for each in shown["dead letters"]["machines"]] == [
        f"urgent {time}" for time in (1, 2, 3)
    ]
    assert shown["marks"] == {"cursor": [3, ""], "source": [73, "01ff"]}
    (tasks,) = (each for each in shown["groups"] if each["group"] == "machines")
    assert tasks["expired"] == 3
    assert shown["outcomes"]["at-once-1"] == "UnknownTransaction"
    assert [each["tx_id"] for each in shown["undecided"]] == ["waiting"]


def make_closed() -> tuple[Files, Seen]:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, CLOSED) as engine:
        everything(engine, clock, 1)
        fill(engine, 8)
        everything(engine, clock, 2)
    with opened(disk, clock, RETAINING) as engine:
        engine.send("audit", b"by the life with a retention")
        assert engine.stats().first_position > 0
    with opened(disk, clock, CLOSED) as engine:
        prepare_some(engine)
        everything(engine, clock, 3)
        decide_some(engine)
        engine.find("orders", key="c-1")
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": [
            *("at-once-1", "at-once-3", "two-phases-3", "rolled-back-3", "only-acks-3"),
            *("nothing-3", "moved", "bound", "waiting", "never heard of"),
        ],
        "not acked": [],
        "unread": dict.fromkeys(("billing", "workers", "machines", "paid-3", "moved-1", "moved-3")),
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": ["workers", "machines"],
        "ids": [
            *(f"orders once-{time}" for time in (1, 2, 3)),
            *(f"tasks urgent-{time}" for time in (1, 2, 3)),
            *("orders two-3", "emails later-3", "scratch scratch", "orders held"),
        ],
        "found": ["orders c-1", "orders c-3", "tasks day", "emails c-9"],
    }
    shown = look(disk, clock, asked)
    groups = {"workers": ["jobs"], "machines": ["tasks"], "mailer": ["emails"]}
    shown["handed out"] = hand_out(disk, clock, groups)
    shown["due"] = come_due(disk, clock, shown)
    check_closed(shown)
    return files_of(disk), shown


def make_killed() -> tuple[Files, Seen]:
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock, KILLED)
    killed_life(engine, clock)
    before = files_of(disk)
    engine.send("audit", text("torn", 300))
    files = _torn(before, files_of(disk))
    engine.close()
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["killed-waiting"],
        "not acked": [],
        "unread": {"billing": None, LONG: None},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [LONG],
        "ids": ["orders urgent", "orders held"],
        "found": [],
    }
    disk = disk_of(files)
    shown = look(disk, clock, asked)
    shown["handed out"] = hand_out(disk, clock, {"billing": ["audit"], LONG: ["audit"]})
    shown["due"] = come_due(disk, clock, shown)
    last = shown["queues"]["audit/0"]["messages"][-1]["body"]
    assert last == "the last that was acknowledged"
    return files, shown


def make_holes() -> tuple[Files, Seen]:
    """A directory that was salvaged: a transaction that had set a mark lay where a HOLE is now."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, {"segment_bytes": 4096}) as engine:
        engine.create_group("billing", "audit")
        for number in range(4):
            engine.send("audit", text(f"before {number}", 900))
        for name in ("lost", "kept"):
            with engine.transaction(tx_id=name) as tx:
                tx.mark(name, 7, b"data")
        for number in range(4):
            engine.send("audit", text(f"behind {number}", 900))
        waiting = engine.transaction(tx_id="waiting")
        waiting.send("orders", b"not yet")
        waiting.prepare()
    files = files_of(disk)
    ((name, at),) = [
        (name, files[name].find(b"lost"))
        for name in files
        if name.endswith(".seg") and b"lost" in files[name]
    ]
    damaged = bytearray(files[name])
    damaged[at] ^= 1  # the name of the mark
    kept = {each: data for each, data in files.items() if not each.startswith("checkpoint")}
    disk = disk_of(kept | {name: bytes(damaged)})
    made = fmq.salvage("data", "new", disk=disk, clock=clock)
    assert [each.tx_id for each in made.transactions] == ["lost"]
    assert not made.lost
    small = fmq.Options(segment_bytes=4096)
    fmq.open("new", small, disk=disk, clock=clock, background=False).close()
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting", "kept", "lost"],
        "not acked": [],
        "unread": {"billing": None},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
    }
    disk = disk_of(files_of(disk, "new"))
    shown = look(disk, clock, asked)
    assert shown["marks"] == {"kept": [7, b"data".hex()]}
    shown["handed out"] = hand_out(disk, clock, {"billing": ["audit"]})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_pauses() -> tuple[Files, Seen]:
    """A directory with a group and topics that are paused: before a retention, and after it."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, RETAINING) as engine:
        engine.create_group("billing", "audit")
        engine.create_group("search", "audit")
        engine.send("emails", b"hold it")
        billing, emails = engine.group("billing"), engine.topic("emails")
        billing.pause(reason="the database is slow", by="ann")
        engine.topic("emails").pause(reason="", by="an operator")
        for number in range(60):
            engine.send("audit", text(f"event {number}", 900))
        engine.group("search").pause(reason="büro zu", by="bob")
        engine.group("search").resume(by="bob")
        emails.resume(reason="checked", by="an operator")
        emails.pause(reason="again", by="ann")
        assert engine.queues("audit")[0].first > 0
        waiting = engine.transaction(tx_id="waiting")
        waiting.send("orders", b"not yet")
        waiting.prepare()
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting"],
        "not acked": [],
        "unread": {"search": None},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
    }
    shown = look(disk, clock, asked)
    whose = {each["group"]: each["paused"] and each["paused"]["by"] for each in shown["groups"]}
    assert whose == {"billing": "ann", "search": None}
    shown["handed out"] = hand_out(disk, clock, {"billing": ["audit"], "search": ["audit"]})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_limits() -> tuple[Files, Seen]:
    """A directory with groups that have limits: set before a retention, and changed after it."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, RETAINING) as engine:
        for group in ("billing", "search", "free"):
            engine.create_group(group, "audit")
        billing = engine.group("billing")
        billing.limit(concurrency=2, rate=50.5, reason="the database", by="ann")
        engine.group("search").limit(concurrency=7, by="bob")
        engine.group("free").limit(rate=0.5, by="bob")
        for number in range(60):
            engine.send("audit", text(f"event {number}", 900))
        engine.group("search").limit(concurrency=3, reason="büro zu", by="ann")
        engine.group("free").limit(by="ann")
        assert engine.queues("audit")[0].first > 0
        waiting = engine.transaction(tx_id="waiting")
        waiting.send("orders", b"not yet")
        waiting.prepare()
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting"],
        "not acked": [],
        "unread": {"search": None},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
    }
    shown = look(disk, clock, asked)
    most = {
        each["group"]: each["limit"] and each["limit"]["concurrency"] for each in shown["groups"]
    }
    assert most == {"billing": 2, "search": 3, "free": None}
    shown["handed out"] = hand_out(disk, clock, {"search": ["audit"]})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_codecs() -> tuple[Files, Seen]:
    """A directory with codecs of topics, stored before a retention, and one of a new version."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, RETAINING) as engine:
        engine.send("audit", b"of no codec")
        orders = engine.topic("orders", codec=fmq.codecs.dataclass(Order))
        engine.topic("emails", codec=fmq.codecs.json(dict)).send({"to": "ann"}, queue=0)
        for number in range(60):
            orders.send(
                Order(number, text(f"customer {number}", 900).decode()), key=f"{number % 7}"
            )
        engine.topic("emails", codec=fmq.codecs.json(dict, version=2)).send({"to": "bob"}, queue=0)
        assert engine.queues("orders")[0].first > 0
        waiting = engine.transaction(tx_id="waiting")
        orders.send_in(waiting, Order(60, "zoë"))
        waiting.prepare()
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting"],
        "not acked": [],
        "unread": {},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
        "codecs": {"orders": None, "emails": None},
    }
    shown = look(disk, clock, asked)
    assert shown["codecs"]["emails"][:2] == ["json", 2]
    shown["handed out"] = hand_out(disk, clock, {})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_schedules() -> tuple[Files, Seen]:
    """A directory with schedules: made before a retention, and changed after it."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, RETAINING) as engine:
        said: dict[str, Any] = {"key": "k", "tag": "t", "headers": {"für": "alle"}, "by": "ann"}
        engine.schedule("report", "0 * * * *", "reports", b"go", **said)
        clock.advance(3600)
        for number in range(58):
            engine.send("audit", text(f"event {number}", 900))
        assert engine.queues("audit")[0].first > 0
        engine.scheduled("report").run_now(by="bob", reason="a look")
        said["replace"] = True
        engine.schedule("report", "0 0 1 1 *", "reports", b"go", **said)
        engine.schedule("gone", "0 0 * * *", "reports", b"", missed="skip").remove(by="bob")
        nightly = engine.schedule("nightly", "5 0 3 * * *", "reports", "büro".encode(), by="bob")
        nightly.pause(reason="on holiday", by="ann")
        waiting = engine.transaction(tx_id="waiting")
        waiting.send("orders", b"not yet")
        waiting.prepare()
        found = [(each.name, each.by, each.paused is not None) for each in engine.schedules()]
        assert found == [("nightly", "bob", True), ("report", "ann", False)]
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting"],
        "not acked": [],
        "unread": {},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
    }
    shown = look(disk, clock, asked)
    shown["handed out"] = hand_out(disk, clock, {})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_options() -> tuple[Files, Seen]:
    """Make a directory with options: a STATE has some, and a CHANGE after it sets and
    resets options.
    """
    disk, clock = CrashDisk(), FakeClock()
    chosen = {"segment_bytes": 4096, "retain_bytes": 3 * 4096, "lease_seconds": 41.0}
    with opened(disk, clock, chosen) as engine:
        engine.configure(fmq.Options(on_undecided="park", keep_unread=False))
        for number in range(24):
            engine.send("audit", text(f"before {number}", 900))
        assert engine.stats().first_position > 0
        engine.configure(
            fmq.Options(queues=3, retain_seconds=None, producer_share=0.5),
            reset=["lease_seconds", "retain_bytes"],
        )
        engine.send("audit", b"behind")
        waiting = engine.transaction(tx_id="waiting")
        waiting.send("orders", b"not yet")
        waiting.prepare()
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting"],
        "not acked": [],
        "unread": {},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
        "options": {},
    }
    shown = look(disk, clock, asked)
    assert set(shown["options"]) == {
        *("on_undecided", "keep_unread", "queues", "retain_seconds", "producer_share"),
    }
    shown["handed out"] = hand_out(disk, clock, {"billing": ["audit"]})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_erased() -> tuple[Files, Seen]:
    """A directory in which one person was erased: sent, prepared, delayed, and in a batch."""
    disk, clock = CrashDisk(), FakeClock()
    chosen: dict[str, Any] = {"segment_bytes": 4096, "compress_bytes_min": 200}
    with opened(disk, clock, chosen) as engine:
        engine.create_group("billing", "audit")
        for number in range(3):
            engine.send("audit", text(f"before {number}", 900), key=WHO[number % 2])
        batch = [fmq.Message(text(f"row {number}", 90), WHO[number % 2]) for number in range(6)]
        engine.send_many("audit", batch)
        decision: Decision
        for tx_id, decision in (("near", "commit"), ("gone", "rollback")):
            tx = engine.transaction(tx_id=tx_id)
            tx.send("audit", text(f"prepared {tx_id}", 60), key=WHO[1], headers={"to": WHO[1]})
            tx.prepare()
            engine.decide(tx_id, decision)
        engine.send("audit", text("delayed", 30), key=WHO[1], tag=WHO[1], delay=1)
        clock.advance(2)
        waiting = engine.transaction(tx_id="waiting")
        waiting.send("orders", b"not yet")
        waiting.prepare()
        engine.send("audit", text("behind", 900), key=WHO[0])
        assert engine.erase("audit", key=WHO[1]).messages == 6
        assert not any(WHO[1].encode() in data for data in files_of(disk).values())
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": ["waiting", "near", "gone"],
        "not acked": [],
        "unread": {"billing": None},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": ["audit max", "audit erika"],
    }
    shown = look(disk, clock, asked)
    shown["handed out"] = hand_out(disk, clock, {"billing": ["audit"]})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def make_joint() -> tuple[Files, Seen]:
    """A directory with decisions over several transactions: with a mark, over two segments, and a
    roll back.
    """
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, CLOSED) as engine:
        for number in range(9):
            clock.advance(1)
            tx_id = "waiting" if number == 8 else f"part {number}"
            tx = engine.transaction(tx_id=tx_id, producer="lake")
            tx.send("orders", text(f"part {number}", 900), key=f"{number}")
            if number < 8:
                tx.send("audit", b"%d" % number)
            tx.prepare()
        engine.decide_many([f"part {each}" for each in (0, 1)], "rollback")
        engine.decide_many(
            [f"part {each}" for each in (2, 3, 4, 5, 6)], "commit", mark=("e", 7, -1)
        )
        engine.decide_many(["part 7"], "commit", mark=("e", 8, 7))
    asked = {
        "clock_us": clock.time_us(),
        "outcomes": [*(f"part {number}" for number in range(8)), "waiting"],
        "not acked": [],
        "unread": {},
        "groups": [],
        "marks": {},
        "delayed": [],
        "dead letters": [],
        "ids": [],
        "found": [],
    }
    shown = look(disk, clock, asked)
    assert shown["marks"] == {"e": [8, ""]}
    states = [shown["outcomes"][each]["state"] for each in ("part 0", "part 4", "waiting")]
    assert states == ["rolled back", "committed", "undecided"]
    shown["handed out"] = hand_out(disk, clock, {})
    shown["due"] = come_due(disk, clock, shown)
    return files_of(disk), shown


def _torn(before: Files, after: Files) -> Files:
    """`before`, and of what the last append changed only its first bytes."""
    segments = (name for name in after if name.endswith(".seg"))
    (name,) = (name for name in segments if before.get(name) != after[name])
    (start, *_) = (i for i in range(len(after[name])) if before[name][i] != after[name][i])
    end = start + TORN_BYTES
    return before | {name: after[name][:end] + before[name][end:]}


# --- as files -------------------------------------------------------------------------------


def look(disk: CrashDisk, clock: FakeClock, asked: Seen) -> Seen:
    """Return what a copy of the directory shows."""
    with copied(disk, FakeClock(clock.time_us())) as engine:
        return {"clock_us": asked["clock_us"]} | seen(engine, asked)


def hand_out(disk: CrashDisk, clock: FakeClock, groups: dict[str, list[str]]) -> Seen:
    """Return what groups get some seconds after an opening. Each moment has a copy of the
    directory.
    """
    found: Seen = {}
    for seconds in (0.0, 2 * HOUR):
        then = FakeClock(clock.time_us())
        with copied(disk, then) as engine:
            then.advance(seconds)
            found[f"{seconds:g}"] = {
                group: {"topics": topics, "got": handed_out(engine, group, topics, then)}
                for group, topics in groups.items()
            }
    return found


def come_due(disk: CrashDisk, clock: FakeClock, shown: Seen) -> Seen:
    """Return what a copy of the directory publishes that is opened some days later."""
    found: Seen = {}
    for seconds in (1.5 * DAY, 6 * DAY):
        then = FakeClock(clock.time_us())
        then.advance(seconds)
        with copied(disk, then) as engine:
            engine.sync()
            found[f"{seconds:g}"] = published(engine, shown["queues"])
    return found


def copied(disk: CrashDisk, clock: FakeClock) -> fmq.Engine:
    """An engine of a copy of the directory."""
    return fmq.open("data", disk=disk_of(files_of(disk)), clock=clock, background=False)


def files_of(disk: CrashDisk, path: str = "data") -> Files:
    directory = disk.directory(path, make=False)
    files = {}
    for name in directory.names():
        file = directory.open(name)
        files[name] = file.read(0, file.size())
    return files


def disk_of(files: Files) -> CrashDisk:
    disk = CrashDisk()
    directory = disk.directory("data", make=True)
    for name, content in files.items():
        directory.create(name).write(0, (content,), sync=True)
    directory.sync()
    return disk


GOLDEN: dict[str, dict[str, Callable[[], tuple[Files, Seen]]]] = {
    "v2": {"closed": make_closed, "killed": make_killed},
    "v2-holes": {"closed": make_holes},
    "v2-erased": {"closed": make_erased},
    "v2-pauses": {"closed": make_pauses},
    "v2-options": {"closed": make_options},
    "v2-limits": {"closed": make_limits},
    "v2-joint": {"closed": make_joint},
    "v2-codecs": {"closed": make_codecs},
    "v2-schedules": {"closed": make_schedules},
}


def main(say: Callable[[str], None] = print) -> None:
    new = [name for name in GOLDEN if not (DATA / name).exists()]
    if not new:
        raise SystemExit("all are there: a golden directory is made once, and kept for ever")
    for name in new:
        place, expected = DATA / name, {}
        for life, make in GOLDEN[name].items():
            files, expected[life] = make()
            save(place / life, files)
        (place / EXPECTED).write_text(as_json(expected) + "\n", encoding="utf-8")
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        say(f"{place}: {size:,} B")


def save(place: Path, files: Files) -> None:
    """Write the files, without the page of an open engine, which means nothing after a crash, and
    all but one of the spares, which are zeros.
    """
    place.mkdir(parents=True)
    spares = sorted(name for name in files if name.endswith(".spare"))
    for name in files.keys() - {"DURABLE", *spares[1:]}:
        (place / name).write_bytes(files[name])


def as_json(what: Any, indent: str = "\n") -> str:
    """JSON to be read: what fits a line stands on one."""
    line = json.dumps(what, ensure_ascii=False)
    if not isinstance(what, (dict, list)) or len(indent + line) <= LINE:
        return line
    inner = indent + " "
    if isinstance(what, list):
        return "[" + ",".join(inner + as_json(each, inner) for each in what) + indent + "]"
    pairs = (f"{json.dumps(name)}: {as_json(value, inner)}" for name, value in what.items())
    return "{" + ",".join(inner + pair for pair in pairs) + indent + "}"


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Damage directories in many ways, and count what is left of them: 1 if anything is shown wrong.

    python tools/damage_many.py DIR --damages 5000 --seed 1
    python tools/damage_many.py DIR --only-open      # without a salvage

The directories are those that 20 workloads of the crash harness leave, half of them closed and half
of them killed. Each damage flips a bit, overwrites bytes with zeros or noise, cuts a file short, or
removes it. Then the directory is opened, and salvaged to a new one.

What counts as wrong: a message that was not there, or that has another body or place; a message
that is missing without an error; a transaction that was decided otherwise; a salvage that leaves
out a message whose records are all sound, or that says that all is sound and lacks one; an error
that is none of fmq's; and what takes longer than --seconds, which a watchdog ends. The run may take
--mebibytes of memory, so that damage cannot ask for more than there is.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import resource
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from crash_tests.by_hand import WORKLOADS
from crash_tests.engines import PATH, abandon, options_of
from crash_tests.run import Run
from fmq.errors import Damaged, FmqError
from fmq.recovery.layout import known_segments, look
from fmq.store.bytes.kinds import PRE_MESSAGE, TIMER, Decided
from fmq.store.bytes.kinds import Run as Messages
from fmq.store.journal.scan import Scan, end_of
from fmq.store.journal.segment import HEADER_BYTES
from fmq.testing import CrashDisk, FakeClock

DIRECTORIES = 20
WAYS = ("flip", "flip", "flip", "zeros", "noise", "cut", "remove")
UNPUBLISHED = (PRE_MESSAGE, TIMER)
Place = tuple[str, int, int]


class Whole(NamedTuple):
    """A directory before it is damaged, and what it shows."""

    files: dict[str, bytes]
    options: fmq.Options
    messages: dict[Place, bytes]
    spans: dict[Place, list[tuple[int, int]]]
    """Where the records of each message lie, as positions."""
    outcomes: dict[str, str]
    closed: bool


class Damage(NamedTuple):
    """Bytes of one file that are wrong; of a segment as positions."""

    how: str
    name: str
    first: int
    end: int

    def hits(self, spans: list[tuple[int, int]]) -> bool:
        if not self.name.endswith(".seg"):
            return False
        return any(first < self.end and self.first < end for first, end in spans)


def on_disk(files: dict[str, bytes]) -> CrashDisk:
    disk = CrashDisk()
    directory = disk.directory(PATH, make=True)
    for name, data in files.items():
        with closing(directory.create(name)) as file:
            file.write(0, (data,), sync=True)
            file.sync()
    directory.sync()
    return disk


def opened(disk: CrashDisk, options: fmq.Options, path: str = PATH) -> fmq.Engine:
    return fmq.open(path, options, disk=disk, clock=FakeClock(), background=False)


def shown(engine: fmq.Engine) -> Iterator[tuple[Place, bytes | None]]:
    """Yield each message that there is by its offset; None if reading it raises Damaged."""
    for queue in engine.queues():
        for offset in range(queue.first, queue.next):
            try:
                (message,) = engine.read(queue.topic, queue=queue.queue, offset=offset, limit=1)
                yield (queue.topic, queue.queue, offset), bytes(message.body)
            except Damaged:
                yield (queue.topic, queue.queue, offset), None


def spans_of(disk: CrashDisk) -> tuple[dict[Place, list[tuple[int, int]]], set[str]]:
    """Return where the records of each message lie, and the transactions that were decided."""
    found: dict[Place, list[tuple[int, int]]] = {}
    decided = set()
    with closing(disk.directory(PATH, make=False)) as directory:
        sizes: dict[int, int] = {}
        for segment in known_segments(directory, look(directory), None):
            with closing(directory.open(segment.name)) as file:
                store = file.read(16, 16)
                seed = zlib.crc32(store)
                start = segment.base + HEADER_BYTES
                for append in Scan(file, segment.base, segment.limit, start, seed):
                    whole = append[0].position, end_of(append)
                    for record in append:
                        sizes[record.position] = record.size
                        if isinstance(record, Decided):
                            decided.add(record.tx_id)
                        if not isinstance(record, Messages) or record.kind in UNPUBLISHED:
                            continue
                        for offset in range(record.offset, record.offset + record.count):
                            spans = [whole]
                            if record.body_position:
                                at = record.body_position
                                spans.append((at, at + sizes.get(at, 1)))
                            found[record.topic, record.queue, offset] = spans
    return found, decided


def make(number: int, name: str) -> Whole:
    """Run a workload, and take what it leaves."""
    run = Run(WORKLOADS[name], CrashDisk())
    run.go()
    closed = number % 2 == 0
    if closed and run.engine is not None:
        run.engine.close()
    files = {name: file.content() for name, file in run.disk.files(PATH).items()}
    abandon(run.engine)
    options = options_of(WORKLOADS[name])
    disk = on_disk(files)
    spans, decided = spans_of(disk)
    with opened(on_disk(files), options) as engine:
        messages = {place: body for place, body in shown(engine) if body is not None}
        outcomes = {each.tx_id: "undecided" for each in engine.undecided()}
        for tx_id in decided:
            with suppress(FmqError):
                outcomes[tx_id] = engine.outcome(tx_id).state
    return Whole(files, options, messages, spans, outcomes, closed)


def damage(whole: Whole, random: Random) -> tuple[CrashDisk, Damage]:
    """Return a copy of the directory in which one file is damaged."""
    files = dict(whole.files)
    # An empty file has no byte to damage, and FAILED is one that counts by its name.
    names = [name for name, data in files.items() if data and name not in ("LOCK", "DURABLE")]
    segments = [name for name in names if name.endswith(".seg")]
    name = random.choice(segments if random.random() < 0.8 else names)
    data, how = bytearray(files[name]), random.choice(WAYS)
    used = len(data.rstrip(b"\0")) or 1
    at = random.randrange(used)
    size = min(random.choice((1, 16, 100, 512, 4096)), len(data) - at)
    base = int(name[:20]) if name.endswith(".seg") else 0
    done = Damage(how, name, base + at, base + at + size)
    if how == "flip":
        done = done._replace(end=base + at + 1)
        data[at] ^= 1 << random.randrange(8)
    elif how == "zeros":
        data[at : at + size] = bytes(size)
    elif how == "noise":
        data[at : at + size] = random.randbytes(size)
    elif how == "cut":
        done = done._replace(end=base + len(data))
        del data[at:]
    if how == "remove":
        done = done._replace(first=base, end=base + len(data))
        del files[name]
    else:
        files[name] = bytes(data)
    return on_disk(files), done


def why(error: FmqError) -> str:
    """Return the reason of a refusal, without the numbers and names that only one directory has."""
    if not isinstance(error, Damaged):
        return type(error).__name__
    return re.sub(r"\w*\d[\w.]*", "#", error.reason)[:90]


class Judge:
    """Counts what was left, and what was shown wrong."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest = 0.0

    def try_all(self, whole: Whole, disk: CrashDisk, done: Damage, *, only_open: bool) -> None:
        self.count["damages"] += 1
        self.count["messages"] += len(whole.messages)
        before = disk.after_kill()
        began = time.monotonic()
        try:
            with opened(disk.after_kill(), whole.options) as engine:
                self.count["opened"] += 1
                report = engine.stats().recovery
                excused = bool(report.cut_bytes) or not whole.closed
                self.look(whole, engine, "open", done, excused=excused)
        except FmqError as error:
            self.count["refused"] += 1
            self.count[f"refused: {why(error)}"] += 1
            if isinstance(error, Damaged) and not only_open:
                with suppress(FmqError):
                    reader = fmq.open(PATH, disk=disk.after_kill(), read_only=True)
                    reader.close()
        if not only_open:
            self.salvage(whole, before, done)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def salvage(self, whole: Whole, disk: CrashDisk, done: Damage) -> None:
        try:
            made = fmq.salvage(PATH, "new", disk=disk, clock=FakeClock())
        except FmqError as error:
            self.count[f"not salvaged: {error}"[:110]] += 1
            if done.name.endswith(".seg") and len([n for n in whole.files if n[20:] == ".seg"]) < 2:
                return  # nothing is left of the journal
            self.wrong.append(f"no salvage after {done}: {error}")
            return
        self.count["salvaged"] += 1
        named = {each.tx_id for each in made.transactions}
        with opened(disk, whole.options, "new") as engine:
            excused = bool(made.tail_bytes) or not whole.closed
            seen = self.look(
                whole, engine, "salvage", done, excused=excused, named=named, whole_if=made.ok
            )
        for place, spans in whole.spans.items():
            if place in whole.messages and not done.hits(spans) and seen.get(place) is None:
                if excused and spans[-1][0] >= done.first:
                    continue
                self.wrong.append(f"the salvage lacks {place} after {done}")
                break

    def look(
        self,
        whole: Whole,
        engine: fmq.Engine,
        what: str,
        done: Damage,
        *,
        excused: bool,
        named: set[str] | frozenset[str] = frozenset(),
        whole_if: bool = False,
    ) -> dict[Place, bytes | None]:
        """Compare what an engine shows with what there was."""
        seen = dict(shown(engine))
        readable = {place: body for place, body in seen.items() if body is not None}
        self.count[f"readable after {what}"] += len(readable)
        for place, body in readable.items():
            if whole.messages.get(place) != body:
                self.wrong.append(f"{what} after {done}: {place} is {body[:20]!r}")
        if not excused or whole_if:
            missing = [each for each in whole.messages if each not in seen]
            if whole_if:
                missing = [each for each in whole.messages if seen.get(each) is None]
            if missing and not (excused and whole_if) and (what == "open" or whole_if):
                self.wrong.append(f"{what} after {done}: {missing[0]} is missing in silence")
        for tx_id, state in whole.outcomes.items():
            try:
                now = engine.outcome(tx_id).state
            except FmqError:
                continue
            if now != state and tx_id not in named and not excused:
                self.wrong.append(f"{what} after {done}: {tx_id} was {state}, and is {now}")
        return seen


class Hangs(Exception):
    """Raised by the watchdog in what takes too long."""


def _bark(number: int, frame: FrameType | None) -> None:
    raise Hangs


def run(
    damages: int, seed: int, *, only_open: bool, directories: int, seconds: float = 0.0
) -> Judge:
    """Try `damages`. One that takes longer than `seconds` is ended; 0: none is."""
    random, judge = Random(seed), Judge()
    names = [name for name, each in WORKLOADS.items() if not each.threads][:directories]
    wholes = [make(number, name) for number, name in enumerate(names)]
    for number in range(damages):
        whole = wholes[number % len(wholes)]
        disk, done = damage(whole, random)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            judge.try_all(whole, disk, done, only_open=only_open)
        except Exception as error:  # whatever it is, it is no error of fmq's
            judge.wrong.append(f"{names[number % len(wholes)]} {done}: {error!r}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    return judge


def report(judge: Judge) -> dict[str, Any]:
    count = judge.count
    said: dict[str, Any] = dict(sorted(count.items()))
    said["share that opens"] = round(count["opened"] / count["damages"], 4)
    for what in ("open", "salvage"):
        share = count[f"readable after {what}"] / max(count["messages"], 1)
        said[f"share readable after {what}"] = round(share, 4)
    said["wrong"] = len(judge.wrong)
    said["slowest in seconds"] = round(judge.slowest, 2)
    said["peak memory in MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", help="for what was wrong")
    parser.add_argument("--damages", type=int, default=5000)
    parser.add_argument("--directories", type=int, default=DIRECTORIES)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only-open", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(f"seed {args.seed}")
    signal.signal(signal.SIGALRM, _bark)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (args.mebibytes << 20, most))
    what = {"only_open": args.only_open, "directories": args.directories, "seconds": args.seconds}
    judge = run(args.damages, args.seed, **what)
    print(json.dumps(report(judge), indent=2))
    for wrong in judge.wrong[:20]:
        print(wrong)
    return 1 if judge.wrong or judge.slowest > args.seconds else 0


if __name__ == "__main__":
    sys.exit(main())

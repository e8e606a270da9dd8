#!/usr/bin/env python3
"""Kill relays, engine and broker while messages are copied: 1 if any is missing, twice or cut.

    python tools/relay_chaos.py --target kafka --seed 7 --minutes 3
    python tools/relay_chaos.py --target kafka --seed 7 --minutes 15 --until-counts

Two writers send single messages, `send_many` over two queues, and transactions over three topics,
of which some are prepared and some rolled back. Relays are killed with SIGKILL at random times and
around the calls of their target, or stopped with SIGSTOP while another one takes over, and come
back. The engine and the broker are killed, too. In the end a reader that knows no relay compares
what the target shows with the journal, message by message and transaction by transaction. For
queues of RabbitMQ, which get messages at least once, only what comes first must be in order.
With --until-counts it ends when relays, broker and engine have died often enough: 1 if they have
not in these minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from fmq.errors import FmqError
from fmq.relay import Relay, RelayBatch, RelayTakenOver
from fmq.relay.addresses import target_at
from fmq.testing.relay import Hooked
from tools.ports import free_port
from tools.relay_targets import BROKERS, HEADER, NAME, PREFIX, TOPICS, Shown

ROOT = Path(__file__).resolve().parent.parent
BATCH = 200
POINT = 0.03  # how likely a relay dies or stops at each call of its target
DRAIN_SECONDS = 150
EVENTS = {"relay killed": 6, "relay stopped": 4, "broker killed": 1, "engine killed": 1}
AT_POINT = " at a point"  # of a relay that has killed or stopped itself
ASKED = {
    f"relay killed{AT_POINT}": 30,
    f"relay stopped{AT_POINT}": 15,
    "relay killed": 5,
    "relay stopped": 3,
    "broker killed": 10,
    "engine killed": 10,
}
"""How often each has to happen with --until-counts."""


def connected(path: Path, retry_for: float) -> Any:
    """Return a client of the engine: over tcp if the file `port` is beside its directory."""
    port = path.with_name("port")
    if not port.exists():
        return fmq.connect(path, start=False, retry_for=retry_for)
    address = f"tcp://127.0.0.1:{port.read_text()}"
    return fmq.connect(address, token_file=f"{port}.token", retry_for=retry_for)


# --- the processes that are killed ----------------------------------------------------------------


def write(path: str, seed: str, folder: str) -> None:
    """Send messages until the file `stop` is there. Note what was acknowledged."""
    random, topics = Random(int(seed)), [*TOPICS]
    number = 0
    engine = connected(Path(path), 60)
    with engine, Path(folder, f"acked-{seed}").open("w") as acked:
        while not Path(folder, "stop").exists():
            time.sleep(random.expovariate(30))
            ids = [f"{seed}-{number + n}" for n in range(random.randint(2, 39))]
            number += len(ids)
            kind = random.random()
            try:
                if kind < 0.4:
                    ids = ids[:1]
                    engine.send(random.choice(topics), ids[0].encode())
                elif kind < 0.5:
                    engine.send_many("a", [each.encode() for each in ids])
                else:
                    tx = engine.transaction()
                    for each in ids:
                        topic = random.choice(topics)
                        tx.send(topic, each.encode(), queue=random.randrange(TOPICS[topic]))
                    if random.random() < 0.3:
                        tx.prepare()
                    if kind > 0.95:
                        tx.rollback()
                        ids = [f"not {each}" for each in ids]
                    else:
                        tx.commit()
            except FmqError as error:  # a lost answer: it may be there or not
                print(type(error).__name__, error, flush=True)
                continue
            acked.write("".join(f"{each}\n" for each in ids))
            acked.flush()


class Marked(Hooked):
    """A target whose messages say in which batch they came."""

    def deliver(self, batch: RelayBatch) -> None:
        said = {HEADER: uuid.uuid4().hex}
        marked = [
            each._replace(headers={**(each.headers or {}), **said}) for each in batch.messages
        ]
        super().deliver(batch._replace(messages=marked))


def relay(path: str, address: str, seed: str, point: str) -> int:
    """Run a relay that dies or stops at some of its points. Return 3 if another one has taken
    over.
    """
    random = Random(int(seed))

    def hook(_: str) -> None:
        if random.random() < float(point):
            os.kill(os.getpid(), random.choice((signal.SIGKILL, signal.SIGSTOP)))

    prefix = "" if address.startswith("postgres") else PREFIX
    with connected(Path(path), 60) as engine:
        target = Marked(target_at(address, NAME, TOPICS, prefix=prefix, engine=engine), hook)
        try:
            Relay(engine, target, topics=[*TOPICS], name=NAME, batch=BATCH).run()
        except RelayTakenOver:
            return 3
    return 0


# --- the brokers, and their readers ---------------------------------------------------------------


class Run:
    """All processes of one run, and what has happened to them."""

    SCRIPT = __file__

    def __init__(
        self, target: str, seed: int, folder: Path, *, tcp: bool = False, counts: bool = False
    ) -> None:
        self.random, self.folder, self.path = Random(seed), folder, folder / "store"
        self.counts = counts
        if tcp:
            (folder / "port").write_text(str(free_port()))
            token = folder / "port.token"
            token.touch(0o600)
            token.write_text(os.urandom(32).hex())
        (folder / "broker").mkdir()
        folder.chmod(0o755)
        self.broker = BROKERS[target](folder / "broker")
        with fmq.open(self.path) as engine:
            for topic, queues in TOPICS.items():
                engine.create_topic(topic, queues=queues)
        self.prepare()
        self.events: Counter[str] = Counter()
        self.stopping: subprocess.Popen[bytes] | None = None  # from here, and not by itself
        self.serve()
        self.writers = self.writers_of()
        self.relays: list[subprocess.Popen[bytes]] = []
        self.stopped: list[tuple[float, subprocess.Popen[bytes]]] = []
        self.until_acked()
        self.begin()

    def prepare(self) -> None:
        """Make what the target needs."""
        prefix = "" if self.broker.address.startswith("postgres") else PREFIX
        with fmq.open(self.path) as engine:
            how: Any = {"create": True, "prefix": prefix, "engine": engine}
            target_at(self.broker.address, NAME, TOPICS, **how).close()

    def writers_of(self) -> list[subprocess.Popen[bytes]]:
        return [self.spawn("write", self.path, n, self.folder) for n in (1, 2)]

    def judged(self) -> Counter[str]:
        return judged(self)

    def until_acked(self) -> None:
        """Wait until the writers have sent more."""
        before, ends = self.acked(), time.monotonic() + 120
        while self.acked() == before:
            assert time.monotonic() < ends, (self.folder / "write.log").read_text()
            time.sleep(0.1)

    def acked(self) -> int:
        return sum(each.stat().st_size for each in self.folder.glob("acked-*"))

    def spawn(self, *what: object) -> subprocess.Popen[bytes]:
        line = [sys.executable, self.SCRIPT, *map(str, what)]
        with (self.folder / f"{what[0]}.log").open("ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log)

    def serve(self) -> None:
        line = [sys.executable, "-m", "fmq", "serve", str(self.path)]
        port = self.path.with_name("port")
        if port.exists():
            line += ["--listen", f"127.0.0.1:{port.read_text()}", "--token-file", f"{port}.token"]
        with (self.folder / "serve.log").open("ab") as log:
            self.engine = subprocess.Popen(line, cwd=ROOT, stdout=log, stderr=log)

    def begin(self, point: float = POINT) -> None:
        """Begin another relay."""
        seed = self.random.randrange(1 << 30)
        self.now = self.spawn("relay", self.path, self.broker.address, seed, point)
        self.relays.append(self.now)

    def step(self) -> None:
        """Wait a moment, let relays come back, and kill something."""
        time.sleep(self.random.uniform(0.2, 2.5))  # a relay needs a second to begin
        for until, each in [pair for pair in self.stopped if pair[0] < time.monotonic()]:
            each.send_signal(signal.SIGCONT)
            self.stopped.remove((until, each))
            self.events["relay came back"] += 1
        for each in self.relays:
            if is_stopped(each) and all(each is not other for _, other in self.stopped):
                self.events["relay stopped" + AT_POINT * (each is not self.stopping)] += 1
                self.stopped.append((time.monotonic() + self.random.uniform(1, 4), each))
                if each is self.now:
                    self.begin()
        if self.now.poll() is not None:
            how = f"killed{AT_POINT}" if self.now.returncode == -signal.SIGKILL else "ended"
            self.events[f"relay {how}"] += 1
            self.begin()
            return
        weights = self.left() if self.counts else EVENTS
        (event,) = self.random.choices([*weights], [*weights.values()])
        if event == "relay killed":
            self.now.kill()
            self.now.wait()
            self.events[event] += 1
            self.begin()
        elif event == "relay stopped":
            self.stopping = self.now
            self.now.send_signal(signal.SIGSTOP)
        elif event == "broker killed":
            self.broker.stop()
            self.events[event] += 1
            time.sleep(self.random.uniform(0, 1))
            self.broker.start()
        elif event == "engine killed":
            self.engine.kill()
            self.engine.wait()
            self.events[event] += 1
            time.sleep(self.random.uniform(0, 0.5))
            self.serve()
            self.until_acked()

    def left(self) -> dict[str, int]:
        """Return what has to happen yet, and how often. What happens at points does so by
        itself.
        """
        return {what: n - self.events[what] for what, n in ASKED.items() if self.events[what] < n}

    def end(self) -> None:
        """End the writers, let every relay come back, and let one that does not die copy the
        rest.
        """
        (self.folder / "stop").touch()
        for writer in self.writers:
            writer.wait(120)
        self.begin(0.0)
        last, ends = self.now, time.monotonic() + DRAIN_SECONDS
        with connected(self.path, 30) as engine:
            while time.monotonic() < ends:
                for each in self.relays:  # they stop once more, or are fenced
                    if is_stopped(each):
                        each.send_signal(signal.SIGCONT)
                if last.poll() is not None:  # one that came back had claimed the target
                    self.begin(0.0)
                    last = self.now
                if not sum(each.unread for each in engine.groups(f"relay-{NAME}")):
                    break
                time.sleep(0.5)

    def close(self) -> None:
        for each in (*self.relays, *self.writers, self.engine):
            with suppress(ProcessLookupError):
                each.kill()
            each.wait()
        getattr(self.broker, "close", self.broker.stop)()


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return process.poll() is None and state == "T"


def judged(run: Run) -> Counter[str]:
    """Compare what the target shows with the journal, and with what the writers know."""
    found = Counter[str](dict.fromkeys(("missing", "twice", "out of order", "other bodies"), 0))
    shown: dict[tuple[str, int], list[Shown]] = defaultdict(list)
    for each in run.broker.read():
        shown[each.topic, each.queue].append(each)
    bodies, batches = set(), defaultdict(set)
    with connected(run.path, 30) as engine:
        for topic, queues in TOPICS.items():
            for queue in range(queues):
                at, sent = 0, []
                while page := engine.read(topic, queue=queue, offset=at, limit=1000):
                    sent += page
                    at += len(page)
                got = shown[topic, queue]
                offsets = [each.offset for each in got]
                found["messages"] += len(sent)
                found["missing"] += len({*range(at)} - {*offsets})
                found["twice"] += len(offsets) - len({*offsets})
                found["out of order"] += sum(a > b for a, b in pairwise(offsets))
                first = dict.fromkeys(offsets)  # without repeats
                found["out of order at first"] += sum(a > b for a, b in pairwise(first))
                by_offset = {each.offset: each for each in got}
                for message in sent:
                    bodies.add(message.body)
                    copy = by_offset.get(message.offset or 0)
                    if copy is not None and copy.body != message.body:
                        found["other bodies"] += 1
                    if message.origin is not None and message.origin.tx_id is not None:
                        batch = None if copy is None else copy.batch
                        batches[message.origin.tx_id].add(batch)
    found["transactions"] = len(batches)
    found["halves"] = sum(len(each) > 1 for each in batches.values())
    found["lost or undone here"] = 0
    for seed in (1, 2):
        for line in (run.folder / f"acked-{seed}").read_text().split("\n")[:-1]:
            is_wrong = (line.removeprefix("not ").encode() in bodies) == line.startswith("not ")
            found["lost or undone here"] += is_wrong
    return found


WRONG = ("missing", "twice", "out of order", "halves", "other bodies", "lost or undone here")
AT_LEAST_ONCE = ("missing", "other bodies", "lost or undone here", "out of order at first")
"""What is wrong about a target that may have a message twice."""


def main() -> int:
    if sys.argv[1:2] == ["write"]:
        write(*sys.argv[2:])
        return 0
    if sys.argv[1:2] == ["relay"]:
        return relay(*sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=BROKERS, default="kafka")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--tcp", action="store_true", help="clients reach the engine over tcp")
    parser.add_argument(
        "--sink", action="store_true", help="two sinks at once, which copy from Kafka"
    )
    parser.add_argument(
        "--until-counts", action="store_true", help=f"end after {ASKED}, at the latest --minutes"
    )
    args = parser.parse_args()
    kind: Callable[..., Any] = Run
    if args.sink:
        from tools import sink_chaos  # imported here, as it needs this module

        kind = sink_chaos.SinkRun
    with tempfile.TemporaryDirectory(prefix="fmq-relay-") as folder:
        run = kind(args.target, args.seed, Path(folder), tcp=args.tcp, counts=args.until_counts)
        try:
            ends = time.monotonic() + 60 * args.minutes
            while time.monotonic() < ends and (run.left() or not args.until_counts):
                run.step()
            run.end()
            found = run.judged()
        finally:
            run.close()
        codes = Counter(each.returncode for each in run.relays)
        for log in sorted(Path(folder).glob("*.log")):
            print(f"--- {log.name}", log.read_text()[-2000:], file=sys.stderr)
    said = {
        "target": args.target,
        "seed": args.seed,
        "tcp": args.tcp,
        **({"sink": True} if args.sink else {}),
        **run.events,
        "fenced": codes[3],
        **found,
    }
    print(json.dumps(said))
    is_wrong = AT_LEAST_ONCE if args.target == "rabbitmq-queues" else WRONG
    is_short = args.until_counts and bool(run.left())
    return int(is_short or any(found[what] for what in is_wrong))


if __name__ == "__main__":
    sys.exit(main())

"""`fmq demo`: a transaction, a kill, a recovery and a decision, in half a minute.

Everything is real: the directory, the process that is killed, what is read back. The directory
stays, with one transaction undecided, to be looked at with the other verbs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fmq
from fmq.cli.codes import ERROR, FINE, USAGE
from fmq.cli.output import Column, Output, Row, note
from fmq.cli.tx import OUTCOME, RECEIPT, UNDECIDED, outcome_row, undecided_row
from fmq.findings.text import counted, exact, plain, size

TOPICS = ("orders", "emails", "audit")
PRODUCER = "checkout"
SETTLED, LEFT = "order-2", "order-3"
GROUP = "warehouse"

# The program of the child, with the directory as its argument. It does nothing after its kill.
CHILD = """
import sys
from fmq.cli.demo import prepare_and_wait
prepare_and_wait(sys.argv[1])
"""


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "demo",
        parents=[common],
        help="a kill and a recovery, on a real directory",
        description=__doc__,
    )
    parser.add_argument(
        "dir", metavar="NEW", nargs="?", help="a new directory; by default ./fmq-demo"
    )
    parser.add_argument(
        "--home",
        action="store_true",
        help="another story: a machine is killed, and one that stands by goes on",
    )
    parser.set_defaults(run=run, auto="table")  # text for people, even if it goes into a pipe


def run(args: argparse.Namespace, output: Output) -> int:
    path = args.dir or _fresh("fmq-demo")
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        note(f"{path} exists, and the demo wants a directory of its own: name a new one")
        return USAGE
    if args.home:
        from fmq.cli.demo_home import run_home  # here, as most have no home

        return run_home(path, output)
    _first_transaction(path, output)
    if not _kill_a_producer(path, output):
        return ERROR
    with fmq.open(path) as engine:
        _recovery(engine, output)
        before = _visible(engine)
        _undecided(engine, output)
        _settle(engine, output)
        _before_and_after(before, _visible(engine), output)
        _consume(engine, output)
    _what_next(path, output)
    return FINE


def _fresh(name: str) -> str:
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(free for free in names if not os.path.lexists(free))


def _send_order(tx: fmq.Transaction, number: int) -> None:
    customer = f"c-{number}"
    tx.send("orders", f"order {number}: two lamps".encode(), key=customer, tag="new")
    tx.send("emails", f"receipt for order {number}".encode(), key=customer)
    tx.send_many("audit", [f"order {number} taken".encode(), f"order {number} paid".encode()])


def _first_transaction(path: str, output: Output) -> None:
    output.say("1  A transaction over three topics", heading=True)
    with fmq.open(path) as engine:
        syncs = engine.stats().syncs
        with engine.transaction(tx_id="order-1", producer=PRODUCER) as tx:
            _send_order(tx, 1)
        syncs = engine.stats().syncs - syncs
        output.say(f"   {path} is new. {PRODUCER} sent order-1 to three topics and committed it")
        output.say(f"   ({counted(syncs, 'sync')} of the disk), and readers saw all of it at once:")
        output.rows("receipt", RECEIPT, (each._asdict() for each in tx.commit()))


def _kill_a_producer(path: str, output: Output) -> bool:
    output.say("2  A producer is killed between prepare and commit", heading=True)
    root = str(Path(fmq.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        # the terminal's interrupt reaches this process only, which then kills the child
        start_new_session=True,
    )
    with child:
        assert child.stdout is not None
        try:
            said = child.stdout.readline().strip()
        finally:
            child.send_signal(signal.SIGKILL)
    if said != "prepared":
        note(f"the demo's child process failed ({said or 'it said nothing'})")
        return False
    output.say(f"   Process {child.pid} prepared {SETTLED} and {LEFT}. Their messages are durable,")
    output.say("   sealed and invisible, and the process would now commit in its database.")
    output.say(f"   Instead: kill -9 {child.pid} (it ended with {child.returncode}).")
    return True


def prepare_and_wait(path: str) -> None:
    """Send and prepare, in the child process, and then wait to be killed."""
    with fmq.open(path) as engine:
        for number in (2, 3):
            tx = engine.transaction(tx_id=f"order-{number}", producer=PRODUCER)
            _send_order(tx, number)
            tx.prepare()
        try:
            os.write(sys.stdout.fileno(), b"prepared\n")
        except BrokenPipeError:
            return  # an interrupt came while the demo was starting this process
        sys.stdin.read()


def _recovery(engine: fmq.Engine, output: Output) -> None:
    output.say("3  Opening the directory again recovers it", heading=True)
    output.facts("recovery", asdict(engine.stats().recovery), RECOVERY)


def _undecided(engine: fmq.Engine, output: Output) -> None:
    output.say("4  What the crash left is undecided: neither lost nor visible", heading=True)
    output.rows("undecided", UNDECIDED[:-1], map(undecided_row, engine.undecided()))


def _settle(engine: fmq.Engine, output: Output) -> None:
    output.say(f"5  {SETTLED} is settled: say its database had committed", heading=True)
    outcome = engine.decide(
        SETTLED, "commit", reason="the database has the order", decided_by="fmq demo"
    )
    output.facts("outcome", outcome_row(outcome), DECIDED)


def _visible(engine: fmq.Engine) -> dict[str, list[fmq.Message]]:
    return {topic: engine.read(topic) for topic in TOPICS}


def _before_and_after(
    before: dict[str, list[fmq.Message]], after: dict[str, list[fmq.Message]], output: Output
) -> None:
    output.say("6  What readers see, before the decision and after it", heading=True)
    rows = (
        {
            "topic": topic,
            "before": [bytes(message.body).decode() for message in before[topic]],
            "after": [bytes(message.body).decode() for message in after[topic]],
        }
        for topic in TOPICS
    )
    output.rows("visible", VISIBLE, rows)


def _consume(engine: fmq.Engine, output: Output) -> None:
    output.say(f"7  A consumer of the group {GROUP!r} takes the orders and acks them", heading=True)
    rows: list[Row] = []
    with engine.consumer("orders", group=GROUP) as consumer:
        for delivery in consumer.poll():
            delivery.ack()
            names = ("topic", "queue", "offset", "key", "tag", "body")
            row = {name: getattr(delivery, name) for name in names}
            rows.append(row | {"body": delivery.body.decode(), "tx_id": delivery.message.tx_id})
    output.rows("delivery", DELIVERIES, rows)


def _what_next(path: str, output: Output) -> None:
    output.say(f"8  {path} stays. {LEFT} is still undecided; it is yours", heading=True)
    command = _command()
    directory = shlex.quote(path)
    rows = (
        {"run": f"{command} {verb}", "why": why}
        for verb, why in (
            (f"tx list {directory}", "what waits for a decision"),
            (f"tx show {directory} {LEFT}", "what it would publish"),
            (f"tx decide {directory} {LEFT} rollback --reason 'never paid'", "settle it"),
            (f"records {directory}", "the raw journal, a line per record"),
            (f"info {directory}", "segments, queues, groups, sizes"),
            (f"verify {directory}", "prove it sound"),
        )
    )
    output.commands("next", rows)


def _command() -> str:
    """Return the command line that starts this command."""
    if shutil.which("fmq"):
        return "fmq"
    python = os.path.relpath(sys.executable)
    return f"{shlex.quote(min(python, sys.executable, key=len))} -m fmq"


def _lines(bodies: list[str]) -> str:
    return "\n".join(map(plain, bodies)) or "nothing"


DECIDED = tuple(column for column in OUTCOME if column.key not in ("prepared_at", "position"))
RECOVERY = (
    Column("clean", "closed cleanly", show=lambda clean: "yes" if clean else "no, it was killed"),
    Column("replayed_bytes", "replayed", show=size),
    Column("cut_bytes", "unfinished", show=lambda count: size(count) + " cut"),
    Column(
        "copied",
        "copied",
        show=lambda copied: "the last segment, so that all of it is durable" if copied else "",
    ),
    Column("undecided", "undecided"),
)
VISIBLE = (
    Column("topic", "topic", style="cyan"),
    Column("before", "before", show=_lines),
    Column("after", "after", show=_lines),
)
DELIVERIES = (
    Column("", "queue", of_row=lambda row: f"{row['topic']}/{row['queue']}", style="cyan"),
    Column("offset", "offset", right=True, show=exact),
    Column("key", "key"),
    Column("tag", "tag"),
    Column("body", "body"),
    Column("tx_id", "transaction"),
)

"""What is imported when: names with `import fmq`, and all that an engine needs by `fmq.open`.

A fork in the instant in which another thread imports leaves the lock of that module taken in the
child for ever. The child hangs once it imports the same module, for instance in its own `fmq.open`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fmq
from fmq.bind import ddl

EVERYTHING = """
import json, sys
import fmq

def use(engine):
    engine.send("t", b"body", key="k", tag="g", headers={"a": "b"})
    engine.send_many("t", [b"x" * 5000, fmq.Message(b"", "k")])
    with engine.transaction() as tx:
        tx.send("t", b"in one phase")
    def local(tx):
        return "commit"
    engine.send_in_transaction([("t", b"local")], local, producer="shop")
    for number, decision in enumerate(("commit", "rollback")):
        tx = engine.transaction(tx_id=f"T{number}", producer="hand", check_after=0.0)
        tx.send("t", b"y" * 5000)
        tx.prepare()
        (question,) = engine.feedback.ask("hand", wait=1.0)
        engine.feedback.answer(question, "unknown")
        engine.decide(tx.tx_id, decision)
        engine.outcome(tx.tx_id)
    tx = engine.transaction(tx_id="asked", producer="shop", check_after=0.0)
    tx.send("t", b"z")
    tx.prepare()
    engine.checker("shop")(lambda question: "commit")
    engine.settle(timeout=10)
    def fails(question):
        raise RuntimeError("no database")
    engine.checker("failing")(fails)
    tx = engine.transaction(tx_id="failing", producer="failing", check_after=0.0)
    tx.send("t", b"z")
    tx.prepare()
    engine.settle(timeout=1)
    engine.undecided()
    engine.feedback.resume("failing")
    engine.decide("failing", "rollback")
    with engine.consumer("t", group="g") as consumer:
        consumer.poll(limit=1)[0].ack()
        batch = consumer.poll_batch(limit=2)
        with engine.transaction() as tx:
            tx.ack(batch)
        for delivery in consumer.poll(limit=3):
            delivery.release()
        [str(each.time) for each in consumer.poll()]
    engine.read("t")
    engine.read_batch("t", limit=3).messages
    for refused in (lambda: engine.read("t", queue=7), lambda: engine.decide("T0", "rollback")):
        try:
            refused()
        except fmq.FmqError as error:
            str(error)
    engine.queues(), engine.groups(), engine.stats(), engine.options
    for number in range(600):
        engine.send("roll", b"-" * 1000)
    engine.checkpoint()
    engine.sync()
    str(engine.stats())

def look(engine):
    engine.read("t"), engine.queues(), engine.undecided()
    engine.outcome("T0")

"""
RUN = {
    "a writer": """
options = fmq.Options(segment_bytes=1 << 16, retain_bytes=1 << 17, checkpoint_bytes=1 << 16,
                      relocate_bytes=1 << 16)
with fmq.open({path!r}, options, background={background}) as engine:
    before = set(sys.modules)
    old = engine.transaction(tx_id="old", producer="hand")
    old.send("t", b"w" * 5000)
    old.prepare()
    use(engine)
    engine.close()
""",
    "a writer bound to a database": """
import sqlite3
with fmq.open({path!r}, background={background}) as engine:
    before = set(sys.modules)
    database = sqlite3.connect({path!r} + ".db")
    database.execute({ddl!r})
    with engine.transaction(producer="shop", bind=database) as tx:
        tx.send("t", b"")
    engine.settle()
""",
    "a reader": """
with fmq.open({path!r}, read_only=True, background={background}) as engine:
    before = set(sys.modules)
    look(engine)
""",
}

OF_DRIVERS = {
    "a writer bound to a database": {
        "fmq.bind.dialects",
        "fmq.bind.sqlite",
        "ipaddress",
        "urllib",
        "urllib.parse",
    }
}


def imported_late(tmp_path: Path, run: str, *, background: bool) -> list[str]:
    """The modules that a program imports after `fmq.open`, whatever it does with the engine."""
    if run == "a reader":
        with fmq.open(tmp_path / "d", background=False) as engine:
            tx = engine.transaction(tx_id="T0")
            tx.send_many("t", [fmq.Message(b"x" * 5000, "k"), fmq.Message(b"", None, "t")])
            tx.prepare()
            tx.commit()
            engine.transaction(tx_id="left").prepare()
    script = EVERYTHING + RUN[run].format(
        path=str(tmp_path / "d"), background=background, ddl=ddl("sqlite")
    )
    script += "\nprint(json.dumps(sorted(set(sys.modules) - before)))\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("run", RUN)
def test_an_open_engine_imports_no_more_modules(tmp_path: Path, run: str, background: bool) -> None:
    """Modules that a database driver needs are the exception."""
    assert set(imported_late(tmp_path, run, background=background)) <= OF_DRIVERS.get(run, set())

"""A child process under load on the real disk, killed at random moments.

The child says on its pipe what was acknowledged, a line each, after the call returned. The
parent kills it, opens the directory, and finds all of it, whole and in order; the next child
goes on in the same directory.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import fmq

ROUNDS = 8
ROOT = Path(__file__).parent.parent
CHILD = """
import sys, threading
import fmq

def work(engine, me, start):
    for i in range(start, start + 100_000):
        body = b"%d.%d" % (me, i)
        if i % 3:
            engine.send("t%d" % me, body)
        else:
            tx = engine.transaction(tx_id=body.decode())
            tx.send("t%d" % me, body)
            tx.send("both", body)
            if i % 2:
                tx.prepare()
            tx.commit()
        sys.stdout.write("%d.%d\\n" % (me, i))
        sys.stdout.flush()

options = fmq.Options(segment_bytes=65536, checkpoint_bytes=16384)
with fmq.open(sys.argv[1], options) as engine:
    start = int(sys.argv[2])
    threads = [threading.Thread(target=work, args=(engine, me, start)) for me in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """Also with several threads that share syncs, and over many lives of one directory."""
    seed = random.randrange(1 << 30)
    chosen = random.Random(seed)
    acked: set[str] = set()
    for number in range(ROUNDS):
        acked |= killed_child(tmp_path / "data", number * 1_000_000, chosen.uniform(0.1, 0.5))
        with fmq.open(tmp_path / "data", background=False) as engine:
            for tx in engine.undecided():
                engine.decide(tx.tx_id, "commit")
            shown = [bodies(engine, f"t{me}") for me in range(3)]
            both = bodies(engine, "both")
        found = [body for lane in shown for body in lane]
        assert acked <= set(found), f"{seed=} {number=}"
        assert len(found) == len(set(found)), f"{seed=} {number=}"
        for lane in shown:
            assert lane == sorted(lane, key=sequence), f"{seed=} {number=}"
        assert sorted(both) == sorted(b for b in found if sequence(b) % 3 == 0), f"{seed=}"
    assert acked, "no round got as far as one message"
    assert fmq.check(tmp_path / "data").ok


def killed_child(path: Path, start: int, seconds: float) -> set[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(start)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(seconds)  # of real time: the moment of the kill is what is being tried
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read()
    child.wait()
    child.stdout.close()
    # The last line may be cut short by the kill.
    return {line.strip() for line in (first + rest).splitlines(keepends=True) if line[-1] == "\n"}


def bodies(engine: fmq.Engine, topic: str) -> list[str]:
    return [bytes(each.body).decode() for each in engine.read(topic, limit=10_000_000)]


def sequence(body: str) -> int:
    return int(body.split(".")[1])

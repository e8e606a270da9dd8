#!/usr/bin/env python3
"""Kill an engine and the backups of its journal again and again: 1 if a backup is not a prefix.

    python tools/kill_backup.py DIR --kills 50 --seed 1

An engine commits transactions over two topics, prepares some that it never decides, and drops what
is old. Beside it `fmq backup` runs, and is killed at random, and so is the engine. After each kill
of the tool the backup that it has left is restored, and after each whole run the new one. What
comes back must be sound, hold all that was acknowledged before the run began, and each transaction
as a whole.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = fmq.Options(segment_bytes=1 << 20, first_segment_bytes=64 * 1024, retain_bytes=8 << 20)
BODY_BYTES = 2000


def work(path: Path, acknowledged: Path) -> None:
    """Commit transactions until a kill, each in both topics. Write down what is committed."""
    with fmq.open(path, OPTIONS) as engine, acknowledged.open("a") as noted:
        begun = engine.queues("t")
        for number in count(begun[0].next if begun else 0):
            with engine.transaction() as tx:
                for topic in ("t", "u"):
                    tx.send(topic, b"%d" % number + bytes(BODY_BYTES))
            noted.write(f"{number}\n")
            noted.flush()
            if number % 50 == 0:
                open_ended = engine.transaction(tx_id=f"{number} {time.time_ns()}")
                open_ended.send("t", b"never")
                open_ended.prepare()
                for each in engine.undecided()[:-3]:
                    engine.decide(each.tx_id, "rollback")


def last_of(acknowledged: Path) -> int:
    """The last transaction that was acknowledged; -1 if none was."""
    lines = acknowledged.read_text().split("\n")[:-1] if acknowledged.exists() else []
    return int(lines[-1]) if lines else -1


def judge(backup: Path, folder: Path, at_least: int) -> str:
    """Restore `backup`, and return what is wrong with it, or ""."""
    again = folder / "again"
    shutil.rmtree(again, ignore_errors=True)
    fmq.restore(backup, again)
    if not (report := fmq.check(again)).ok:
        return str(report.problems)
    with fmq.open(again, OPTIONS, background=False) as engine:
        numbers = []
        for topic in ("t", "u"):
            (queue,) = engine.queues(topic)
            found = engine.read(topic, offset=queue.next - 1)
            numbers.append(int(found[0].body.rstrip(b"\0")))
            for offset in range(queue.first, queue.next, 97):
                (message,) = engine.read(topic, offset=offset, limit=1)
                if int(message.body.rstrip(b"\0")) != offset:
                    return f"{topic} has {message.body[:9]!r} at the offset {offset}"
        if numbers[0] != numbers[1]:
            return f"half of a transaction: the topics end with {numbers}"
        if numbers[0] < at_least:
            return f"it ends with {numbers[0]}, and {at_least} was acknowledged before"
        for each in engine.undecided():
            engine.decide(each.tx_id, "commit")  # its bodies are there
    return ""


def run(folder: Path, kills: int, random: Random) -> int:
    """Kill engine and tool until both together have been killed `kills` times."""
    path, backup, acknowledged = folder / "shop", folder / "backup", folder / "acknowledged"
    me = [sys.executable, __file__, str(folder)]
    engine = subprocess.Popen([*me, "--work"])
    killed, whole, kept = {"engine": 0, "backup": 0}, 0, -1
    while last_of(acknowledged) < 0:
        time.sleep(0.01)
    while sum(killed.values()) < kills or not whole:
        known = last_of(acknowledged)
        tool = subprocess.Popen(
            [sys.executable, "-m", "fmq", "backup", path, backup],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        victim = random.choice(("engine", "backup", "nobody"))
        time.sleep(random.uniform(0.1, 1.2))
        if victim == "engine":
            engine.kill()
            engine.wait()
            engine = subprocess.Popen([*me, "--work"])
            killed[victim] += 1
        elif victim == "backup" and tool.poll() is None:
            tool.kill()
            killed[victim] += 1
        code = tool.wait()
        if code == 0:
            kept, whole = known, whole + 1
        elif code != -9:
            print(f"fmq backup ended with {code}")
            return 1
        if (backup / "BACKUP").exists() and (wrong := judge(backup, folder, kept)):
            print(f"after {killed}: {wrong}")
            return 1
    engine.kill()
    engine.wait()
    print(f"{whole} backups were made and {killed} killed; {last_of(acknowledged)} transactions")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kill-backup-"))
    folder.mkdir(parents=True, exist_ok=True)
    if args.work:
        work(folder / "shop", folder / "acknowledged")
        return 0
    print(f"seed {args.seed}, in {folder}")
    return run(folder, args.kills, Random(args.seed))


if __name__ == "__main__":
    sys.exit(main())

"""Measure the processor time and the memory of fmq's server, and of RocketMQ's broker and proxy.

    python contrib/fmq-rocketmq/tools/costs.py [--count 1000] [--idle 20]

RocketMQ's own Python client makes the same calls against both, one after the other. What is counted
is the time that the server's processes take, so it changes less with the load of the machine than
the time that passes. As many calls come first and are not counted, so that Java has warmed up.
RocketMQ comes by Maven; where it is not to be had, the command says so, and its exit code is 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clients import PROGRAMS
from real_rocketmq import VERSION, NotToBeHad, RealRocketMQ, bring, go_inside
from served import Served

KINDS = "send", "transaction", "receive"
TOPICS = {"python-n": "NORMAL", "python-tx": "TRANSACTION"}
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time that these processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def megabytes(pids: list[int]) -> float:
    """Return the memory that these processes have."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * PAGE / 1e6


def calls(address: str, kind: str, count: int) -> None:
    """Let the client make its calls. Raises NotToBeHad if it has not made all."""
    command = [sys.executable, str(PROGRAMS / "costs.py"), address, kind, str(count)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.stdout.strip() != str(count):
        raise NotToBeHad(f"the client made {run.stdout!r} of {count} calls: {run.stderr[-300:]}")


def measured(address: str, pids: list[int], count: int, idle: float) -> dict[str, float]:
    """Return the costs by name."""
    found = {"memory at the start, MB": megabytes(pids)}
    for kind in KINDS:
        calls(address, kind, count)
    for kind in KINDS:
        before = processor_seconds(pids)
        calls(address, kind, count)
        name = "receive and ack" if kind == "receive" else kind
        found[f"{name}, ms of a processor"] = (processor_seconds(pids) - before) / count * 1000
    before = processor_seconds(pids)
    time.sleep(idle)
    found["idle after that, % of a processor"] = (processor_seconds(pids) - before) / idle * 100
    found["memory after that, MB"] = megabytes(pids)
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--idle", type=float, default=20.0)
    chosen = parser.parse_args()
    try:
        bring()
        go_inside()
        with tempfile.TemporaryDirectory() as path:
            served = Served(Path(path) / "store")
            served.start()
            try:
                ours = measured(served.address, [served.pid], chosen.count, chosen.idle)
            finally:
                served.kill()
        with tempfile.TemporaryDirectory() as path:
            real = RealRocketMQ(Path(path), TOPICS, [])
            try:
                real.start()
                pids = [real.processes[each].pid for each in ("broker", "proxy")]
                theirs = measured(real.address, pids, chosen.count, chosen.idle)
            finally:
                real.close()
    except NotToBeHad as error:
        print(f"skipped: {error}")
        return 0
    print(f"| | fmq | RocketMQ {VERSION}, broker and proxy | ratio |")
    print("| --- | --- | --- | --- |")
    for name, value in ours.items():
        ratio = theirs[name] / value if value else float("inf")
        print(f"| {name} | {value:.2f} | {theirs[name]:.2f} | {ratio:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

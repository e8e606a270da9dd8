"""What `fmq ship --every 1` loses at most, and what it costs, beside a busy engine.

Run `python -m benchmarks.ship`. A program sends 10,000 messages a second, one by one, with
sync="interval". Beside it the tool ships to a directory, which is looked at every 20 ms. What a
disk that is lost at that moment would take is the time since the oldest message that was
acknowledged and is not there yet. The share of a core is the processor time of the tool after its
first round, divided by the time that went by.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from pathlib import Path

import fmq
from fmq.copies.ship_pieces import listing

BODY = b"s" * 100
TICK = 0.01


def work(path: Path, rate: int, seconds: float) -> None:
    """Send at `rate`. Print for each tick its time, and the position of what was acknowledged."""
    with fmq.open(path, fmq.Options(sync="interval")) as engine:
        began, sent = time.monotonic(), 0
        while (now := time.monotonic()) < began + seconds:
            while sent < (now - began) * rate:
                receipt = engine.send("t", BODY)
                sent += 1
            print(time.monotonic(), receipt.position, flush=True)
            time.sleep(TICK)
        print(sent / (time.monotonic() - began), -1, flush=True)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end_of(place: Path) -> int:
    """Return up to which position the place has the journal; 0 before its first round is over."""
    found = listing(each.name for each in place.iterdir()) if place.is_dir() else None
    return max((piece.end for piece in found.pieces), default=0) if found and found.is_ready else 0


def measure(folder: Path, rate: int, seconds: float, every: float) -> dict[str, float]:
    path, place, said = folder / "data", folder / "place", folder / "said"
    me = [sys.executable, "-m", "benchmarks.ship", "--work", str(path)]
    how = ["--rate", str(rate), "--seconds", str(seconds)]
    with said.open("w") as out:
        engine = subprocess.Popen([*me, *how], stdout=out)
    while not said.read_text():
        time.sleep(TICK)
    verb = [sys.executable, "-m", "fmq", "ship", str(path), str(place), "--every", str(every)]
    tool = subprocess.Popen(verb, stdout=subprocess.DEVNULL)
    while not end_of(place):
        time.sleep(TICK)
    began, used = time.monotonic(), processor_seconds(tool.pid)
    looks = []
    while engine.poll() is None:
        looks.append((time.monotonic(), end_of(place)))
        time.sleep(2 * TICK)
    # The engine stops a moment after its last send, and the tool has nothing to do then.
    ended, used = looks[-1][0], processor_seconds(tool.pid) - used
    tool.terminate()
    tool.wait()
    *lines, last = [line.split() for line in said.read_text().splitlines()]
    times, positions = [float(a) for a, _ in lines], [int(b) for _, b in lines]
    lost = []
    for when, end in looks:
        # The first tick of which something is missing.
        at = bisect_right(positions, end - 1)
        if at < len(times) and times[at] <= when:
            lost.append(when - times[at])
    lost.sort()
    return {
        "sends a second": round(float(last[0])),
        "loss in seconds, half of all looks": round(lost[len(lost) // 2], 2),
        "loss in seconds, the most": round(lost[-1], 2),
        "share of a core": round(used / (ended - began), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.rate, args.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors before")
        for name, value in measure(Path(folder), args.rate, args.seconds, args.every).items():
            print(f"{name:36} {value:,}")


if __name__ == "__main__":
    main()

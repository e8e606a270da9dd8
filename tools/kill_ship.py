#!/usr/bin/env python3
"""Kill an engine and the tool that ships its journal: 1 if what was shipped is not a prefix.

    python tools/kill_ship.py DIR --kills 50 --seed 1 --seconds 120

An engine commits transactions over two topics, prepares some that it never decides, and drops what
is old, as `tools/kill_backup.py` has it. Beside it `fmq ship` runs, and is killed at random, and so
is the engine. After each kill what was shipped is restored. It must be sound and have each
transaction as a whole. After the engine is killed the tool is told to end, and what it has shipped
then must hold all that was acknowledged.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.kill_backup import ROOT, judge, last_of, work

EVERY = 0.2


def ship(path: Path, place: Path) -> subprocess.Popen[bytes]:
    """Start the tool."""
    verb = [sys.executable, "-m", "fmq", "ship", str(path), str(place), "--every", str(EVERY)]
    return subprocess.Popen(verb, cwd=ROOT, stdout=subprocess.DEVNULL)


def wait_for(place: Path, tool: subprocess.Popen[bytes]) -> None:
    """Wait until there is something to restore."""
    while not [*place.glob("*.ready")] and tool.poll() is None:
        time.sleep(0.01)


def run(folder: Path, kills: int, seconds: float, random: Random) -> int:
    """Kill engine and tool until both together have been killed `kills` times."""
    path, place, acknowledged = folder / "shop", folder / "place", folder / "acknowledged"
    me = [sys.executable, __file__, str(folder)]
    engine = subprocess.Popen([*me, "--work"])
    while last_of(acknowledged) < 0:
        time.sleep(0.01)
    tool, killed = ship(path, place), {"engine": 0, "tool": 0}
    wait_for(place, tool)
    kept, ends = -1, time.monotonic() + seconds
    while sum(killed.values()) < kills and time.monotonic() < ends:
        victim = random.choice(("engine", "tool"))
        time.sleep(random.uniform(0.1, 1.5))
        killed[victim] += 1
        if victim == "engine":
            known = last_of(acknowledged)
            engine.kill()
            engine.wait()
            tool.terminate()
            code = tool.wait()
            if code == 0:
                kept = known
            elif code not in (-signal.SIGTERM, 130):  # before its first round had begun, or ended
                print(f"fmq ship has ended with {code}")
                return 1
        else:
            tool.kill()
            tool.wait()
        if wrong := judge(place, folder, kept):
            print(f"after {killed}: {wrong}")
            return 1
        if victim == "engine":
            engine = subprocess.Popen([*me, "--work"])
        tool = ship(path, place)
    for each in (tool, engine):
        each.kill()
        each.wait()
    print(f"{killed} were killed; {last_of(acknowledged)} transactions")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kill-ship-"))
    folder.mkdir(parents=True, exist_ok=True)
    if args.work:
        work(folder / "shop", folder / "acknowledged")
        return 0
    print(f"seed {args.seed}, in {folder}")
    return run(folder, args.kills, args.seconds, Random(args.seed))


if __name__ == "__main__":
    sys.exit(main())

"""Run the same unmodified clients of RocketMQ against fmq and against a real RocketMQ, and print
what each has seen, scenario by scenario.

    python contrib/fmq-rocketmq/tools/beside_rocketmq.py [python] [java] [node]

RocketMQ comes by Maven, the clients as clients.py says. Where something is not to be had, the
command says so, and its exit code is 0. It is 1 if fmq is not right in a scenario.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from clients import CLIENTS, EXPECTED, is_right, seen_by
from real_rocketmq import VERSION, NotToBeHad, RealRocketMQ, bring, go_inside
from served import FIFO, Served

TYPES = {"n": "NORMAL", "tx": "TRANSACTION", "tx2": "TRANSACTION", "d": "DELAY", "f": "FIFO"}


def with_fmq(command: list[str]) -> dict[str, str]:
    """Return what a client sees of fmq."""
    with tempfile.TemporaryDirectory() as path:
        server = Served(Path(path) / "store")
        server.start()
        try:
            return seen_by(command, server)
        finally:
            server.kill()


def with_rocketmq(commands: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """Return what each client sees of RocketMQ."""
    topics = {f"{name}-{topic}": kind for name in commands for topic, kind in TYPES.items()}
    with tempfile.TemporaryDirectory() as path:
        server = RealRocketMQ(Path(path), topics, FIFO)
        try:
            server.start()
            return {name: seen_by(command, server) for name, command in commands.items()}
        finally:
            server.close()


def main() -> int:
    """Print the table. Return 1 if fmq is not right."""
    names = sys.argv[1:] or list(CLIENTS)
    try:
        commands = {name: CLIENTS[name]() for name in names}
        bring()
        go_inside()
        with_ours = {name: with_fmq(command) for name, command in commands.items()}
        with_theirs = with_rocketmq(commands)
    except NotToBeHad as error:
        print(f"skipped: {error}")
        return 0
    wrong = 0
    print(
        f"| scenario | client | fmq | RocketMQ {VERSION} | right |\n| --- | --- | --- | --- | --- |"
    )
    for scenario in EXPECTED:
        for name in names:
            ours, theirs = with_ours[name].get(scenario), with_theirs[name].get(scenario)
            if ours is None and theirs is None:
                continue  # this client has no such scenario
            right = [
                at for at, seen in (("fmq", ours), ("RocketMQ", theirs)) if is_right(scenario, seen)
            ]
            wrong += "fmq" not in right
            shown = " and ".join(right) if len(right) < 2 else "both"
            print(f"| {scenario} | {name} | {ours} | {theirs} | {shown or 'none'} |")
    for at, found in (("fmq", with_ours), ("RocketMQ", with_theirs)):
        for name, seen in found.items():
            for scenario in seen.keys() - EXPECTED.keys():
                print(f"\n{name} with {at}: {scenario}: {seen[scenario]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

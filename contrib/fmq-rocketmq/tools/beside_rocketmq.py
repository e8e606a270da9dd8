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


def rows(name: str, ours: dict[str, str], theirs: dict[str, str]) -> int:
    """Print what one client has seen. Return how often fmq was not right."""
    wrong = 0
    for scenario in EXPECTED:
        seen = ours.get(scenario), theirs.get(scenario)
        if seen == (None, None):
            continue  # this client has no such scenario
        right = [is_right(scenario, each) for each in seen]
        wrong += not right[0]
        shown = {(True, True): "both", (True, False): "fmq", (False, True): "RocketMQ"}
        cells = scenario, name, *seen, shown.get((right[0], right[1]), "none")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    for at, found in (("fmq", ours), ("RocketMQ", theirs)):
        for scenario in found.keys() - EXPECTED.keys():
            print(f"{name} with {at}: {scenario}: {found[scenario]}", file=sys.stderr)
    return wrong


def main() -> int:
    """Print the table. Return 1 if fmq is not right."""
    names = sys.argv[1:] or list(CLIENTS)
    try:
        commands = {name: CLIENTS[name]() for name in names}
        bring()
        go_inside()
        with tempfile.TemporaryDirectory() as path:
            topics = {f"{name}-{topic}": kind for name in names for topic, kind in TYPES.items()}
            real = RealRocketMQ(Path(path), topics, FIFO)
            try:
                real.start()
                print(f"| scenario | client | fmq | RocketMQ {VERSION} | right |")
                print("| --- | --- | --- | --- | --- |", flush=True)
                wrong = sum(
                    rows(name, with_fmq(command), seen_by(command, real))
                    for name, command in commands.items()
                )
            finally:
                real.close()
    except NotToBeHad as error:
        print(f"skipped: {error}")
        return 0
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What scrapes of Prometheus change for others: `python -m benchmarks.scraped [--groups 20]`.

A process serves a directory with that many groups and a page of metrics. Two clients, processes of
their own, send as fast as they can. In turns nobody scrapes, or a scraper asks once a second, which
is 15 times as often as Prometheus does by default. The order of each pair of turns is drawn from
the seed. It prints the ratio of the rates of both, for each pair and the median, and how long the
scrapes took.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
import urllib.request
from multiprocessing.connection import Connection

import fmq
from fmq.metrics import MetricsPage

CLIENTS, TURN_SECONDS = 2, 3.0


def send_on(path: str, pipe: Connection) -> None:
    """Send for each turn that the pipe asks for, and answer with how much was sent."""
    with fmq.connect(path) as client:
        pipe.send(0)
        while pipe.recv():
            end, sent = time.monotonic() + TURN_SECONDS, 0
            while time.monotonic() < end:
                client.send("orders", b"x" * 100)
                sent += 1
            pipe.send(sent)


def turn(pipes: list[Connection], url: str | None, took: list[float]) -> float:
    """Return how many messages a second were sent in one turn, with scrapes of `url` meanwhile."""
    for pipe in pipes:
        pipe.send(True)
    end = time.monotonic() + TURN_SECONDS
    while url is not None and time.monotonic() < end - 0.1:
        begin = time.monotonic()
        with urllib.request.urlopen(url) as answer:
            answer.read()
        took.append(time.monotonic() - begin)
        time.sleep(max(min(1.05, end - time.monotonic()) - (time.monotonic() - begin), 0))
    return sum(pipe.recv() for pipe in pipes) / TURN_SECONDS


def serve(path: str, groups: int, pipe: Connection) -> None:
    """Serve a directory and its metrics until the pipe says something."""
    with fmq.open(path) as engine, engine.serve(), MetricsPage(engine, "127.0.0.1:0") as page:
        engine.send("orders", b"one")
        for i in range(groups):
            engine.create_group(f"group {i}", "orders")
        pipe.send(page.url)
        pipe.recv()


def main() -> None:
    """Measure, and print a line for each pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    made = multiprocessing.get_context("spawn")
    order, took, ratios = random.Random(chosen.seed), [], []
    with tempfile.TemporaryDirectory() as path:
        here, there = made.Pipe()
        server = made.Process(target=serve, args=(path, chosen.groups, there))
        server.start()
        url, pipes, clients = here.recv(), [], []
        for _ in range(CLIENTS):
            near, far = made.Pipe()
            clients.append(made.Process(target=send_on, args=(path, far)))
            clients[-1].start()
            pipes.append(near)
            near.recv()
        turn(pipes, None, took)
        for _ in range(chosen.pairs):
            rates = {}
            for is_scraped in order.sample([False, True], 2):
                rates[is_scraped] = turn(pipes, url if is_scraped else None, took)
            ratios.append(rates[True] / rates[False])
            print(
                f"{rates[False]:8,.0f}/s alone  {rates[True]:8,.0f}/s scraped  {ratios[-1]:.3f} x"
            )
        for pipe in pipes:
            pipe.send(False)
        here.send(None)
        for each in (*clients, server):
            each.join()
    print(f"median {statistics.median(ratios):.3f} x of the rate alone, {chosen.groups} groups")
    print(f"{len(took)} scrapes, half of them within {statistics.median(took) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()

"""Many processes beside Redis and sqlite3: `python -m benchmarks.processes`.

Each process sends messages of 100 bytes, one durable call after the other, for as long as all of
them run. The subjects take turns in each round. A rate is the median of the rounds, and a ratio the
median of the rounds' ratios, so a machine that is busy for a while slows both of its sides.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fmq
from benchmarks.peers import sqlite
from fmq.remote.remote_engine import RemoteEngine

BODY = bytes(range(100))
MANY = [BODY] * 1000
LONE_CALLS = 2000
WAKES = 500
WAKE_PAUSE = 0.003  # seconds, after which the consumer waits again
TURN = 100  # lone calls of one subject before the other one's
Call = Callable[[], object]


# --- one process of a subject ---------------------------------------------------------------------


def fmq_client(directory: Path) -> Call:
    engine = fmq.connect(directory)
    return lambda: engine.send("lane", BODY)


def redis_client(directory: Path) -> Call:
    import redis  # an extra, and not everywhere

    client = redis.Redis(unix_socket_path=(directory / "at").read_text())
    return lambda: client.xadd("lane", {"b": BODY})


def sqlite_client(directory: Path) -> Call:
    connection = sqlite.connect(directory)
    return lambda: connection.execute(sqlite.INSERT[0], (BODY,))


CLIENTS = {"fmq": fmq_client, "redis": redis_client, "sqlite3": sqlite_client}


def client_main() -> None:
    """Send from the time that stdin names for some seconds; print how often."""
    subject, directory, computes = sys.argv[1:4]
    send = CLIENTS[subject](Path(directory))
    send()
    if computes == "computes":
        threading.Thread(target=compute, daemon=True).start()
    print("ready", flush=True)
    begin, seconds = map(float, sys.stdin.readline().split())
    while time.monotonic() < begin:
        time.sleep(0.001)
    count, end = 0, begin + seconds
    while time.monotonic() < end:
        send()
        count += 1
    print(count, flush=True)
    sys.stdin.readline()  # so that the end of one slows no other


def consumer_main() -> None:
    """Take messages that say when their send began, until stdin ends; print the median wait."""
    waits: list[float] = []
    with fmq.connect(sys.argv[2], start=False) as client:
        consumer = client.consumer("wakes", group="bench")
        print("ready", flush=True)
        while len(waits) < WAKES:
            for delivery in consumer.poll(timeout=10.0):
                waits.append(time.monotonic() - float(delivery.message.body))
                delivery.ack(sync=False)
    print(statistics.median(waits), flush=True)


def compute() -> None:
    """Hold the interpreter's lock as often as it can be had."""
    number = 1
    while True:
        number = number * 3 % 1_000_003


# --- the subjects ---------------------------------------------------------------------------------


@contextmanager
def served(subject: str, directory: Path) -> Iterator[None]:
    """Have what the processes of `subject` connect to."""
    if subject == "fmq":
        command = [sys.executable, "-m", "fmq", "serve", str(directory)]
        with subprocess.Popen(command) as server:
            fmq.connect(directory, start=False).close()
            yield
            server.terminate()
    elif subject == "redis":
        from benchmarks.peers.redis_aof import RedisAof

        store = RedisAof(directory)
        (directory / "at").write_text(store.socket)
        yield
        store.close()
    else:
        sqlite.connect(directory).close()
        yield


def rates(subject: str, directory: Path, processes: int, seconds: float, work: str) -> list[float]:
    """Return how many sends a second each of some processes made at once."""
    command = [sys.executable, "-m", "benchmarks.processes", subject, str(directory), work]
    with ExitStack() as stack:
        stack.enter_context(served(subject, directory))
        clients = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for each in clients:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        for each in clients:
            assert each.stdin is not None
            each.stdin.write(f"{time.monotonic() + 0.3} {seconds}\n")
            each.stdin.flush()
        counts = [int(each.stdout.readline()) for each in clients if each.stdout is not None]
        for each in clients:
            each.communicate("\n")
    return [count / seconds for count in counts]


# --- one process beside an engine in process ------------------------------------------------------


def turns(first: Call, second: Call, calls: int) -> tuple[float, float]:
    """Return the median seconds of a call of each, in turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(calls // TURN or 1):
        for call, times in zip((first, second), taken, strict=True):
            for _ in range(min(TURN, calls)):
                began = time.perf_counter()
                call()
                times.append(time.perf_counter() - began)
    return statistics.median(taken[0]), statistics.median(taken[1])


def beside_in_process(folder: Path) -> None:
    """Print what the way to another process costs."""
    with ExitStack() as stack:
        stack.enter_context(served("fmq", folder / "elsewhere"))
        here = stack.enter_context(fmq.open(folder / "here"))
        there = stack.enter_context(fmq.connect(folder / "elsewhere", start=False))
        lone = turns(lambda: here.send("lane", BODY), lambda: there.send("lane", BODY), LONE_CALLS)
        many = turns(
            lambda: here.send_many("lane", MANY), lambda: there.send_many("lane", MANY), 300
        )
        read = turns(
            lambda: here.read_batch("lane", limit=1000, offset=2 * LONE_CALLS),
            lambda: there.read_batch("lane", limit=1000, offset=2 * LONE_CALLS),
            300,
        )
        follower = stack.enter_context(fmq.open(folder / "here", read_only=True))
        files = turns(
            lambda: here.read_batch("lane", limit=1000, offset=2 * LONE_CALLS),
            lambda: follower.read_batch("lane", limit=1000, offset=2 * LONE_CALLS),
            300,
        )
        woken, sent = wakes(there, folder / "elsewhere")
    over = (lone[1] - lone[0]) * 1e6
    print(f"a send from another process takes {over:.0f} us more than one in process")
    print(f"send_many of 1,000: {many[0] / many[1]:.2f} x in process")
    print(f"read_batch of 1,000 through the socket: {read[0] / read[1]:.2f} x in process")
    print(f"read_batch of 1,000 by a read-only engine: {files[0] / files[1]:.2f} x in process")
    print(
        f"a consumer in another process has a message {woken * 1e6:.0f} us after its send began, "
        f"{woken / sent:.2f} x as long as the send takes"
    )


def wakes(client: RemoteEngine, directory: Path) -> tuple[float, float]:
    """Return the median seconds until a consumer elsewhere that waits has a message, and those
    that the send takes, both from its beginning.
    """
    command = [sys.executable, "-m", "benchmarks.processes", "wakes", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None and consumer.stdout.readline() == "ready\n"
        times = []
        for _ in range(WAKES):
            time.sleep(WAKE_PAUSE)
            began = time.monotonic()
            client.send("wakes", str(began).encode())
            times.append(time.monotonic() - began)
        return float(consumer.stdout.readline()), statistics.median(times)


# --- the command ----------------------------------------------------------------------------------


Totals = dict[str, list[float]]


def measure(folder: Path, processes: int, rounds: int, seconds: float, work: str) -> Totals:
    """Print the rates of all subjects in so many processes, and return those of each round."""
    totals: Totals = {subject: [] for subject in CLIENTS}
    fairness: list[float] = []
    for number in range(rounds):
        for subject, found in totals.items():
            directory = folder / f"{subject}-{processes}-{work}-{number}"
            directory.mkdir()
            each = rates(subject, directory, processes, seconds, work)
            found.append(sum(each))
            if subject == "fmq":
                fairness.append(min(each) / max(each))
    ours = totals["fmq"]
    cells = [f"{processes:>3} {work:<9}"]
    for subject, found in totals.items():
        ratio = statistics.median(a / b for a, b in zip(ours, found, strict=True))
        beside = "" if subject == "fmq" else f" ({ratio:.2f} x)"
        cells.append(f"{subject} {statistics.median(found):,.0f}/s{beside}")
    cells.append(f"slowest/fastest {statistics.median(fairness):.2f}")
    print("   ".join(cells), flush=True)
    return totals


def beside_a_thread(folder: Path, rounds: int, seconds: float) -> None:
    """Print how much of its rate each subject keeps while another thread of the client computes."""
    kept: Totals = {subject: [] for subject in CLIENTS}
    for number in range(rounds):
        place = folder / f"kept-{number}"
        place.mkdir()
        alone = measure(place, 1, 1, seconds, "sends")
        busy = measure(place, 1, 1, seconds, "computes")
        for subject, found in kept.items():
            found.append(busy[subject][0] / alone[subject][0])
    for peer in ("redis", "sqlite3"):
        ratio = statistics.median(a / b for a, b in zip(kept["fmq"], kept[peer], strict=True))
        print(f"beside a thread that computes: {ratio:.2f} x of the share that {peer} keeps")


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "wakes":
        consumer_main()
        return
    if len(sys.argv) > 3 and sys.argv[1] in CLIENTS:
        client_main()
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--processes", default="1,8,64", help="how many, with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--directory", type=Path, default=Path(), help="on which disk")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        beside_in_process(Path(folder))
        print("sends a second, of all processes; in brackets fmq beside the peer")
        for processes in map(int, asked.processes.split(",")):
            measure(Path(folder), processes, asked.rounds, asked.seconds, "sends")
        beside_a_thread(Path(folder), asked.rounds, asked.seconds)


if __name__ == "__main__":
    main()

"""The least that Python has to do for a durable call: `python -m benchmarks.floor`.

For a send and a transaction in three steps, each of which does the work of the one before: the disk
alone; the bytes that fmq writes (least_bytes.py); and the least of an engine around them
(least.py), which survives nothing. Then the same least, fmq and sqlite3 for two phases, for a
message taken and acked, and with eight threads, where sqlite3 has a thread that commits for all.
What fmq takes beyond the least is what its promises cost; behind each goal stands whether the least
itself would reach it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fmq
from benchmarks.beside import compare
from benchmarks.least import BareFile, LeastEngine
from benchmarks.least_bytes import message, now_us, transaction
from benchmarks.peers.sqlite import Sqlite
from benchmarks.peers.sqlite_group import SqliteGroup

ROUNDS, CALLS = 9, 704
THREADS = 8
PAUSE_SECONDS = 40e-6
BODY = bytes(range(100))
TOPICS = ("a", "b", "c")
TX_ID = "019ab1a2-0000-7000-8000-000000000000"
SEED, LAG = 77, 0
# How many times as fast as sqlite3 each is meant to be: docs/benchmarks.md.
GOALS = {
    "send": 1.15,
    "transaction": 1.2,
    "two phases": 1.2,
    "poll and ack": 1.15,
    "eight threads, send": 1.3,
    "eight threads, transaction": 1.5,
    "eight threads, two phases": 1.7,
}

Work = Callable[[], object]


def ten() -> dict[str, list[bytes]]:
    """Ten messages for three queues."""
    runs: dict[str, list[bytes]] = {}
    for i in range(10):
        runs.setdefault(TOPICS[i % 3], []).append(BODY)
    return runs


def works_of_the_bytes(folder: Path) -> dict[str, Work]:
    """The disk, and the bytes that are made for it."""
    bare, firsts = BareFile(folder / "bare"), dict.fromkeys(TOPICS, 5)

    def after_work() -> None:
        until = time.perf_counter() + PAUSE_SECONDS
        while time.perf_counter() < until:
            pass
        bare.write(BODY)

    return {
        "the disk alone": lambda: bare.write(BODY),
        f"the disk, {PAUSE_SECONDS * 1e6:.0f} us after the last": after_work,
        "send: its bytes": lambda: bare.write(
            message(bare.position, LAG, SEED, "a", BODY, 5, now_us())
        ),
        "transaction: its bytes": lambda: bare.write(
            transaction(bare.position, LAG, SEED, ten(), firsts, TX_ID, now_us())[0]
        ),
    }


def works_of(engine: LeastEngine | fmq.Engine) -> dict[str, Work]:
    """Return the timed work on an engine. Both engines have the same calls."""

    def send() -> None:
        engine.send("a", BODY)

    def one_phase() -> None:
        with engine.transaction() as tx:
            for i in range(10):
                tx.send(TOPICS[i % 3], BODY)

    def two_phases() -> None:
        tx = engine.transaction()
        for i in range(10):
            tx.send(TOPICS[i % 3], BODY)
        tx.prepare()
        tx.commit()

    return {"send": send, "transaction": one_phase, "two phases": two_phases}


def works_of_least(folder: Path) -> dict[str, Work]:
    engine = LeastEngine(BareFile(folder / "least"), TOPICS, SEED)
    for _ in range(ROUNDS * CALLS):
        engine.send("c", BODY)
    consumer = engine.consumer("c", "g")

    def take() -> None:
        taken = consumer.poll()
        assert taken is not None
        consumer.ack(taken[0])

    return works_of(engine) | {"poll and ack": take}


def works_of_fmq(engine: fmq.Engine) -> dict[str, Work]:
    for _ in range(ROUNDS * CALLS):
        engine.send("c", BODY, sync=False)
    engine.sync()
    consumer = engine.consumer("c", group="g")

    def take() -> None:
        (delivery,) = consumer.poll(limit=1)
        delivery.ack()

    return works_of(engine) | {"poll and ack": take}


def works_of_sqlite(peer: Sqlite | SqliteGroup) -> dict[str, Work]:
    peer.load([[BODY] * (ROUNDS * CALLS)], singly=True)
    producer, consumer = peer.producer(), peer.consumer()
    messages = [(i % 3, BODY) for i in range(10)]
    return {
        "send": lambda: producer.send(BODY),
        "transaction": lambda: producer.transaction(messages),
        "two phases": lambda: producer.two_phase(messages),
        "poll and ack": lambda: consumer.consume(1),
    }


@contextmanager
def works(folder: Path) -> Iterator[tuple[dict[str, Work], dict[str, Work]]]:
    """Return the work of one thread, and that of eight threads together, by name."""
    with ExitStack() as closing:
        engine = closing.enter_context(fmq.open(folder / "fmq"))
        (folder / "sqlite").mkdir()
        (folder / "group").mkdir()
        peer, group = Sqlite(folder / "sqlite"), SqliteGroup(folder / "group")
        closing.callback(peer.close)
        closing.callback(group.close)
        alone = {
            "the least of an engine": works_of_least(folder),
            "fmq": works_of_fmq(engine),
            "sqlite3": works_of_sqlite(peer),
        }
        together = alone | {"sqlite3": works_of_sqlite(group)}
        one = works_of_the_bytes(folder)
        for what in alone["fmq"]:
            one |= {f"{what}: {name}": each[what] for name, each in alone.items()}
        eight = {
            f"eight threads, {what}: {name}": each[what]
            for what in ("send", "transaction", "two phases")
            for name, each in together.items()
        }
        yield one, eight


def time_of(work: Work, threads: ThreadPoolExecutor | None) -> float:
    """Return the microseconds for one call of `work`; of eight threads, what one thread adds."""

    def repeat(calls: int) -> None:
        for _ in range(calls):
            work()

    started = time.perf_counter()
    if threads is None:
        repeat(CALLS)
    else:
        for done in [threads.submit(repeat, CALLS // THREADS) for _ in range(THREADS)]:
            done.result()
    return (time.perf_counter() - started) / CALLS * 1e6


def main() -> None:
    if sys.argv[1:2] == ["--beside"]:
        compare(Path(sys.argv[2]).resolve())
        return
    taken: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        works(Path(folder)) as (one, eight),
        ThreadPoolExecutor(THREADS) as threads,
    ):
        for _ in range(ROUNDS):
            for name, work in one.items():
                spent = time_of(work, None) - (PAUSE_SECONDS * 1e6 if "after" in name else 0)
                taken.setdefault(name, []).append(spent)
            for name, work in eight.items():
                taken.setdefault(name, []).append(time_of(work, threads))
    median = {name: statistics.median(each) for name, each in taken.items()}
    for name, us in median.items():
        print(f"{name:52} {us:6.0f} us  {us / median['the disk alone']:5.2f} x the disk alone")
    print()
    for what, goal in GOALS.items():
        least, ours, peer = (
            median[f"{what}: {name}"] for name in ("the least of an engine", "fmq", "sqlite3")
        )
        reached = "reaches it" if peer / least >= goal else "does not reach it"
        print(
            f"{what:28} goal {goal:4} x sqlite3; the least {peer / least:.2f} x, which {reached}; "
            f"fmq {peer / ours:.2f} x"
        )


if __name__ == "__main__":
    main()

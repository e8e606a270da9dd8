"""Does a storage keep what a home needs? Each adapter must pass, on its real server.

    python -m tests.home.conformance file:///mnt/shared/empty
    AWS_ENDPOINT_URL=http://host:8333 python -m tests.home.conformance s3://bucket/empty
    python -m tests.home.conformance --server postgresql --slots 1000

Machines race for each slot, and must agree who has it. The directory or prefix is left as it was.
With --server a server is started for it. Then it is also killed while an engine sends, and comes
back.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fmq
from fmq.home.home_addresses import objects_at
from fmq.home.objects import KeyTaken, Objects
from tools.home_servers import KINDS, HomeServer, missing


def check_one_winner(address: str, *, machines: int, slots: int) -> float:
    """Race for each slot, and raise AssertionError unless exactly one machine has it. Return how
    many slots were filled a second.
    """
    winners: list[list[int]] = [[] for _ in range(slots)]
    ready = threading.Barrier(machines)
    failed: list[BaseException] = []

    def race(machine: int, objects: Objects) -> None:
        try:
            for n in range(slots):
                ready.wait()
                try:
                    objects.create(f"slots/{n:020d}", b"%d of %d" % (machine, n))
                    winners[n].append(machine)
                except KeyTaken:
                    pass
        except BaseException as error:
            failed.append(error)
            ready.abort()

    ways = [objects_at(address) for _ in range(machines)]
    threads = [threading.Thread(target=race, args=each) for each in enumerate(ways)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = slots / (time.monotonic() - began)
    assert not failed, failed
    keys = [f"slots/{n:020d}" for n in range(slots)]
    found = [data for at in range(0, slots, 256) for data in ways[0].read_run(keys[at : at + 256])]
    assert [len(each) for each in winners] == [1] * slots
    assert found == [b"%d of %d" % (each[0], n) for n, each in enumerate(winners)]
    for each in ways[1:]:
        each.close()
    ways[0].remove(keys)
    assert ways[0].names("slots") == []
    ways[0].close()
    return rate


def check_calls(address: str) -> None:
    """Raise AssertionError unless each call does what Objects says, for keys that are not there,
    too.
    """
    objects = objects_at(address)
    assert objects.read("floors/7") is None
    objects.remove(["floors/7"])
    assert objects.names("floors") == []
    assert objects.read_run(["slots/0", "slots/1"]) == []
    large = bytes(range(256)) * (min(objects.object_bytes_max, 1 << 20) >> 8)
    for key, data in (("floors/7", b""), ("floors/10", large), ("pieces/a", b"x")):
        objects.create(key, data)
        assert objects.read(key) == data
    assert objects.names("floors") == ["10", "7"]
    assert objects.read_run(["floors/7", "floors/10", "floors/8", "pieces/a"]) == [b"", large]
    objects.remove(["floors/7", "floors/10", "pieces/a"])
    assert [objects.names(each) for each in ("floors", "pieces")] == [[], []]
    objects.close()


def check_long(address: str, *, slots: int) -> float:
    """Raise AssertionError unless so many slots, filled by 16 threads, are read without a gap, and
    named, and removed. Return how many were filled a second.
    """
    objects = objects_at(address)
    keys = [f"slots/{n:020d}" for n in range(slots)]
    began = time.monotonic()
    with ThreadPoolExecutor(16) as threads:
        assert [*threads.map(lambda key: objects.create(key, key.encode()), keys)] == [None] * slots
    rate = slots / (time.monotonic() - began)
    found = [data for at in range(0, slots, 256) for data in objects.read_run(keys[at : at + 256])]
    assert found == [key.encode() for key in keys]
    assert [f"slots/{name}" for name in objects.names("slots")] == keys
    objects.remove(keys[: slots // 2])
    assert len(objects.names("slots")) == slots - slots // 2
    objects.remove(keys)
    assert objects.names("slots") == []
    objects.close()
    return rate


def check_deaths(server: HomeServer, folder: Path, *, deaths: int) -> tuple[int, float]:
    """Kill the server under two threads that send, and raise AssertionError unless an empty
    directory shows each message that was acknowledged, once and in order. Return how many there
    are, and the longest pause of a send.
    """
    home, over = server.home("deaths"), threading.Event()
    acked: list[list[int]] = [[], []]
    pauses = [0.0]

    def send(engine: fmq.Engine, number: int) -> None:
        for n in range(1 << 40):
            if over.is_set():
                return
            began = time.monotonic()
            engine.send("t", b"%d" % n, queue=number)
            pauses.append(time.monotonic() - began)
            acked[number].append(n)

    options = fmq.Options(topic_queues={"t": 2}, segment_bytes=1 << 16)
    with fmq.open(folder / "before", options, home=home) as engine, ThreadPoolExecutor(2) as two:
        sending = [two.submit(send, engine, number) for number in (0, 1)]
        try:
            for _ in range(deaths):
                had = [len(each) for each in acked]
                # Each death comes after both have sent more, so after the last one has passed.
                while any(len(now) < before + 20 for now, before in zip(acked, had, strict=True)):
                    assert not any(each.done() for each in sending), sending
                    over.wait(0.02)
                server.stop()
                over.wait(0.5)
                server.start()
            engine.checkpoint()
        finally:
            over.set()
        for each in sending:
            each.result()
    with fmq.open(folder / "after", home=home) as engine:
        for number, sent in enumerate(acked):
            found = engine.read("t", queue=number, limit=len(sent) + 9)
            assert [int(bytes(each.body)) for each in found] == sent
    return sum(map(len, acked)), max(pauses)


def check_server(kind: str, *, machines: int, slots: int, long: int, deaths: int) -> None:
    """Do all of this with a server that is started for it."""
    if why := missing(kind):
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(prefix="fmq-home-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "server").mkdir()
        server = KINDS[kind](folder / "server")
        try:
            check_calls(server.home("calls"))
            rate = check_one_winner(server.home("race"), machines=machines, slots=slots)
            print(f"{kind}: {machines} machines raced for {slots:,} slots: one winner "
                  f"and its bytes each, {rate:.0f} slots a second", flush=True)  # fmt: skip
            rate = check_long(server.home("long"), slots=long)
            print(f"{long:,} entries, no gap, {rate:.0f} a second by 16 threads", flush=True)
            count, pause = check_deaths(server, folder, deaths=deaths)
            print(f"{deaths} deaths of the server: {count:,} messages acknowledged, none lost, "
                  f"twice or out of order, longest pause {pause:.1f} s", flush=True)  # fmt: skip
        finally:
            server.end()


def main() -> None:
    """Check the storage at an address, or servers of the tests' own."""
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("address", nargs="?")
    where.add_argument("--server", choices=KINDS)
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--long", type=int, default=10_000)
    parser.add_argument("--deaths", type=int, default=10)
    asked = parser.parse_args()
    if asked.server is not None:
        check_server(
            asked.server,
            machines=asked.machines, slots=asked.slots, long=asked.long, deaths=asked.deaths,
        )  # fmt: skip
        return
    check_calls(asked.address)
    rate = check_one_winner(asked.address, machines=asked.machines, slots=asked.slots)
    print(
        f"{asked.address}: {asked.machines} machines raced for {asked.slots} slots, each had one "
        f"winner and its bytes, {rate:.0f} slots a second"
    )


if __name__ == "__main__":
    main()

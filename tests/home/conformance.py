"""Does a storage keep what a home needs? Each adapter must pass, on its real server.

    python -m tests.home.conformance file:///mnt/shared/empty
    AWS_ENDPOINT_URL=http://host:8333 python -m tests.home.conformance s3://bucket/empty

Machines race for each slot, and must agree who has it. The directory or prefix is left as it was.
"""

from __future__ import annotations

import argparse
import threading
import time

from fmq.home.home_addresses import objects_at
from fmq.home.objects import KeyTaken, Objects


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
    large = bytes(range(256)) * 4096
    for key, data in (("floors/7", b""), ("floors/10", large), ("pieces/a", b"x")):
        objects.create(key, data)
        assert objects.read(key) == data
    assert objects.names("floors") == ["10", "7"]
    assert objects.read_run(["floors/7", "floors/10", "floors/8", "pieces/a"]) == [b"", large]
    objects.remove(["floors/7", "floors/10", "pieces/a"])
    assert [objects.names(each) for each in ("floors", "pieces")] == [[], []]
    objects.close()


def main() -> None:
    """Check the storage at an address."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--slots", type=int, default=200)
    asked = parser.parse_args()
    check_calls(asked.address)
    rate = check_one_winner(asked.address, machines=asked.machines, slots=asked.slots)
    print(
        f"{asked.address}: {asked.machines} machines raced for {asked.slots} slots, each had one "
        f"winner and its bytes, {rate:.0f} slots a second"
    )


if __name__ == "__main__":
    main()

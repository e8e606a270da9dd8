"""What a delivery costs beside a Parquet file of the same rows: `python -m benchmarks.deliver`.

Processor time of all threads, warm, the formats in turn: the median of the rounds' ratios to plain
Parquet, which is the same rows read by `fmq.table.read` and written by pyarrow into one file. With
`since`: what reading the last 1 % costs, beside reading all. With `audit`: what an audit of a table
costs, beside reading all rows of it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import process_time

import pyarrow.parquet as parquet

import fmq
import fmq.table
from fmq.lake import LakeDelivery, audit, deliver, rows_at, table_at
from fmq.lake.lake_delivery import schema_for
from fmq.lake.lake_table import FORMATS
from fmq.lake.table_part import TablePart

APPEND = 1000
Work = Callable[[Path], object]


def fill(path: str, messages: int) -> None:
    """Send messages of about 100 bytes."""
    with fmq.open(path, fmq.Options(sync="never")) as engine:
        for first in range(0, messages, APPEND):
            numbers = range(first, first + APPEND)
            bodies = [
                b'{"order":%d,"customer":"c-%d","amount":%d,"currency":"EUR","state":"new","note":"%x"}'
                % (i, i * 7919 % 10_007, i * 31 % 9_999, i * 2_654_435_761 % (1 << 64))
                for i in numbers
            ]
            engine.send_many("orders", bodies)


def plain_parquet(path: str, folder: Path) -> None:
    reader = fmq.table.read(path, columns=schema_for("messages").names)
    with parquet.ParquetWriter(folder / "plain.parquet", reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def works(path: str, messages: int) -> dict[str, Work]:
    def to(name: str, rows: int) -> Work:
        url = "lake/shop.messages" if name == "iceberg" else "lake"
        how = {"to": name, "rows": rows, "once": True}
        return lambda folder: deliver(path, str(folder / url), **how)  # type: ignore[arg-type]

    found: dict[str, Work] = {"plain Parquet": lambda folder: plain_parquet(path, folder)}
    for name in ("parquet", "delta", "iceberg"):
        for commits in (1, 10):
            found[f"{name}, {commits} commits"] = to(name, messages // commits)
    return found


def measure(path: str, messages: int, rounds: int) -> None:
    took: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, work in works(path, messages).items():
            with tempfile.TemporaryDirectory() as folder:
                began = process_time()
                work(Path(folder))
                if number:  # the first round loads what is loaded once
                    took.setdefault(name, []).append(process_time() - began)
    plain = took["plain Parquet"]
    print(f"{messages:,} messages, {rounds} rounds: processor seconds, and x plain Parquet")
    for name, times in took.items():
        ratios = [mine / its for mine, its in zip(times, plain, strict=True)]
        print(f"  {name:20} {statistics.median(times):6.2f} {statistics.median(ratios):6.2f}")


def measure_since(path: str, rounds: int) -> None:
    _measure_since(path, rounds, "of a closed engine")
    with fmq.open(path):
        _measure_since(path, rounds, "beside an engine")


def _measure_since(path: str, rounds: int, where: str) -> None:
    end = fmq.table.read(path).end
    whole = fmq.table.read(path).read_all().num_rows
    place = fmq.table.read(path, until=end - end // 100).end
    ratios = []
    for _ in range(rounds):
        began = process_time()
        fmq.table.read(path).read_all()
        all_of_it, began = process_time() - began, process_time()
        rows = fmq.table.read(path, since=place).read_all().num_rows
        ratios.append((process_time() - began) / all_of_it)
    print(
        f"the last {rows:,} of {whole:,} messages ({rows / whole:.1%}) cost "
        f"{statistics.median(ratios):.1%} of a read of all, {where}"
    )


def measure_audit(path: str, messages: int, rounds: int) -> None:
    for to in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            url = f"{folder}/{'lake/shop.messages' if to == 'iceberg' else 'lake'}"
            deliver(path, url, to=to, once=True, rows=messages // 10)
            store, ratios, took = fmq.table.read(path).store, list[float](), list[float]()
            for _ in range(rounds):
                began = process_time()
                with closing(rows_at(url, to)) as table:
                    rows = table.read(TablePart(store), table.columns).num_rows
                read, began = process_time() - began, process_time()
                assert audit(path, url, to=to).ok and rows == messages
                took.append(process_time() - began)
                ratios.append(took[-1] / read)
        cost = (
            f"{statistics.median(took):.2f} s, {statistics.median(ratios):.1f} x reading the table"
        )
        print(f"an audit of {messages:,} rows in {to}: {cost}")


def idle(path: str) -> float:
    """Return the processor seconds of a look of a delivery that finds nothing new."""
    with tempfile.TemporaryDirectory() as folder:
        deliver(path, f"{folder}/lake", to="delta", once=True, rows=10_000_000)
        delivery = LakeDelivery(path, table_at(f"{folder}/lake", "delta", schema_for("messages")))
        delivery.run(once=True)
        began = process_time()
        for _ in range(10):
            delivery.run(once=True)
        return (process_time() - began) / 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("since", "audit", "all"), default="all")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/shop"
        fill(path, args.messages)
        if args.what != "audit":
            measure_since(path, args.rounds)
        if args.what != "since":
            measure_audit(path, args.messages, args.rounds)
        if args.what == "all":
            measure(path, args.messages, args.rounds)
            print(f"a look that finds nothing new: {idle(path) * 1000:.0f} ms")


if __name__ == "__main__":
    main()

"""How many bytes of a queue of work are left on the disk when all of it is acked.

Run `python -m benchmarks.kept`, with `--jobs 100000` for the full size. Each line is one
`retain_acked_bytes`; None keeps everything, as fmq did before it had this option.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import fmq

BATCH = 500
BODY = b"j" * 1000


def kept_bytes(path: Path, jobs: int, options: fmq.Options) -> int:
    """Return the size of all files after `jobs` jobs were sent, and each was acked."""
    with fmq.open(path, options) as engine, engine.consumer("jobs", group="g") as consumer:
        for _ in range(jobs // BATCH):
            engine.send_many("jobs", [BODY] * BATCH)
            done = 0
            while done < BATCH:
                for delivery in consumer.poll(limit=BATCH):
                    delivery.ack()
                    done += 1
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    jobs: int = parser.parse_args().jobs
    most = fmq.Options().retain_acked_bytes
    for limit in (None, most):
        options = fmq.Options(sync="interval", retain_acked_bytes=limit)
        with tempfile.TemporaryDirectory() as folder:
            left = kept_bytes(Path(folder) / "data", jobs, options)
        name = "all kept" if limit is None else f"{limit >> 20} MiB"
        print(f"{name:10} {jobs:,} jobs: {left / 1e6:,.1f} MB left")


if __name__ == "__main__":
    main()

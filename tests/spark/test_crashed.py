"""A directory that a crash left, and nobody has opened since, as Spark reads it.

The code that cuts rows is tried on thousands of such disks by `python -m crash_tests --tier
tables`; here a few of them lie on a real disk, and Spark itself reads them.
"""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import PySparkException

import fmq
import fmq.testing
from fmq.errors import CheckpointLost
from fmq.testing import CrashDisk, FakeClock
from tests.spark.reading import Reader, shown_by_engine

OPTIONS = fmq.Options(segment_bytes=4096, checkpoint_bytes=2048, reference_bytes_min=16)


def crashed(seed: int) -> CrashDisk:
    """A disk whose power failed somewhere in a run of all that writes."""
    operations = run(CrashDisk()).operations
    random = Random(seed)
    disk = run(CrashDisk(random.randrange(operations // 4, operations)))
    return random.choice(list(islice(disk.states(seed), 12)))


def run(disk: CrashDisk) -> CrashDisk:
    try:
        with fmq.open("shop", OPTIONS, disk=disk, clock=FakeClock(), background=False) as engine:
            for number in range(8):
                engine.send_many("orders", [b"x" * number, b"y" * 200])
                tx = engine.transaction(tx_id=f"tx-{number}", producer="checkout")
                tx.send("orders", b"in two phases, long enough to be referred to", key="k")
                tx.send("emails", b"")
                tx.prepare()
                if number % 3:
                    tx.commit()
    except fmq.testing.PowerLoss:
        pass
    return disk


def put(disk: CrashDisk, path: Path) -> None:
    """The files of a disk in memory, as real ones."""
    path.mkdir()
    directory = disk.directory("shop", make=False)
    for name in directory.names():
        file = directory.open(name)
        (path / name).write_bytes(file.read(0, file.size()))


@pytest.mark.parametrize("seed", range(3))
def test_spark_reads_a_crashed_directory_like_a_read_only_engine(reader: Reader, seed: int) -> None:
    path = Path(reader.path)
    put(crashed(seed), path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    refused = ""  # if power failed while a slot was written
    try:
        fmq.open(reader.path, read_only=True).close()
    except CheckpointLost as error:
        refused = error.reason
    if refused:
        with pytest.raises(PySparkException) as caught:
            reader.messages()
        assert refused in str(caught.value)
        fmq.open(reader.path, OPTIONS, background=False).close()
        before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    assert reader.messages() == shown_by_engine(reader.path)
    with fmq.open(reader.path, read_only=True) as engine:
        undecided = {tx.tx_id for tx in engine.undecided()}
    rows = reader.rows("transactions")
    assert {row["tx_id"] for row in rows if row["state"] == "undecided"} == undecided
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before

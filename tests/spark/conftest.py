"""One Spark session for all tests of Spark: starting one takes longer than any of them.

Without Java they fail, as they would without pytest: whoever changes fmq runs them.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fmq.spark
from tests.machine import can_listen
from tests.spark.filled import fill
from tests.spark.reading import Reader

QUIET = {
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__sql__shuffle__partitions": "2",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    # A Java that lives for a minute: compilers cost more than they save, Java's that optimises and
    # Spark's of queries. Those of spark-submit and of test_java.py have Spark's.
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
    "spark__python__daemon__module": "tests.spark.daemon",
    "spark__sql__session__timeZone": "UTC",
}


@pytest.fixture(scope="session", autouse=True)
def name_of_this_machine() -> None:
    """Spark's Java asks for the address of the machine's own name before it does anything."""
    if not can_listen(socket.gethostname()):
        pytest.skip(f"{socket.gethostname()}, the name of this machine, has no address")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = str(tmp_path_factory.mktemp("spark"))
    session = fmq.spark.session("tests", "local[2]", spark__sql__warehouse__dir=warehouse, **QUIET)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A journal with a bit of everything, for tests that only read."""
    reader = Reader(spark, tmp_path_factory.mktemp("filled") / "shop")
    fill(reader.path)
    return reader


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path) -> Reader:
    """Reads a journal both ways: through Spark, and as its engine shows it."""
    return Reader(spark, tmp_path / "shop")

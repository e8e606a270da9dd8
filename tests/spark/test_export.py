"""An export by Spark is one by Arrow alone: the same rows, the same types, the same folders."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from fmq.errors import BadOption
from fmq.export import ExportFailed, OtherExport, Progress, export
from tests.export.reading import Out, same_json
from tests.export.strange import fill_strangely, fill_with_bytes
from tests.spark.reading import Reader

ROOT = Path(__file__).parent.parent.parent
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.fixture(scope="session")
def strange(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("filled") / "strange")
    fill_strangely(path)
    return path


def both(path: str, where: Path, format: str, view: str) -> tuple[Out, Out]:
    """The same export by Spark and by Arrow."""
    by_spark, by_arrow = Out(where / "spark"), Out(where / "arrow")
    seen: list[Progress] = []
    one = export(
        path, str(by_spark), engine="spark", format=format, view=view, progress=seen.append
    )
    other = export(path, str(by_arrow), engine="arrow", format=format, view=view)
    assert (one.rows, one.bytes) == (other.rows, other.bytes) == (seen[-1].rows, seen[-1].bytes)
    return by_spark, by_arrow


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_spark_and_arrow_export_the_same_messages(
    spark: SparkSession, strange: str, tmp_path: Path, format: str
) -> None:
    """The journal has names and texts that are hard to write down."""
    by_spark, by_arrow = both(strange, tmp_path, format, "messages")
    rows = by_spark.rows()
    assert len(rows) > 60
    assert same_json(rows) == same_json(by_arrow.rows())
    assert {Path(name).parent for name in by_spark.files()} == {
        Path(name).parent for name in by_arrow.files()
    }
    if format == "parquet":
        assert by_spark.schema() == by_arrow.schema()


@pytest.mark.parametrize("view", ["records", "transactions"])
@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_spark_and_arrow_export_the_same_records_and_transactions(
    shop: Reader, tmp_path: Path, view: str, format: str
) -> None:
    by_spark, by_arrow = both(shop.path, tmp_path, format, view)
    assert same_json(by_spark.rows()) == same_json(by_arrow.rows())
    if format == "parquet":
        assert by_spark.schema() == by_arrow.schema()


def test_spark_finishes_an_export_that_arrow_began(shop: Reader, tmp_path: Path) -> None:
    """Spark also reads the result as it is."""
    out = Out(tmp_path / "out")

    def stop(progress: Progress) -> None:
        if progress.rows > 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(shop.path, str(out), engine="arrow", chunk_bytes=40_000, progress=stop)
    first = out.files()
    export(shop.path, str(out), engine="spark")
    assert first
    assert first.items() < out.files().items()
    [read] = [shop.spark.read.parquet(str(out))]
    names = ["topic", "queue", "offset", "position", "key", "body", "time", "tx_id"]
    order = ["topic", "queue", "offset"]
    shown = read.select(names).orderBy(order).collect()
    assert shown == shop.view().select(names).orderBy(order).collect()


def test_an_export_keeps_the_time_zone_of_the_users_session(shop: Reader, tmp_path: Path) -> None:
    """Days are those of UTC, whatever the time zone of the session."""
    zone = "spark.sql.session.timeZone"
    shop.spark.conf.set(zone, "Pacific/Kiritimati")
    try:
        by_spark, by_arrow = both(shop.path, tmp_path, "csv", "transactions")
        assert shop.spark.conf.get(zone) == "Pacific/Kiritimati"
    finally:
        shop.spark.conf.set(zone, "UTC")
    assert same_json(by_spark.rows()) == same_json(by_arrow.rows())


def test_any_file_format_of_spark_can_be_exported(shop: Reader, tmp_path: Path) -> None:
    report = export(shop.path, str(tmp_path / "out"), format="orc")
    assert report.engine == "spark"
    assert shop.spark.read.orc(str(tmp_path / "out")).count() == report.rows == 1900


def test_an_error_of_spark_is_reported_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    """A failed export with an unknown format does not block a later one with another format."""
    path, out = str(tmp_path / "bytes"), str(tmp_path / "out")
    fill_with_bytes(path)
    with pytest.raises(ExportFailed, match="Failed to find the data source: parqet") as told:
        export(path, out, format="parqet")
    assert len(str(told.value)) < 400
    with pytest.raises(ExportFailed, match=r"position 128 \(bytes/0\) is not text"):
        export(path, out, engine="spark", text=True)
    assert export(path, out, engine="spark").rows == 3
    with pytest.raises(OtherExport):
        export(path, out, format="parqet")
    with pytest.raises(BadOption):
        export(path, out, format="orc", engine="arrow")


def test_spark_submit_exports_a_journal(shop: Reader, tmp_path: Path) -> None:
    """It works from any directory, and with an executor in a process of its own."""
    out, by_arrow = Out(tmp_path / "out"), Out(tmp_path / "arrow")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    # Three Javas that live for seconds: the compiler that optimises costs more than it saves.
    environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    done = subprocess.run(
        [
            str(SUBMIT), "--master", "local-cluster[1,2,1024]",
            "--conf", "spark.ui.enabled=false",
            "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.executor.memory=512m",
            str(ROOT / "tools" / "export_journal.py"), shop.path, str(out),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"engine": "spark"' in done.stdout
    export(shop.path, str(by_arrow), engine="arrow")
    assert out.rows() == by_arrow.rows()
    assert len(out.rows()) == 1900

"""An export holds what the journal shows, is added to, and refuses what is not its own."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.table
from fmq.errors import BadName, BadOption, Damaged, Locked, NotAStore, StorageFull
from fmq.export import Behind, ExportReport, NotAnExport, NotText, OtherExport, Progress, export
from fmq.export.destination import opened
from fmq.export.shape import Shape
from tests.export.reading import Out, expected, same_json
from tests.export.strange import TOPICS, fill_with_bytes

FORMATS = ("parquet", "csv", "json")
VIEWS = ("messages", "records", "transactions")
SMALL = fmq.Options(segment_bytes=16 * 1024, checkpoint_bytes=8 * 1024)


def arrow(path: str | Path, out: Out, **options: Any) -> ExportReport:
    return export(str(path), str(out), engine="arrow", **options)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("view", VIEWS)
def test_an_export_holds_every_row_of_its_view(shop: str, out: Out, format: str, view: str) -> None:
    """Test every format and every column. Of transactions, only decided ones are exported."""
    report = arrow(shop, out, format=format, view=view)
    rows = expected(shop, format, view)
    assert report.rows == len(rows) > 30
    assert same_json(out.rows()) == same_json(rows)


@pytest.mark.parametrize("format", FORMATS)
def test_strange_names_and_texts_are_kept(strange: str, out: Out, format: str) -> None:
    arrow(strange, out, format=format)
    rows = out.rows()
    assert same_json(rows) == same_json(expected(strange, format))
    assert {row["topic"] for row in rows} >= set(TOPICS)


@pytest.mark.parametrize("format", FORMATS)
def test_bodies_are_exported_as_text_on_request(strange: str, out: Out, format: str) -> None:
    arrow(strange, out, format=format, text=True)
    assert same_json(out.rows()) == same_json(expected(strange, format, text=True))


def test_a_body_that_is_not_text_is_refused_by_position(tmp_path: Path, out: Out) -> None:
    fill_with_bytes(str(tmp_path / "bytes"))
    with pytest.raises(NotText, match=r"position 128 \(bytes/0\) is not text"):
        arrow(tmp_path / "bytes", out, text=True)
    assert out.files() == {}
    assert arrow(tmp_path / "bytes", out).rows == 3


def test_folders_of_topics_are_named_as_spark_names_them(strange: str, out: Out) -> None:
    arrow(strange, out)
    [topics] = [{Path(name).parts[0] for name in out.files()}]
    assert "topic=a%2Fb" in topics
    assert "topic=100%25" in topics
    assert "topic=ö日本 🜁" in topics
    assert "topic=quote%22%27back%5Cslash" in topics


def test_a_second_export_adds_only_new_rows(tmp_path: Path, out: Out) -> None:
    """Files that are there keep their bytes. A run that finds nothing new changes nothing."""
    with fmq.open(tmp_path / "shop", SMALL) as engine:
        engine.send_many("orders", [b"x" * 10] * 300)
        tx = engine.transaction(tx_id="two", producer="shop")
        tx.send("orders", b"two")
        tx.prepare()
        engine.checkpoint()
        assert arrow(tmp_path / "shop", out).rows == 300
        first = out.files()
        assert arrow(tmp_path / "shop", out).rows == 0
        assert out.files() == first
        tx.commit()
        engine.send("emails", b"new")
        engine.checkpoint()
        report = arrow(tmp_path / "shop", out)
        assert (report.rows, report.files) == (2, 2)
        assert first.items() < out.files().items()
        assert out.rows() == expected(str(tmp_path / "shop"), "parquet")
        assert arrow(tmp_path / "shop", out).rows == 0


def test_chunks_are_named_in_the_order_of_the_journal(shop: str, out: Out) -> None:
    """The smallest chunks together hold all rows, and file names sort in the order of the rows."""
    report = arrow(shop, out, chunk_bytes=1)
    assert report.files > 4
    assert sorted(out.rows(), key=lambda row: row["position"]) == expected(shop, "parquet")
    orders = [name for name in out.files() if name.startswith("topic=orders/")]
    rows = [row for name in orders for row in out._rows_of(name)]
    assert [row["offset"] for row in rows] == list(range(len(rows)))


def test_progress_counts_up_to_all_rows_and_bytes(shop: str, out: Out) -> None:
    seen: list[Progress] = []
    report = arrow(shop, out, progress=seen.append)
    assert (seen[0].rows, seen[0].bytes) == (0, 0)
    assert seen[-1] == Progress(report.rows, report.bytes, report.bytes)
    assert [each.bytes for each in seen] == sorted(each.bytes for each in seen)


def test_several_directories_are_one_export(shop: str, strange: str, out: Out) -> None:
    """Rows say where they are from. An export of one of the directories cannot continue it."""
    report = export([shop, strange], str(out), engine="arrow")
    rows = out.rows()
    assert len(rows) == report.rows == len(expected(shop, "csv") + expected(strange, "csv"))
    assert {row["engine"] for row in rows} == {"shop", "strange"}
    assert len({row["store"] for row in rows}) == 2
    with pytest.raises(OtherExport, match="several directories: yes, and this one has no"):
        arrow(shop, out)


def test_the_directory_of_another_export_is_refused(shop: str, strange: str, out: Out) -> None:
    arrow(shop, out)
    files = out.files()
    with pytest.raises(OtherExport, match=r"begun with the format 'parquet', and .* 'csv'"):
        arrow(shop, out, format="csv")
    with pytest.raises(OtherExport, match=r"begun with the view 'messages', and .* 'records'"):
        arrow(shop, out, view="records")
    with pytest.raises(OtherExport, match="text: no, and this one has yes"):
        arrow(shop, out, text=True)
    with pytest.raises(OtherExport, match=r"is that of .*shop, and .*strange is not the same"):
        arrow(strange, out)
    assert out.files() == files


def test_a_destination_with_other_files_is_refused_untouched(shop: str, out: Out) -> None:
    out.path.mkdir()
    (out.path / "letter.txt").write_text("dear")
    with pytest.raises(NotAnExport, match=r"holds 'letter.txt', which no export made"):
        arrow(shop, out)
    assert [each.name for each in out.path.iterdir()] == ["letter.txt"]
    with pytest.raises(NotAnExport, match="not a directory"):
        arrow(shop, Out(out.path / "letter.txt"))


def test_a_journal_is_refused_as_a_destination(shop: str) -> None:
    with pytest.raises(NotAnExport):
        arrow(shop, Out(Path(shop)))


def test_a_manifest_that_makes_no_sense_is_refused(shop: str, out: Out) -> None:
    arrow(shop, out)
    (out.path / "_fmq" / "export.json").write_text('{"version": 1}')
    with pytest.raises(NotAnExport, match="not what an export writes down"):
        arrow(shop, out)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"view": "mesages"}, "did you mean messages"),
        ({"view": "damage"}, "There are: messages, records, transactions"),
        ({"format": "orc"}, "one of Spark's"),
        ({"on_gap": "skp"}, "did you mean skip"),
    ],
)
def test_impossible_arguments_are_refused_before_files_are_made(
    shop: str, out: Out, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadOption, match=says):
        arrow(shop, out, **options)
    assert not out.path.exists()


def test_a_source_without_a_journal_leaves_no_destination(tmp_path: Path, out: Out) -> None:
    with pytest.raises(NotAStore):
        arrow(tmp_path / "nothing", out)
    assert not out.path.exists()


def test_a_topic_too_long_for_a_folder_is_refused_first(tmp_path: Path, out: Out) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("x" * 255, b"")
    with pytest.raises(BadName, match="a folder named after it would have more than 255 bytes"):
        arrow(tmp_path / "shop", out)
    assert not out.path.exists()
    assert arrow(tmp_path / "shop", out, view="records").rows == 2


def test_two_exports_to_one_destination_at_once_are_refused(shop: str, out: Out) -> None:
    held = opened(str(out), Shape("parquet", "messages", False, False))
    with held, pytest.raises(Locked, match="another export is writing here"):
        arrow(shop, out)
    assert arrow(shop, out).rows == 1900


def test_segments_dropped_before_their_export_are_reported(tmp_path: Path, out: Out) -> None:
    """The error says what is missing. With on_gap="skip" the report lists the gap instead."""
    path = tmp_path / "shop"
    options = fmq.Options(segment_bytes=16 * 1024, retain_bytes=32 * 1024)
    with fmq.open(path, options, background=False) as engine:
        engine.send_many("orders", [b"x" * 1000] * 10)
        engine.checkpoint()
        assert arrow(path, out).rows == 10
        for _ in range(20):
            engine.send_many("orders", [b"y" * 1000] * 10)
        engine.checkpoint()
        first = engine.queues()[0].first
        assert first > 10
        with pytest.raises(Behind, match=r"from position \d+ up to \d+, not exported") as told:
            arrow(path, out)
        assert told.value.reached < told.value.first
        report = arrow(path, out, on_gap="skip")
        [gap] = report.gaps
        assert (gap.start, gap.end) == (told.value.reached, told.value.first)
        assert [row["offset"] for row in out.rows()] == [*range(10), *range(first, 210)]
        assert arrow(path, out).rows == 0


def test_retention_may_drop_exported_segments(tmp_path: Path, out: Out) -> None:
    """The next export does not report a gap for them."""
    path = tmp_path / "shop"
    options = fmq.Options(segment_bytes=16 * 1024, retain_bytes=32 * 1024)
    with fmq.open(path, options, background=False) as engine:
        for _ in range(40):
            engine.send_many("orders", [b"y" * 1000] * 10)
            engine.checkpoint()
            arrow(path, out)
        assert engine.queues()[0].first > 100
    assert [row["offset"] for row in out.rows()] == list(range(400))


def test_retention_keeps_segments_that_are_being_exported(tmp_path: Path, out: Out) -> None:
    """The engine drops them after the export has ended."""
    path = tmp_path / "shop"
    options = fmq.Options(segment_bytes=16 * 1024, retain_bytes=32 * 1024)
    with fmq.open(path, options, background=False) as engine:

        def send() -> None:
            engine.send_many("orders", [b"x" * 1000] * 10)
            engine.checkpoint()

        def write_on(progress: Progress) -> None:
            for _ in range(5):
                send()

        send()
        report = arrow(path, out, progress=write_on)
        assert report.rows == 10
        assert engine.queues()[0].first == 0
        send()
        assert engine.queues()[0].first > 0


@pytest.mark.parametrize("indexes", [True, False])
def test_a_copy_is_exported_as_far_as_it_reaches(
    shop: str, tmp_path: Path, out: Out, indexes: bool
) -> None:
    """Sealed segments are enough. Beside the original, a copy adds no rows."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for segment in sorted(Path(shop).glob("*.seg"))[:-1]:
        shutil.copy(segment, copy)
        if indexes:
            shutil.copy(segment.with_suffix(".idx"), copy)
    rows = len(expected(str(copy), "parquet"))
    assert arrow(copy, out).rows == rows > 1000
    assert arrow(shop, out).rows == 1900 - rows
    assert out.rows() == expected(shop, "parquet")
    assert arrow(copy, out).rows == 0
    both = Out(tmp_path / "both")
    assert export([shop, str(copy)], str(both), engine="arrow").rows == 1900


def test_damage_stops_an_export_or_is_left_out(tmp_path: Path, out: Out) -> None:
    path = tmp_path / "shop"
    with fmq.open(path, SMALL) as engine:
        for _ in range(40):
            engine.send_many("orders", [b"y" * 1000] * 10)
    segment = sorted(path.glob("*.seg"))[1]
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Damaged):
        arrow(path, out)
    assert out.files() == {}
    report = arrow(path, out, permissive=True)
    assert 300 < report.rows < 400


def test_a_full_disk_raises_and_keeps_earlier_files(tmp_path: Path, out: Out) -> None:
    """A limit on file sizes is reported like a full disk. See `is_full`."""
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("orders", b"small")
        engine.checkpoint()
        arrow(tmp_path / "shop", out)
        engine.send_many("orders", [os.urandom(60_000) for _ in range(20)])
    before = out.files()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(StorageFull, match="What was exported before is there as it was"):
            arrow(tmp_path / "shop", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert out.files() == before
    assert not (out.path / "_fmq" / "staging").exists()
    assert arrow(tmp_path / "shop", out).rows == 20


def test_an_export_by_arrow_needs_no_spark(shop: str, tmp_path: Path) -> None:
    """Neither pyspark nor Java is used."""
    script = (
        "import sys; from fmq.cli.main import main; code = main(sys.argv[1:]); "
        "assert 'pyspark' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "export", shop, str(tmp_path / "out"), "--engine", "arrow"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nowhere", "PYTHONPATH": str(Path(fmq.__file__).parent.parent)},
    )
    assert done.returncode == 0, done.stderr
    assert '"rows": 1900' in done.stdout


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("view", ["marks", "acks", "attempts", "dead_letters"])
def test_small_views_are_exported(tmp_path: Path, out: Out, format: str, view: str) -> None:
    """A mark may be larger than the numbers of Spark, and its data may be no text."""
    path = str(tmp_path / "shop")
    with fmq.open(path) as engine:
        engine.send_many("t", [b"one", b"two", b"three"])
        with engine.consumer("t", group="g") as consumer, engine.transaction() as tx:
            first, second, third = consumer.poll()
            tx.ack(first)
            tx.mark("page", 2**64 - 1, b"\xff")
            second.reject("no good")
            third.release(delay=60)
    report = arrow(path, out, format=format, view=view)
    rows = fmq.table.read(path, view).read_all().to_pylist()
    found = out.rows()
    assert report.rows == len(found) == len(rows) > 0
    assert [str(row["position"]) for row in found] == [str(row["position"]) for row in rows]
    if view == "marks":
        assert [str(row["value"]) for row in found] == [str(2**64 - 1)]
        if format == "csv":
            with pytest.raises(NotText, match=r"the body at position \d+ \(page\) is not text"):
                export(path, str(tmp_path / "text"), view=view, engine="arrow", text=True)


@pytest.mark.parametrize(
    "address", ["s3:/bucket/x", "abfs://b/x", "file:/tmp/x", "hdfs://host/x", Path("s3://b/x")]
)
def test_an_address_is_refused_as_a_destination(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | Path
) -> None:
    """No folder is made that has the first part of the address as its name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadName, match=r"an address that no export can be written to.*s3://, gs://"):
        export(shop, address)
    assert os.listdir(tmp_path) == []
    assert export(shop, "./s3:/x").rows > 0  # a folder of that name, for who means it


def test_an_address_of_a_file_is_the_directory(shop: str, tmp_path: Path) -> None:
    out = Out(tmp_path / "o u t")
    assert export(shop, f"file://{tmp_path}/o%20u%20t").out == str(out)
    assert out.rows() == expected(shop, "parquet")
    assert export(shop, str(out)).rows == 0


def test_a_destination_is_a_str_or_a_path(shop: str, tmp_path: Path) -> None:
    assert export(shop, tmp_path / "out").rows > 0
    with pytest.raises(TypeError, match="a path is a str"):
        export(shop, b"out")  # type: ignore[arg-type]


@pytest.mark.parametrize("format", FORMATS)
def test_arrow_is_the_default_engine_of_an_export(shop: str, out: Out, format: str) -> None:
    """Also where Spark is installed, for to start it takes longer than most exports."""
    assert export(shop, str(out), format=format).engine == "arrow"

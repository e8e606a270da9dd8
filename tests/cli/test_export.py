"""`fmq export`: what it says, piped and on a terminal, and how it ends."""

import errno
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import fmq
import fmq.export
from fmq.cli.codes import ERROR, FINE, USAGE
from fmq.cli.export import told
from fmq.cli.output import Row, _seconds_left
from tests.cli.command import ENVIRONMENT, fmq_piped, fmq_table_with

ARROW = ("--engine", "arrow")


def test_an_export_reports_in_json_lines_to_a_pipe(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = fmq_piped("export", shop, out, *ARROW)
    assert said.code == FINE
    [journal], [export] = said.of("journal"), said.of("export")
    assert journal["path"] == str(shop)
    assert (export["rows"], export["engine"], export["view"]) == (5, "arrow", "messages")
    assert export["written_bytes"] == sum(file.stat().st_size for file in out.rglob("*.parquet"))
    [again] = fmq_piped("export", shop, out, *ARROW).of("export")
    assert (again["rows"], again["files"]) == (0, 0)


def test_an_export_reports_in_tables_on_a_terminal(shop: Path, tmp_path: Path) -> None:
    said = fmq_table_with("--show", "export", shop, tmp_path / "out", *ARROW)
    assert "5 rows" in said
    assert "in 3 files" in said
    assert "parquet, by arrow" in said


def test_progress_that_cannot_be_shown_does_not_end_an_export(shop: Path, tmp_path: Path) -> None:
    """The error is not taken for one of the exported files, such as a full disk."""

    def refuse(row: Row) -> None:
        raise OSError(errno.ENOSPC, f"no room for {row}")

    report = fmq.export.export(
        str(shop), str(tmp_path / "out"), engine="arrow", progress=told(refuse)
    )
    assert report.rows == 5


def test_a_pattern_and_a_list_of_directories_are_the_same_export(
    shop: Path, segments: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    said = fmq_piped("export", tmp_path / "s*", out, "--view", "records", *ARROW)
    assert {row["path"] for row in said.of("journal")} == {str(shop), str(segments)}
    said = fmq_piped("export", shop, segments, out, "--view", "records", *ARROW)
    assert said.of("export")[0]["rows"] == 0


def test_an_error_of_an_export_is_printed_without_a_traceback(shop: Path, tmp_path: Path) -> None:
    said = fmq_piped("export", shop, shop, *ARROW)
    assert said.code == ERROR
    assert said.error.startswith(f"fmq: {shop}: holds ")
    assert "Traceback" not in said.error


def test_a_skipped_gap_is_listed(tmp_path: Path) -> None:
    path, out = tmp_path / "shop", tmp_path / "out"
    options = fmq.Options(segment_bytes=16 * 1024, retain_bytes=32 * 1024)
    with fmq.open(path, options, background=False) as engine:
        engine.send("orders", b"first")
        engine.checkpoint()
        assert fmq_piped("export", path, out, *ARROW).code == FINE
        for _ in range(100):
            engine.send("orders", b"x" * 1000)
        engine.checkpoint()
    said = fmq_piped("export", path, out, *ARROW)
    assert said.code == ERROR
    assert "--on-gap skip" in said.error
    said = fmq_piped("export", path, out, "--on-gap", "skip", *ARROW)
    assert said.code == FINE
    assert len(said.of("gap")) == 1


@pytest.mark.parametrize(
    ("package", "verb", "extra"),
    [
        ("pyarrow", ("export", "shop", "out"), "arrow"),
        ("numpy", ("export", "shop", "out"), "arrow"),
        ("pyspark", ("export", "shop", "out", "--format", "orc"), "spark"),
        ("pyspark", ("export", "shop", "out", "--engine", "spark"), "spark"),
        ("pyarrow", ("report", "shop"), "arrow"),
        ("numpy", ("report", "shop", "page.html"), "arrow"),
        ("pyarrow", ("import", "shop", "rows.csv"), "arrow"),
        ("pyarrow", ("replay", "shop", "--topic", "audit", "--into", "again"), "arrow"),
    ],
)
def test_an_error_for_a_missing_package_names_the_extra(
    shop: Path, package: str, verb: Sequence[str], extra: str
) -> None:
    """Method: hide the package from a process of its own. There is one line, and no file."""
    script = (
        f"import sys; sys.modules[{package!r}] = None; from fmq.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *verb],
        cwd=shop.parent,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ERROR
    assert len(done.stderr.splitlines()) == 1
    assert f"needs {package}, which this process does not find" in done.stderr
    assert f"pip install 'fmq-engine[{extra}]'" in done.stderr
    assert ("parquet, csv, json" in done.stderr) == ("--format" in verb)
    assert [path.name for path in shop.parent.iterdir()] == ["shop"]


@pytest.mark.parametrize("format", ["table", "auto"])
def test_a_format_of_other_verbs_is_refused_with_the_option_that_was_meant(
    shop: Path, tmp_path: Path, format: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        fmq_piped("export", shop, tmp_path / "out", "--format", format)
    assert ended.value.code == USAGE
    assert not (tmp_path / "out").exists()


def test_the_remaining_time_is_shown_once_a_rate_is_known() -> None:
    """Rows may be counted before any bytes are."""
    row = {"rows": 5, "bytes": 0, "bytes_total": 1000}
    assert _seconds_left(row, 2.0) is None
    assert _seconds_left({**row, "bytes": 250}, 2.0) == 6.0

"""`fmq import`: rows of files become messages, all of them or none, and once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import fmq
from tests.cli.command import fmq_json, fmq_piped


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The same two messages in each kind of file."""
    rows = pa.table({"body": ["1", "2"], "key": ["a", None], "topic": ["t", "t"]})
    places = [tmp_path / name for name in ("a.parquet", "b.arrow", "c.arrow", "d.jsonl")]
    parquet.write_table(rows, places[0])
    with pa.ipc.new_file(str(places[1]), rows.schema) as file:
        file.write_table(rows)
    with pa.ipc.new_stream(str(places[2]), rows.schema) as stream:
        stream.write_table(rows)
    places[3].write_text('{"topic":"t","body":"1","key":"a"}\n{"topic":"t","body":"2"}\n')
    return places


def found_in(path: Path) -> list[tuple[bytes, str | None]]:
    with fmq.open(path, read_only=True) as engine:
        return [(each.body, each.key) for each in engine.read("t")]


def test_each_kind_of_file_is_there_once(tmp_path: Path, files: list[Path]) -> None:
    mark = "--mark", "load", "--value", "1"
    said = fmq_json("import", tmp_path / "d", *files, "--create", *mark)
    (facts,) = said.of("import")
    assert (said.code, facts["messages"], facts["was_there"]) == (0, 8, False)
    (facts,) = fmq_json("import", tmp_path / "d", *files, *mark).of("import")
    assert (facts["messages"], facts["was_there"]) == (0, True)
    assert found_in(tmp_path / "d") == [(b"1", "a"), (b"2", None)] * 4


def test_columns_are_chosen(tmp_path: Path, files: list[Path]) -> None:
    said = fmq_piped(
        *("import", tmp_path / "d", files[0], "--create"), *("--columns", "body", "--topic", "t")
    )
    assert said.code == 0
    assert found_in(tmp_path / "d") == [(b"1", None), (b"2", None)]


REFUSED = {
    "another file": (["x.csv"], "has to end in .parquet or .arrow"),
    "no file": (["gone.parquet"], "No such file or directory. Nothing was written."),
    "an empty topic": (["d.jsonl", "--topic", ""], "topic ''"),
    "a column twice": (["a.parquet", "--topic", "u"], "another one was given"),
    "no such column": (["a.parquet", "--columns", "body,x"], "has no column x"),
    "no Parquet": (["e.parquet"], "e.parquet"),
    "a wrong line": (["d.jsonl", "f.jsonl"], "f.jsonl, line 1"),
    "no topic": (["g.jsonl"], "line 1, has no topic"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_files_leave_nothing(tmp_path: Path, files: list[Path], case: str) -> None:
    (tmp_path / "x.csv").touch()
    (tmp_path / "e.parquet").write_text("no")
    (tmp_path / "f.jsonl").write_text("no\n")
    (tmp_path / "g.jsonl").write_text('{"body":"x"}\n')
    words, text = REFUSED[case]
    given = [tmp_path / word if "." in word else word for word in words]
    said = fmq_piped("import", tmp_path / "d", *given, "--create")
    assert said.code == 3
    assert text in said.error
    assert "Nothing was written" in said.error or "Nothing was changed" in said.error
    if (tmp_path / "d").exists():
        with fmq.open(tmp_path / "d", read_only=True) as engine:
            assert engine.queues() == []

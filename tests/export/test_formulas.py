"""CSV for people: no cell begins as a formula of a spreadsheet, unless that is asked for."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import fmq
from fmq.export import OtherExport, export
from tests.cli.command import fmq_piped
from tests.export.reading import Out

TEXTS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠1", "'=1")
DANGEROUS = tuple("=+-@\t\r\n＝＋－＠")
FALSE_FORMULA = b"\xf8\x00\x00"  # in base64 it begins with +
NAMES = [text for text in TEXTS if text.isprintable()]


@pytest.fixture
def formulas(tmp_path: Path) -> str:
    """A journal in which all that may be text begins as formulas do."""
    path = str(tmp_path / "formulas")
    with fmq.open(path, background=False) as engine:
        for text in TEXTS:
            engine.send("texts", text.encode(), key=text, tag=text, headers={text: text})
        for number, name in enumerate(NAMES):
            tx = engine.transaction(tx_id=f"={number}", producer=name)
            tx.send("bytes", FALSE_FORMULA)
            tx.prepare()
            engine.decide(tx.tx_id, "commit", reason=TEXTS[number], decided_by=name)
    return path


def cells(out: Out) -> list[dict[str, str]]:
    """The rows as any reader of CSV has them, all as text."""
    texts = [io.StringIO(data.decode(), newline="") for data in out.files().values()]
    return [row for text in texts for row in csv.DictReader(text)]


def without_mark(cell: str) -> str:
    """The rule of the documents: one ' at the beginning is taken away."""
    return cell.removeprefix("'")


@pytest.mark.parametrize("view", ["messages", "records", "transactions"])
def test_no_csv_cell_begins_like_a_formula(formulas: str, out: Out, view: str) -> None:
    """This holds in every view. A program that removes the mark has each cell as it was."""
    raw = Out(out.path.with_name("raw"))
    export(formulas, str(out), engine="arrow", format="csv", view=view)
    export(formulas, str(raw), engine="arrow", format="csv", view=view, raw=True)
    marked, plain = cells(out), cells(raw)
    assert len(marked) == len(plain) >= len(NAMES)
    assert [cell for row in marked for cell in row.values() if cell.startswith(DANGEROUS)] == []
    assert any(cell.startswith(DANGEROUS) for row in plain for cell in row.values())
    assert [{name: without_mark(cell) for name, cell in row.items()} for row in marked] == plain


def test_bodies_that_are_text_are_marked_too(tmp_path: Path, out: Out) -> None:
    """So is a body that begins with the mark, so that a program may always remove one mark."""
    path = str(tmp_path / "texts")
    with fmq.open(path, background=False) as engine:
        engine.send_many("texts", [text.encode() for text in TEXTS])
    export(path, str(out), engine="arrow", format="csv", text=True)
    assert [row["body"] for row in cells(out)] == [f"'{text}" for text in TEXTS]


def test_texts_in_json_are_not_marked(formulas: str, out: Out) -> None:
    """Programs read JSON."""
    export(formulas, str(out), engine="arrow", format="json")
    keys = [json.loads(line)["key"] for file in out.files().values() for line in file.splitlines()]
    assert [key for key in keys if key is not None] == list(TEXTS)


def test_marked_and_raw_cells_are_never_in_one_export(formulas: str, out: Out) -> None:
    export(formulas, str(out), engine="arrow", format="csv")
    with pytest.raises(OtherExport, match="cells as they are: no, and this one has yes"):
        export(formulas, str(out), engine="arrow", format="csv", raw=True)


def test_an_export_of_an_older_version_keeps_its_cells_raw(formulas: str, out: Out) -> None:
    """Versions before this option wrote no marks and did not say so."""
    export(formulas, str(out), engine="arrow", format="csv", raw=True)
    state = out.path / "_fmq" / "export.json"
    says = json.loads(state.read_text())
    del says["shape"]["raw"]
    state.write_text(json.dumps(says))
    with pytest.raises(OtherExport, match="cells as they are: yes, and this one has no"):
        export(formulas, str(out), engine="arrow", format="csv")
    assert export(formulas, str(out), engine="arrow", format="csv", raw=True).rows == 0


def test_the_option_raw_writes_cells_without_marks(formulas: str, tmp_path: Path) -> None:
    for name, options in (("people", ()), ("programs", ("--raw",))):
        command = ("export", formulas, tmp_path / name, "--engine", "arrow", "--format", "csv")
        assert fmq_piped(*command, *options).code == 0
    people, programs = (cells(Out(tmp_path / name)) for name in ("people", "programs"))
    assert not any(row["key"].startswith(DANGEROUS) for row in people)
    assert any(row["key"].startswith(DANGEROUS) for row in programs)

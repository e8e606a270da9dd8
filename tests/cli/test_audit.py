"""`fmq audit`: what it says of a sound table and of one with a fault, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq.cli.table_failures import lacks
from tests.cli.command import fmq_json, fmq_piped, fmq_table_with
from tests.lake.tables import rewrite


def test_audit_finds_what_a_table_lacks(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    assert fmq_json("deliver", shop, out, "--to", "parquet", "--once").code == 0
    sound = fmq_json("audit", shop, out, "--to", "parquet")
    (facts,) = sound.of("audit")
    assert (sound.code, facts["ok"], facts["wrong"]) == (0, True, 0)
    assert facts["rows"] > 2
    table = fmq_table_with("--format", "audit", shop, out, "--to=parquet")
    assert "has each message once" in " ".join(table.split())
    rewrite(str(out), "parquet", lambda rows: rows.slice(1))
    faulty = fmq_json("audit", shop, out, "--to", "parquet")
    (facts,), (finding,) = faulty.of("audit"), faulty.of("finding")
    assert (faulty.code, facts["wrong"], finding["kind"]) == (1, 1, "missing")


def test_audit_of_nothing_says_what_to_do(shop: Path, tmp_path: Path) -> None:
    said = fmq_piped("audit", shop, tmp_path / "lake", "--to", "parquet")
    assert (said.code, said.lines) == (3, [])
    assert "`fmq deliver` makes one" in said.error


def test_audit_tells_a_message_that_was_changed(tmp_path: Path) -> None:
    path, out = tmp_path / "d", tmp_path / "lake"
    with fmq.open(path) as engine:
        engine.send("orders", b"right", key="k")
    assert fmq_json("deliver", path, out, "--to", "parquet", "--once").code == 0

    rewrite(
        str(out),
        "parquet",
        lambda rows: rows.set_column(
            rows.schema.get_field_index("body"), rows.schema.field("body"), [[b"wrong"]]
        ),
    )
    (finding,) = fmq_json("audit", path, out, "--to", "parquet").of("finding")
    assert (finding["kind"], finding["reason"]) == ("differs", "the journal has another body")


def test_the_table_may_be_named_by_an_option(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    assert fmq_json("deliver", shop, out, "--to", "parquet", "--once").code == 0
    said = fmq_json("audit", shop, "--lake", out, "--to", "parquet")
    assert said.lines == fmq_json("audit", shop, out, "--to", "parquet").lines
    with pytest.raises(SystemExit):
        fmq_piped("audit", shop, "--lake", out, "--between", "orders", "emails")


def test_topics_of_a_pattern_are_compared(shop: Path) -> None:
    with fmq.open(shop) as engine:
        engine.send("in", b"1", key="k")
        engine.send("out", b"1", key="k")
    between = "--between", "in", "out", "--by", "key"
    said = fmq_json("audit", f"{shop.parent}/{shop.name[:-1]}*", *between)
    assert (said.code, said.of("audit")[0]["others"]) == (0, 1), said
    assert said.of("audit") == fmq_json("audit", shop, *between).of("audit")


def test_a_package_that_cannot_be_loaded_is_told_with_its_reason() -> None:
    said = str(lacks("fmq deliver", ImportError("libarrow.so: cannot open"), "delta"))
    assert "libarrow.so: cannot open" in said
    assert "fmq-engine[delta]" in said


def test_a_table_that_its_library_cannot_read_is_no_finding(shop: Path, tmp_path: Path) -> None:
    """Code 1 would say that the table is wrong."""
    out = tmp_path / "lake"
    (out / "_delta_log").mkdir(parents=True)
    (out / "_delta_log" / f"{0:020}.json").write_text("no JSON")
    said = fmq_piped("audit", shop, out, "--to", "delta")
    assert (said.code, said.lines) == (3, [])
    assert said.error.startswith(f"fmq: {out}: ")
    assert "Nothing was written. Put that right" in said.error

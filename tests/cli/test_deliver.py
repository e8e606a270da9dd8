"""`fmq deliver`: once, on and on, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pytest

import fmq
from tests.cli.command import fmq_json, fmq_piped, fmq_process

AWAY = [  # credentials, too, so that no service of a cloud is asked for some
    *("--option", "AWS_ENDPOINT_URL=http://127.0.0.1:1", "--option", "AWS_REGION=here"),
    *("--option", "AWS_ACCESS_KEY_ID=a", "--option", "AWS_SECRET_ACCESS_KEY=b"),
]
ROOT = Path(__file__).parent.parent.parent


def rows_in(out: Path) -> int:
    return int(pyarrow.dataset.dataset(out, format="parquet").count_rows()) if out.exists() else 0


def test_deliver_once_says_each_commit(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    asked = ("deliver", shop, out, "--to", "parquet", "--once", "--rows", "2")
    first = fmq_json(*asked)
    told, (done,) = first.of("progress"), first.of("deliver")
    assert (len(told), told[-1]["rows"]) == (done["commits"], done["rows"])
    assert done["rows"] == rows_in(out) > 0
    assert told[-1]["bytes"] == told[-1]["bytes_total"]
    assert fmq_json(*asked).of("deliver")[0]["commits"] == 0


def test_deliver_runs_until_sigterm(shop: Path, tmp_path: Path) -> None:
    """What is sent while it runs arrives, and it ends well."""
    out = tmp_path / "lake"
    line = [sys.executable, "-m", "fmq", "deliver", shop, out, "--to", "parquet", "--every", "0.05"]
    deliver = subprocess.Popen(list(map(str, line)), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert deliver.stdout is not None
    assert json.loads(deliver.stdout.readline())["what"] == "progress"
    before = rows_in(out)
    with fmq.open(shop) as engine:
        engine.send_many("orders", [b"new"] * 10)
    while rows_in(out) < before + 10:
        assert deliver.poll() is None
    deliver.terminate()
    said = deliver.communicate()[0].splitlines()
    assert (deliver.returncode, json.loads(said[-1])["rows"]) == (0, rows_in(out))


def test_what_cannot_be_delivered_makes_nothing(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    for asked, said in (
        (("deliver", tmp_path / "shpo", out, "--to", "parquet"), "No such file"),
        (("deliver", shop, "s3://bucket/x", "--to", "parquet"), "cannot be delivered to s3:"),
        (("deliver", shop, out, "--to", "parquet", "--rows", "0"), "must be more than 0"),
    ):
        done = fmq_process(*asked, "--once")
        assert (done.returncode, said in done.stderr) == (3, True), done.stderr
    assert not out.exists()


def test_what_a_library_raises_is_one_sentence(shop: Path, tmp_path: Path) -> None:
    """An OSError of it is not taken for one of the output, and no traceback is printed."""
    (tmp_path / "file").touch()
    for to, url, name in (
        ("delta", tmp_path / "file", "DeltaError"),
        ("parquet", tmp_path / "file", "FileExistsError"),
        ("iceberg", "catalog://nowhere/shop.messages", "ValueError"),
        ("delta", "s3://bucket/lake", "OSError"),
    ):
        known = AWAY if to == "delta" else ()
        said = fmq_piped("deliver", shop, url, "--to", to, "--once", *known)
        assert (said.code, said.lines) == (3, []), said
        assert said.error.startswith(f"fmq: {url}: {name}: "), said.error
        assert said.error.count("\n") == 1
        assert "\x1b" not in said.error
        assert "each row once" in said.error
        assert "run it again" in said.error


@pytest.mark.parametrize(
    ("to", "table"),
    [
        ("delta", "shop"),
        ("parquet", "shop"),
        ("iceberg", "shop/a.b"),
        ("delta", "shop/table"),  # in the journal
        ("delta", ""),  # around it
        ("delta", "home"),
        ("iceberg", "shop.table"),  # whose files are in shop/table
    ],
)
def test_no_table_is_put_into_a_journal(shop: Path, to: str, table: str) -> None:
    """As by a line that lacks URL: what vacuums a table would remove the journal, or a home."""
    top = shop.parent
    with fmq.open(top / "cache", home=f"file://{top}/home") as engine:
        engine.send("t", b"1")
    before = sorted(top.rglob("*"))
    said = fmq_piped("deliver", shop, top / table, "--to", to, "--once")
    assert (said.code, "so no table is put there" in said.error) == (3, True), said
    assert sorted(top.rglob("*")) == before

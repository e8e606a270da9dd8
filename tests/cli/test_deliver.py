"""`fmq deliver`: once, on and on, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset

import fmq
from tests.cli.command import fmq_json, fmq_process

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

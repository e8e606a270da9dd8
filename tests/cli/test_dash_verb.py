"""`fmq dash`: where it listens, who gets in, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fmq
from tests.cli.command import COMMAND, ENVIRONMENT, fmq_json

TOKEN = "0123456789abcdef"


@contextmanager
def dash(*arguments: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the verb at a free port, and yield the address that it prints."""
    with subprocess.Popen(
        [*COMMAND, "dash", *map(str, arguments), "--at", "127.0.0.1:0"],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\S*", line)
            assert found, line
            yield found[0], process
        finally:
            process.kill()


def test_the_printed_address_leads_to_the_pages_and_a_signal_ends_them(shop: Path) -> None:
    with fmq.open(shop) as engine, engine.serve(), dash(shop) as (url, process):
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = browser.open(url, timeout=60).read().decode()
        assert "billing" in page and "1 undecided transaction" in page
        bare = url.partition("enter")[0]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(bare, timeout=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None and process.stderr.read() == ""


def test_a_token_that_is_given_is_not_printed(shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with fmq.open(shop) as engine, engine.serve(), dash(shop, "--token-file", file) as (url, _):
        assert url.endswith("/")
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert browser.open(f"{url}enter?token={TOKEN}", timeout=60).status == 200


def test_it_is_refused_where_no_process_serves(shop: Path) -> None:
    done = fmq_json("dash", shop)
    assert (done.code, done.lines) == (3, []) and "fmq serve" in done.error


@pytest.mark.parametrize("where", ["8787", "127.0.0.1:x", "127.0.0.1:65536", "192.0.2.1:0"])
def test_an_address_where_it_cannot_listen_is_refused(shop: Path, where: str) -> None:
    with fmq.open(shop) as engine, engine.serve():
        done = fmq_json("dash", shop, "--at", where)
    assert done.code == 3 and where in done.error and "Nothing is served." in done.error


def test_a_token_that_is_none_is_refused(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    for data, says in ((b"short", "16 characters"), (b"\xff" * 20, "is no text")):
        file.write_bytes(data)
        with fmq.open(shop) as engine, engine.serve():
            done = fmq_json("dash", shop, "--token-file", file)
        assert done.code == 3 and says in done.error
    done = fmq_json("dash", shop, "--token-file", tmp_path / "none")
    assert done.code == 3 and "No such file" in done.error
    monkeypatch.setenv("FMQ_DASH_TOKEN", "short, too")
    with fmq.open(shop) as engine, engine.serve():
        done = fmq_json("dash", shop)
    assert done.code == 3 and "16 characters" in done.error


def test_without_uvicorn_it_says_which_extra_has_it(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "fmq.dash.dash_server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = fmq_json("dash", shop)
    assert done.code == 3 and "pip install 'fmq-engine[dash]'" in done.error
    monkeypatch.delitem(sys.modules, "fmq.dash.dash_server", raising=False)

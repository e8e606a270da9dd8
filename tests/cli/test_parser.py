"""The command line: verbs that are nearly right, and FMQ_DIR in place of DIR."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fmq.cli.main import main
from tests.cli.command import fmq_json, fmq_piped


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("tial shop orders", "did you mean `fmq tail`?"),
        ("verfy shop", "did you mean `fmq verify`?"),
        ("group lst shop", "did you mean `fmq group list`?"),
        ("dlq reply shop", "did you mean `fmq dead replay`?"),
        ("xyzzy", "--help lists them all"),
        ("consume shop orders", "engine.consumer(...)"),
    ],
)
def test_a_verb_that_is_nearly_right_is_answered_by_the_right_one(
    line: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 2
    assert near in capsys.readouterr().err


def test_the_verb_dlq_is_another_name_for_dead(shop: Path) -> None:
    assert fmq_json("dlq", "list", shop) == fmq_json("dead", "list", shop)


@pytest.fixture
def variable(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FMQ_DIR names the shop, and the current directory is another one."""
    other = shop.parent / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    monkeypatch.setenv("FMQ_DIR", os.fspath(shop))
    return shop


@pytest.mark.parametrize(
    "line",
    [
        "info",
        "verify",
        "tx list",
        "tx show order-1",
        "dead list",
        "delayed list",
        "delayed list orders",
        "read audit",
        "read --limit 2 audit",
        "read audit --limit 2",
        "why --after 99999 billing",
        "why billing --after 99999",
        "find orders c-1",
        "tx decide order-3 commit --reason x",
        "doctor",
    ],
)
def test_the_variable_fmq_dir_names_the_directory(variable: Path, line: str) -> None:
    verb, *more = line.split(" ")
    actions = [more.pop(0)] if verb in ("tx", "dead", "delayed") else []
    named = fmq_json(verb, *actions, variable, *more)
    left_out = fmq_json(*line.split())
    assert left_out.code == named.code < 2, left_out.error
    assert [line["what"] for line in left_out.lines] == [line["what"] for line in named.lines]


def test_a_directory_on_the_command_line_overrides_the_variable(variable: Path) -> None:
    """So a script means the same, whatever the variable says."""
    assert fmq_json("send", "mine", "t", "x", "--create").code == 0
    assert fmq_json("read", "mine", "t").of("message")[0]["body"] == "x"
    assert fmq_json("send", "mine", "u", "y").code == 0
    assert fmq_json("read", "mine", "u").of("message")[0]["body"] == "y"
    assert fmq_json("read", "u").code == 3


def test_the_directory_of_the_variable_may_be_named_before_it_is_made(tmp_path: Path) -> None:
    """It is no topic of itself."""
    done = subprocess.run(
        [sys.executable, "-m", "fmq", "send", tmp_path / "new", "orders", "--create"],
        env=os.environ | {"FMQ_DIR": "new"},
        cwd=tmp_path,
        input=b"x",
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["topic"] == "orders"


def test_send_uses_the_directory_of_the_variable_fmq_dir(variable: Path) -> None:
    assert fmq_json("send", "t", "x").code == 0
    assert fmq_json("read", variable, "t").of("message")[0]["body"] == "x"


def test_an_argument_after_two_dashes_is_not_an_option(variable: Path) -> None:
    assert fmq_piped("send", "--format", "json", "t", "--", "-5").code == 0
    assert fmq_json("read", variable, "t").of("message")[0]["body"] == "-5"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("find orders", "the following arguments are required: KEY"),
        ("read --limit 3", "required: TOPIC; `fmq topics DIR` lists them"),
        ("info --al", None),
        ("find a b c d", "unrecognized arguments: d"),
        ("read audit --limit no", "must be a whole number"),
    ],
)
def test_a_wrong_command_line_is_refused_with_the_variable_too(
    variable: Path, line: str, says: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if says is None:
        assert fmq_json(*line.split()).code == 0  # argparse knows an option by its beginning
        return
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_without_the_variable_a_missing_directory_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FMQ_DIR", raising=False)
    with pytest.raises(SystemExit):
        main(["info"])
    assert "required: DIR" in capsys.readouterr().err

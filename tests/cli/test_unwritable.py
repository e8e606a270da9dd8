"""How each verb ends whose output cannot be written: nothing is left for the interpreter to flush.

Python would exit with 120 and print a traceback of its own if its last flush failed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.cli.command import COMMAND, ENVIRONMENT

VERBS = {
    "info": ("info", "{shop}"),
    "records": ("records", "{shop}"),
    "tx list": ("tx", "list", "{shop}"),
    "tx show": ("tx", "show", "{shop}", "order-3"),
    "verify": ("verify", "{shop}"),
    "export": ("export", "{shop}", "{new}", "--engine", "arrow"),
    "demo": ("demo", "{new}"),
    "ddl": ("ddl", "sqlite"),
    "help": ("--help",),
    "help of a verb": ("records", "--help"),
    "version": ("--version",),
}
# The option for tables or JSON, if it has another name or there is none.
OPTION = {"export": "--show", "ddl": "", "help": "", "help of a verb": "", "version": ""}
HOW = {"buffered": {}, "unbuffered": {"PYTHONUNBUFFERED": "1"}}
# Each verb in each format and with each buffer; one of them in all four ways.
CASES = [
    *((verb, "json", "buffered") for verb in VERBS),
    *((verb, "table", "unbuffered") for verb in VERBS),
    ("records", "table", "buffered"),
    ("records", "json", "unbuffered"),
]
NOT_SHOWN = "fmq: what there is to show could not be written: [Errno 28] No space left on device\n"


def run(
    verb: str, format: str, shop: Path, tmp_path: Path, stdout: int, how: dict[str, str]
) -> tuple[int, str]:
    """Run it with `stdout`; return the exit code and what it said on stderr."""
    words = [word.format(shop=shop, new=tmp_path / "new") for word in VERBS[verb]]
    if option := OPTION.get(verb, "--format"):
        words += [option, format]
    told = {**ENVIRONMENT, "TMPDIR": str(tmp_path), **how}
    done = warm.run(["-m", "fmq", *words], cwd=tmp_path, env=told, stdout=stdout)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("verb", "format", "how"), CASES)
def test_output_to_a_full_disk_fails_with_one_sentence(
    verb: str, format: str, how: str, shop: Path, tmp_path: Path
) -> None:
    """The exit code is 3, whenever the output is written."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        code, error = run(verb, format, shop, tmp_path, full, HOW[how])
    finally:
        os.close(full)
    assert (code, error) == (3, NOT_SHOWN)


@pytest.mark.parametrize(("verb", "format", "how"), CASES)
def test_output_to_a_closed_pipe_exits_with_141_and_no_error(
    verb: str, format: str, how: str, shop: Path, tmp_path: Path
) -> None:
    """Shells give the same exit code."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, error = run(verb, format, shop, tmp_path, writing, HOW[how])
    finally:
        os.close(writing)
    assert (code, error) == (141, "")


def test_an_error_that_cannot_be_written_still_has_its_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "info", tmp_path / "nowhere"], env=ENVIRONMENT, stderr=full, check=False
        )
    assert done.returncode == 3

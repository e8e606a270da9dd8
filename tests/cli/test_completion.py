"""`fmq completion`: what shells complete. bash is asked itself; the others where they are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import fmq_process

BASH = """
source {script}
COMP_WORDS=({line}"")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_fmq
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def script_of(shell: str, path: Path) -> Path:
    done = fmq_process("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    file = path / f"fmq.{shell}"
    file.write_text(done.stdout)
    return file


def run(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def completed(line: str, path: Path) -> list[str]:
    """Return what bash offers behind `line`, whose last word may be unfinished."""
    words, _, last = line.rpartition(" ")
    text = BASH.format(script=script_of("bash", path), line=f"{words} ").replace(
        '"")', f'"{last}")'
    )
    return run(["bash", "-c", text])


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fmq tai", ["tail"]),
        ("fmq delayed ", ["list", "recall"]),
        ("fmq dlq re", ["replay"]),
        ("fmq tail shop orders --f", ["--format", "--from", "--filter"]),
        ("fmq tail shop orders --format ", ["auto", "table", "json"]),
        ("fmq records shop --kind PRE", ["PREPARE", "PRE_MESSAGE"]),
        ("fmq ddl ", ["mysql", "postgres", "sqlite"]),
        ("fmq tx decide shop t", []),
    ],
)
def test_bash_completes_verbs_options_and_values(
    line: str, offered: list[str], tmp_path: Path
) -> None:
    assert completed(line, tmp_path) == offered


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
def test_fish_completes_verbs_options_and_values(tmp_path: Path) -> None:
    script = script_of("fish", tmp_path)

    def offered(line: str) -> list[str]:
        command = f"source {script}; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", command], capture_output=True, text=True, check=True
        )
        return [row.partition("\t")[0] for row in done.stdout.splitlines()]

    assert offered("fmq tai") == ["tail"]
    assert sorted(offered("fmq delayed ")) == ["list", "recall"]
    assert "--from" in offered("fmq tail shop orders --f")
    assert sorted(offered("fmq tail shop orders --format ")) == ["auto", "json", "table"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh here")
def test_zsh_reads_its_script_without_an_error(tmp_path: Path) -> None:
    script = script_of("zsh", tmp_path)
    assert (
        run(["zsh", "-f", "-c", f"autoload -Uz compinit && compinit -D && source {script}"]) == []
    )

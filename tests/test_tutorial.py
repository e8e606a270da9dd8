"""The tutorial, and the page about gunicorn, work as they stand: their files are written, and their
commands are typed into a shell.

The shell is on a terminal, so what is printed is what a reader sees. Only the port is another one:
somebody may use that of the text.
"""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fmq
from tools.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
# Each page, the port in it, and what it calls besides fmq.
PAGES = {"tutorial.md": ("5000", "flask"), "howto/gunicorn.md": ("8000", "gunicorn")}
FENCED = re.compile(r"^```(\S+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", re.MULTILINE)
PATIENCE_SECONDS = 120.0  # a shared machine


class Terminal:
    """A shell that reads commands from a pipe, and whose output goes to a terminal."""

    def __init__(self, home: Path) -> None:
        self._out, inner = pty.openpty()
        # Python may keep what it compiles: a dozen programs of the page import fmq.
        environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        said = {"PATH": path, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=home,
            env=environment | said,
            stdin=subprocess.PIPE,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self.said = ""

    def type(self, command: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(command.encode())
        self._shell.stdin.flush()

    def wait_for(self, expected: re.Pattern[str]) -> None:
        """Read until `expected` was printed, and forget what was printed up to there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := expected.search(self.said)) is None:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._out], [], [], max(left, 0))
            assert ready, f"the page says\n{expected.pattern}\nand the shell said\n{self.said}"
            self.said += os.read(self._out, 65536).decode().replace("\r\n", "\n")
        self.said = self.said[found.end() :]

    def close(self) -> None:
        """Kill the shell and what it has started; the processes are in its session."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
        os.close(self._out)


def pattern(lines: str) -> re.Pattern[str]:
    """Return what matches `lines` in this order; `...` stands for any text, a space for spaces."""
    wanted = []
    for line in lines.splitlines():
        words = " +".join(map(re.escape, line.split()))
        wanted.append(re.sub(r"\\\.\\\.\\\.( \+)?", ".*", words) + ".*")
    return re.compile(r"\n(?:.*\n)*?.*?".join(wanted))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_stands(tmp_path: Path, page: str) -> None:
    """Each command prints what the page says, in its order, kills included."""
    port_there, server_there = PAGES[page]
    missing = [name for name in ("bash", "curl", server_there, "fmq") if not found(name)]
    if missing:
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    port = str(free_port())
    terminal = Terminal(tmp_path)
    try:
        for kind, name, text in FENCED.findall(text_of(page)):
            text = text.replace(port_there, port)
            if kind == "python":
                (tmp_path / name.removeprefix("file=")).write_text(text)
            elif kind == "console":
                for command, expected in COMMAND.findall(text):
                    terminal.type(command)
                    if "& " not in command:
                        terminal.type("echo '(the command has ended)'\n")
                        expected += "(the command has ended)\n"
                    terminal.wait_for(pattern(expected))
    finally:
        terminal.close()
        fmq.stop(tmp_path / "queue")


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def found(name: str) -> bool:
    return shutil.which(name) is not None or (Path(sys.executable).parent / name).exists()


@pytest.mark.parametrize("page", PAGES)
def test_each_file_and_command_of_a_page_is_run(page: str) -> None:
    """No block of the page is left out but the installation."""
    text = text_of(page)
    blocks = [(kind, name.partition("=")[0]) for kind, name, _ in FENCED.findall(text)]
    assert blocks.count(("sh", "")) == 1
    assert {*blocks} == {("sh", ""), ("python", "file"), ("console", "")}
    assert len(blocks) == text.count("\n```") / 2

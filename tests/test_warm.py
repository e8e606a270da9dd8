"""Programs that tests run in a forked process end as they do in a new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm

PROGRAMS = {
    "the last line": "print(len(sys.argv), __name__)",
    "an exit": "print('x'); sys.exit(3)",
    "an error": "print('x'); raise ValueError",
    "an interrupt": "raise KeyboardInterrupt",
    "a kill": "os.kill(os.getpid(), 9)",
    "no farewell": "print('lost'); os._exit(4)",
    "a last word": "import atexit; atexit.register(print, 'bye')",
    "a thread": "import threading; threading.Thread(target=print, args=['late']).start()",
    "a warning": "import warnings; warnings.warn('x')",
    "a child": "sys.stdout.flush(); os.fork() or os._exit(0); os.wait(); print('done')",
    "input": "print(sys.stdin.read())",
    "a text": "print('é', file=sys.stderr); print('é')",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_in_a_new_process(name: str) -> None:
    arguments = ["-W", "error", "-c", "import os, sys\n" + PROGRAMS[name], "one", "two"]
    done = warm.run(arguments, input=b"given")
    new = subprocess.run(
        [sys.executable, *arguments], input="given", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (new.returncode, new.stdout)
    assert done.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


def test_a_program_has_a_folder_and_an_environment_of_its_own(tmp_path: Path) -> None:
    source = "import os; print(os.getcwd(), dict(os.environ), os.getppid())"
    done = warm.run(["-c", source], cwd=tmp_path, env={"A": "b"})
    assert done.stdout.startswith(f"{tmp_path} {{'A': 'b'}} ")
    assert str(os.getpid()) not in done.stdout


def test_a_program_that_does_not_end_is_killed_and_the_next_one_runs() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(["-c", "import signal; signal.pause()"], timeout=0.01)
    assert warm.run(["-c", "print(5)"]).stdout == "5\n"

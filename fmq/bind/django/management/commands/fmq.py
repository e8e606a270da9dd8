"""`manage.py fmq VERB ...`: the command `fmq` on the directory that the settings name.

`FMQ_DIR = "/var/lib/shop/queue"` in the settings stands for DIR, where a verb has one and it is
left out. The words go on as they are, so each verb and option of `fmq` is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Runs `fmq` in a process of its own."""

    help = "runs the command `fmq` on settings.FMQ_DIR: manage.py fmq info, or fmq tx list"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> NoReturn:
        """Become `fmq`, with the rest of the line. Django's own parser would take its options."""
        command = fmq_command(argv[2:])
        os.execve(command[0], command, environment())

    def handle(self, *words: str, **options: Any) -> None:
        """Run `fmq` with `words`, for call_command("fmq", ...). Raises SystemExit if it fails."""
        done = subprocess.run(fmq_command(words), env=environment(), check=False)
        if done.returncode:
            raise SystemExit(done.returncode)

    def add_arguments(self, parser: Any) -> None:
        """Let call_command pass words."""
        parser.add_argument("words", nargs="*")

    def execute(self, *args: Any, **options: Any) -> None:
        """Call `handle` with the words of call_command."""
        self.handle(*(options.pop("words", None) or args))


def fmq_command(words: list[str] | tuple[str, ...]) -> list[str]:
    """Return the command line that runs `fmq` in this environment."""
    return [sys.executable, "-m", "fmq", *words]


def environment() -> dict[str, str]:
    """Return the environment of the process, with the directory of the settings."""
    directory = getattr(settings, "FMQ_DIR", None)
    return {**os.environ, **({} if directory is None else {"FMQ_DIR": os.fspath(directory)})}

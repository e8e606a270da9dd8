"""The command asks a process that serves again if its first question got no answer."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import fmq
from fmq.recovery.layout import SOCKET
from fmq.wire.processes import listen_in
from tests.cli.command import COMMAND, ENVIRONMENT

PATIENCE_SECONDS = 60.0


def test_a_verb_asks_a_process_that_listens_until_it_answers(tmp_path: Path) -> None:
    """Without that it would say of a slow process that it lets no other one in."""
    path = tmp_path / "shop"
    with fmq.open(path) as engine, engine.serve():
        (path / SOCKET).rename(path / "answers")
        silent, _ = listen_in(str(path))
        silent.settimeout(PATIENCE_SECONDS)
        command = [*COMMAND, "send", str(path), "t", "hello"]
        with (
            closing(silent),
            subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as verb,
        ):
            with silent.accept()[0] as first:
                while first.recv(4096):  # until it asks no longer here
                    pass
            silent.accept()[0].close()
            (path / "answers").rename(path / SOCKET)
            silent.close()
            _, error = verb.communicate(timeout=PATIENCE_SECONDS)
        assert verb.returncode == 0, error
        assert [each.body for each in engine.read("t")] == [b"hello"]

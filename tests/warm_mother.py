"""Forks processes that have imported fmq: the other side of tests/warm.py.

A request is a line of JSON with four files: standard input, output and error, and one for nothing
else than the answers, which are the process's id and then how it ended. One request is served after
the other. A child leaves the loop and runs its program as the last thing that this file does, so
that Python ends there as it ends any program: it flushes, calls what is registered, and exits.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import tempfile
import types
import warnings
from typing import Any

import fmq.cli

REQUEST_BYTES_MAX = 1 << 18
IMPORTED = ["sqlite3", "fmq.aio", "fmq.bind", "fmq.remote", "fmq.server", "fmq.testing"]
VERBS = [each.name for each in pkgutil.walk_packages(fmq.cli.__path__, "fmq.cli.")]


def request(control: socket.socket) -> dict[str, Any] | None:
    """Return the request that this process is to run, as a child; None if there are no more."""
    while True:
        data, files, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 3)
        if not data:
            return None
        child = os.fork()
        if not child:
            control.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return dict(json.loads(data))
        for file in files:
            os.close(file)
        control.send(str(child).encode())
        _, status, used = os.wait4(child, 0)
        seconds = used.ru_utime + used.ru_stime
        control.send(json.dumps([os.waitstatus_to_exitcode(status), seconds]).encode())


def become(asked: dict[str, Any]) -> None:
    """Make of this process what Python makes of a new one before it runs its program."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None
    sys.argv = asked["argv"]
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding)  # type: ignore[misc] # noqa: SIM115
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        buffered: Any = raw if "PYTHONUNBUFFERED" in os.environ else io.BufferedWriter(raw)
        through = number == 2 or buffered is raw
        stream = io.TextIOWrapper(buffered, encoding, errors, write_through=through)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if asked["strict"]:
        warnings.simplefilter("error")


def run(asked: dict[str, Any]) -> None:
    if asked["how"] == "-m":
        sys.path[0] = asked["cwd"]
        runpy.run_module(asked["what"], run_name="__main__", alter_sys=True)
    elif asked["how"] == "file":
        sys.path[0] = os.path.dirname(asked["what"])
        runpy.run_path(asked["what"], run_name="__main__")
    else:
        sys.path[0] = ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(asked["what"], "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    for name in IMPORTED + VERBS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that children share the memory of all this
    asked = request(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
        run(asked)

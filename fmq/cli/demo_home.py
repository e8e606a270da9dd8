"""`fmq demo --home`: two machines stand by for each other, one is killed, and a client goes on.

The machines are two processes, each with a directory of its own, and the home is a third directory.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import fmq
from fmq.cli.codes import ERROR, FINE
from fmq.cli.output import Column, Output, note
from fmq.findings.text import exact
from fmq.home.home_look import look_at_home

AFTER_SECONDS = 2.0
START_SECONDS = 30.0
MESSAGES = 200
KILLED_AFTER = 100


class DemoMachine(NamedTuple):
    """A process that stands by, or serves."""

    name: str
    address: str
    process: subprocess.Popen[bytes]


def run_home(path: str, output: Output) -> int:
    """Tell the story in the new directory `path`."""
    home = f"file://{os.path.abspath(path)}/home"
    token = Path(path, "token")
    Path(path).mkdir(exist_ok=True)
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    with _machines(path, home, token) as (one, two):
        output.say("1  Two machines and a home", heading=True)
        output.say(f"   The home is {home}: what is acknowledged is there.")
        for each in (one, two):
            command = f"fmq standby {home} {path}/{each.name} --listen {each.address}"
            output.say(f"   {command} --token-file {token} --after {AFTER_SECONDS:g}")
        with fmq.connect(home, token_file=str(token), retry_for=START_SECONDS) as client:
            output.say("2  A client sends, and the owner is killed", heading=True)
            sent, waited, owner = _send(client, lambda: _owner(home, one, two))
            output.say(f"   The client knows only {home}. After {KILLED_AFTER} messages, kill -9")
            output.say(
                f"   {owner.process.pid}, which was {owner.name}. The client has not noticed"
            )
            output.say(f"   more than that one call took {waited:.1f} s.")
            successor = _owner(home, one, two)
            found = [bytes(each.body).decode() for each in client.read("orders", limit=9999)]
        output.say("3  What is there", heading=True)
        facts = {
            "was": owner.name,
            "is": successor.name,
            "sent": len(sent),
            "lost": len({*sent} - {*found}),
            "doubled": len(found) - len({*found}),
            "in_order": found == sent,
            "seconds": round(waited, 1),
        }
        output.facts("take-over", facts, TAKE_OVER)
    output.say(f"   Look yourself: fmq home {home}")
    output.say("   It is meant for two machines: docs/home.md shows how they are set up.")
    is_whole = found == sent and owner is not successor
    if not is_whole:
        note("this is not what the demo promises")
    return FINE if is_whole else ERROR


@contextmanager
def _machines(path: str, home: str, token: Path) -> Iterator[tuple[DemoMachine, DemoMachine]]:
    made: list[DemoMachine] = []
    root = str(Path(fmq.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        for name in ("one", "two"):
            address = f"127.0.0.1:{_free_port()}"
            words = ["standby", home, f"{path}/{name}", "--listen", address, "--token-file"]
            words += [str(token), "--after", str(AFTER_SECONDS)]
            with Path(path, f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "fmq", *words],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": paths},
                    start_new_session=True,
                )
            made.append(DemoMachine(name, address, process))
            _wait_for_words(Path(path, f"{name}.log"), process)
        yield made[0], made[1]
    finally:
        for each in made:
            with suppress(ProcessLookupError):
                each.process.kill()
            each.process.wait()


def _wait_for_words(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has said that it serves, or stands by."""
    deadline = time.monotonic() + START_SECONDS
    while not any(said in log.read_bytes() for said in (b"fmq: serving", b"standing by")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise fmq.NotServed(f"the demo's machine did not start: {log.read_text()}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _owner(home: str, *machines: DemoMachine) -> DemoMachine:
    where = look_at_home(home).serves_at
    return next(each for each in machines if where == f"tcp://{each.address}")


def _send(
    client: fmq.RemoteEngine, owner: Callable[[], DemoMachine]
) -> tuple[list[str], float, DemoMachine]:
    """Send orders, and kill the owner in between. Return them, how long the longest took, and who
    was killed.
    """
    client.create_topic("orders", queues=1)
    sent, longest = [], 0.0
    for number in range(MESSAGES):
        if number == KILLED_AFTER:
            killed = owner()  # on a slow machine the other one may have taken over already
            killed.process.kill()
        began = time.monotonic()
        client.send("orders", f"order {number}".encode())
        longest = max(longest, time.monotonic() - began)
        sent.append(f"order {number}")
    return sent, longest, killed


TAKE_OVER = (
    Column("was", "the owner was"),
    Column("is", "the owner is"),
    Column("sent", "messages acknowledged", show=exact),
    Column("lost", "of them lost", show=exact),
    Column("doubled", "there twice", show=exact),
    Column("in_order", "in order"),
    Column("seconds", "the longest call took (s)"),
)

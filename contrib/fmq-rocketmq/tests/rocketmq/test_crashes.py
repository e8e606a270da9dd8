"""kill -9 of the server and of clients, with single calls and with RocketMQ's own Python client.

The commands in tools/ do more of each: kill_server.py, kill_clients.py and clients.py with other
languages, too.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import clients
import kill_clients
import kill_server
from served import Served


def test_a_kill_of_the_server_loses_nothing_and_delivers_nothing_twice(tmp_path: Path) -> None:
    found = kill_server.run(tmp_path / "store", kills=1, seed=43, workers=2)
    assert not any(found[name] for name in kill_server.BAD), found
    assert found["committed"] > 0
    assert found["late"] > 0, "no handle was used after the kill"


needs_its_client = pytest.mark.skipif(
    find_spec("rocketmq") is None, reason="RocketMQ's client is missing: rocketmq-python-client"
)


@needs_its_client
def test_its_own_client_is_asked_back_after_a_crash_and_consumes(tmp_path: Path) -> None:
    """The producer dies between its half message and the decision, and the server is killed."""
    server = Served(tmp_path / "store")
    server.start()
    try:
        found = clients.seen_by(clients.python_client(), server, modes=("die", "heir"))
    finally:
        server.kill()
    assert found == {
        "asked about an orphan after kill -9": "orphan",
        "the orphan is delivered": "orphan",
    }


@needs_its_client
def test_a_kill_of_a_client_loses_nothing_and_delivers_nothing_twice(tmp_path: Path) -> None:
    commands = {"python": kill_clients.python_shop()}
    found = kill_clients.run(tmp_path, commands, kills=1, seed=43)
    assert not any(found[name] for name in kill_clients.BAD), found
    assert found["paid"] > 0

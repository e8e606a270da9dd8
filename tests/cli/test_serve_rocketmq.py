"""`fmq serve --rocketmq`: the core finds the door of another package, and knows nothing of it."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

import fmq
from tests.cli.command import fmq_piped

# A door that notes how it was opened, and sends the signal that ends the command.
DOOR = """
import signal, threading
from contextlib import contextmanager
from types import SimpleNamespace

@contextmanager
def door(engine, where, **options):
    engine.send("seen", f"{where} {options}".encode())
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    yield SimpleNamespace(address="127.0.0.1:1")
    engine.send("seen", b"closed before the engine")
"""


@pytest.mark.skipif(
    bool(entry_points(group="fmq.doors")), reason="the package fmq-rocketmq is installed here"
)
def test_without_the_package_nothing_is_served(tmp_path: Path) -> None:
    said = fmq_piped("serve", tmp_path / "d", "--rocketmq", "127.0.0.1:0")
    assert said.code == 3
    assert "pip install fmq-rocketmq" in said.error
    assert "Nothing is served" in said.error


def test_options_without_the_door_are_refused(tmp_path: Path) -> None:
    said = fmq_piped("serve", tmp_path / "d", "--rocketmq-options", "{}")
    assert said.code == 3
    assert "needs --rocketmq" in said.error


def test_the_door_is_opened_with_its_options_and_closed_before_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a package with such a door lies on the path, as if it were installed."""
    metadata = tmp_path / "site" / "a_door-1.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site" / "a_door_of_a_test.py").write_text(DOOR)
    (metadata / "entry_points.txt").write_text("[fmq.doors]\nrocketmq = a_door_of_a_test:door\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: a-door\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    options = '{"fifo_groups": ["g"]}'
    said = fmq_piped(
        "serve", tmp_path / "d", "--rocketmq", "127.0.0.1:0", "--rocketmq-options", options
    )
    assert said.code == 0, said.error
    assert "RocketMQ's clients at 127.0.0.1:1" in said.error
    with fmq.open(tmp_path / "d", read_only=True) as engine:
        seen = [message.body for message in engine.read("seen")]
    assert seen == [b"127.0.0.1:0 {'fifo_groups': ['g']}", b"closed before the engine"]

"""What `fmq serve` opens beside the engine, and its options, are tried before a home is taken
over.
"""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

import fmq
from fmq.basics.clock import SystemClock
from fmq.engines.home_moves import take_over
from tests.cli.command import fmq_piped
from tests.home.processes import fleet

LINES = {
    "address": (["--listen", "127.0.0.1:{port}"], "cannot listen there"),
    "port": (["--http", "127.0.0.1:{port}"], "cannot listen there"),
    "same port": (
        ["--listen", "127.0.0.1:{free}", "--http", "127.0.0.1:{free}"],
        "cannot listen there (Address already in use). Nothing was changed",
    ),
    "page": (["--http", "nowhere"], "must be like 127.0.0.1:9464"),
    "collector": (["--otlp", "ftp://127.0.0.1"], "must be like http://"),
    "door": (["--rocketmq-options", "{{}}"], "needs --rocketmq"),
    "cut options": (["--options", "{{"], "It is an object with fields of fmq.Options"),
    "unknown option": (["--options", '{{"queue": 4}}'], "'queue'. Nothing was opened"),
}


def token_at(path: Path) -> Path:
    path.touch(0o600)
    path.write_text("ab" * 32)
    return path


def held() -> closing[socket.socket]:
    """A port that is free for programs that set SO_REUSEADDR, and is given to no other one."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return closing(made)


@pytest.mark.parametrize("verb", ["standby", "serve"])
@pytest.mark.parametrize("line", LINES)
def test_a_line_that_cannot_be_served_takes_no_home_over(
    tmp_path: Path, verb: str, line: str
) -> None:
    """It would cost the owner its engine, and nobody would serve then."""
    home, path = f"file://{tmp_path}/home", tmp_path / "d"
    token = token_at(tmp_path / "token")
    where = [home, path] if verb == "standby" else [path, "--home", home]
    more, says = LINES[line]
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, held() as quiet:
        port, free = taken.getsockname()[1], quiet.getsockname()[1]
        said = fmq_piped(
            *(verb, *where, "--listen", "127.0.0.1:0", "--token-file", token),
            *(each.format(port=port, free=free) for each in more),
        )
    assert says in said.error, said.error
    assert said.code == 3
    assert not (tmp_path / "home").exists() and not path.exists()


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_home_that_was_taken_over_and_cannot_be_served_is_given_up(
    tmp_path: Path, option: str
) -> None:
    """The port was free at the start, and was taken while the machine stood by. The error says what
    became of the home, and the next one need not wait for this owner.
    """
    with fleet(tmp_path) as machines, held() as port:
        fmq.open(tmp_path / "a", home=machines.home).close()  # it has no address, and stays owner
        standby = machines.standby("b", option, f"127.0.0.1:{port.getsockname()[1]}")
        standby.wait_for("standing by")
        port.listen()
        take_over(machines.home, str(tmp_path / "c"), None, SystemClock())
        said = standby.wait_for("could not serve it, so it is free again")
        assert "ddress already in use" in said and "Nothing was changed" not in said
        assert standby.ended() == 3
        machines.standby("d", after=3600.0).wait_for("serving")

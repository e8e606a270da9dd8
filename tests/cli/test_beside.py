"""What `fmq serve` opens beside the engine, and its options, are tried before a home is taken
over.
"""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command import fmq_piped

LINES = {
    "address": (["--listen", "127.0.0.1:{port}"], "cannot listen there"),
    "port": (["--http", "127.0.0.1:{port}"], "cannot listen there"),
    "page": (["--http", "nowhere"], "must be like 127.0.0.1:9464"),
    "collector": (["--otlp", "ftp://127.0.0.1"], "must be like http://"),
    "door": (["--rocketmq-options", "{{}}"], "needs --rocketmq"),
    "cut options": (["--options", "{{"], "It is an object with fields of fmq.Options"),
    "unknown option": (["--options", '{{"queue": 4}}'], "'queue'. Nothing was opened"),
}


@pytest.mark.parametrize("verb", ["standby", "serve"])
@pytest.mark.parametrize("line", LINES)
def test_a_line_that_cannot_be_served_takes_no_home_over(
    tmp_path: Path, verb: str, line: str
) -> None:
    """It would cost the owner its engine, and nobody would serve then."""
    home, path = f"file://{tmp_path}/home", tmp_path / "d"
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("ab" * 32)
    where = [home, path] if verb == "standby" else [path, "--home", home]
    more, says = LINES[line]
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        said = fmq_piped(
            *(verb, *where, "--listen", "127.0.0.1:0", "--token-file", token),
            *(each.format(port=port) for each in more),
        )
    assert says in said.error, said.error
    assert said.code == 3
    assert not (tmp_path / "home").exists() and not path.exists()

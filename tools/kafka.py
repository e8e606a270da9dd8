"""A Kafka of the tests' own: `python tools/kafka.py fetch` brings its jars, once, by Maven.

They lie in the environment of the checkout, and have to be those of `kafka.sha256`. The broker runs
on loopback with a directory of its own; it needs Java 17 and no rights.
"""

from __future__ import annotations

import base64
import fcntl
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.ports import free_ports

VERSION = "4.3.1"
FOLDER = Path(__file__).parent.parent / ".venv" / f"kafka-{VERSION}"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>fmq</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency><dependency><groupId>org.slf4j</groupId>
<artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency></dependencies></project>"""
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.disable.jmx=true"]
FETCH_SECONDS, START_SECONDS = 240, 120
HASHES = Path(__file__).with_suffix(".sha256")  # as `sha256sum *.jar` writes and reads them
# ApiVersions, version 0: length, key, version, number of the request, name of the client
ASK = bytes.fromhex("0000000f 0012 0000 00000001 0005") + b"ready"


def fetch() -> str:
    """Bring the jars, if they are not there. Return why there is none; empty if they are there."""
    return bring("Kafka", FOLDER, POM, HASHES)


def bring(what: str, folder: Path, pom: str, hashes: Path, *options: str) -> str:
    """Bring the jars of `pom` into `folder` by Maven, once. Return why they are not there."""
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            return f"no {tool} on this machine, so no {what}"
    folder.mkdir(parents=True, exist_ok=True)
    # Two processes that run tests fetch them once: the second one waits.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if (folder / "fetched").exists() else _bring(what, folder, pom, hashes, *options)


def _bring(what: str, folder: Path, pom: str, hashes: Path, *options: str) -> str:
    (folder / "pom.xml").write_text(pom)
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    line = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), *copy, *options]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not bring {what} within {FETCH_SECONDS} s"
    if done.returncode:
        return f"Maven did not bring {what}: {(done.stdout + done.stderr)[:500]}"
    if wrong := wrong_jars(folder, hashes.read_text()):
        return f"Maven brought other jars of {what} than {hashes.name} has: {', '.join(wrong)}"
    (folder / "fetched").touch()
    return ""


def wrong_jars(folder: Path, hashes: str) -> list[str]:
    """Return the names of the jars that are not as `hashes` says, missing or not named there."""
    wanted = {name: digest for digest, name in map(str.split, hashes.splitlines())}
    found = {each.name: sha256(each.read_bytes()).hexdigest() for each in folder.glob("*.jar")}
    return sorted({name for name, _ in wanted.items() ^ found.items()})


class Broker:
    """One broker, with its data in `folder`."""

    def __init__(self, folder: Path, *, starts: bool = True, **settings: object) -> None:
        self.folder = folder
        self.port, controller = free_ports(2)
        self.controller = f"127.0.0.1:{controller}"
        values = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "log.cleaner.threads": 1,
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": 1500,  # or a start after a kill takes 20 s
            "broker.heartbeat.interval.ms": 300,
            **settings,
        }
        self.values = values
        if starts:
            self.format(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
            self.start()

    def format(self, cluster: str) -> None:
        """Make the directory of its data."""
        text = "".join(f"{key}={value}\n" for key, value in self.values.items())
        (self.folder / "properties").write_text(text)
        named = f"--cluster-id={cluster}"  # in one word, as the id may begin with a dash
        self._java("kafka.tools.StorageTool", "format", named, "-c").communicate()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _java(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        line = ["java", *JVM, "-cp", f"{FOLDER}/*", name, *args, str(self.folder / "properties")]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it."""
        self.process = self._java("kafka.Kafka")

    def wait(self) -> None:
        """Wait until it answers."""
        ends = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > ends or self.process.poll() is not None:
                raise RuntimeError(f"no Kafka: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.3) as connection:
                connection.sendall(ASK)
                return len(connection.recv(4)) == 4
        except OSError:
            return False

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()


class Brokers:
    """Three brokers with replicas on each other: two have to have a message before it is acked."""

    COUNT = 3

    def __init__(self, folder: Path) -> None:
        self.nodes = []
        for number in range(1, self.COUNT + 1):
            at = folder / str(number)
            at.mkdir()
            self.nodes.append(Broker(at, starts=False, **{"node.id": number}))
        voters = ",".join(f"{n}@{each.controller}" for n, each in enumerate(self.nodes, 1))
        replicas = {
            "controller.quorum.voters": voters,
            "default.replication.factor": self.COUNT,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": self.COUNT,
            "transaction.state.log.replication.factor": self.COUNT,
            "transaction.state.log.min.isr": 2,
        }
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for each in self.nodes:
            each.values |= replicas
            each.format(cluster)
        for each in self.nodes:
            each.launch()
        for each in self.nodes:
            each.wait()

    @property
    def servers(self) -> str:
        return ",".join(each.servers for each in self.nodes)


if __name__ == "__main__":
    sys.exit(fetch() or None)

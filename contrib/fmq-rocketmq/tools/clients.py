"""Run RocketMQ's own clients, unmodified, against fmq, and print a table scenario by scenario.

    python contrib/fmq-rocketmq/tools/clients.py [python] [java] [node]

Java needs a JDK and Maven, and Node needs npm; both bring the client into build/rocketmq-clients of
the checkout. Python needs rocketmq-python-client. The exit code is 1 if a client has seen anything
else than EXPECTED.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from served import ROOT, Served

PROGRAMS = Path(__file__).parent / "programs"
BUILD = ROOT / "build" / "rocketmq-clients"
JAVA_CLIENT, NODE_CLIENT = "org.apache.rocketmq:rocketmq-client-java:5.1.0", "1.0.8"
RUN_SECONDS = 180

EXPECTED = {
    "send, receive, ack": "n0,n1,n2",
    "a filter by tag": "n1,n2",
    "a filter in SQL92": "n2",
    "the second commit": "accepted",
    "rollback after commit": "",  # refused: any error
    "transactions, one committed twice": "committed,twice",
    "a delayed one, and one recalled": "delayed",
    "a message group in order": "f0,f1,f2,f3",
    "a push consumer, in order": "f0,f1,f2,f3",
    "asked about an orphan after kill -9": "orphan",
    "the orphan is delivered": "orphan",
}


def python_client() -> list[str]:
    """Return the command of the Python program."""
    return [sys.executable, str(PROGRAMS / "client.py")]


def java_client() -> list[str]:
    """Bring the Java client by Maven, and return the command of the Java program."""
    jars = BUILD / "java"
    if not list(jars.glob("*.jar")):
        jars.mkdir(parents=True, exist_ok=True)
        group, artifact, version = JAVA_CLIENT.split(":")
        named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        (jars / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies><dependency>{named}"
            f"<version>{version}</version></dependency></dependencies></project>"
        )
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(copy, cwd=jars, check=True)
    return ["java", "-Xmx256m", "-cp", f"{jars}/*", str(PROGRAMS / "Client.java")]


def node_folder() -> Path:
    """Bring the Node client by npm, and return the folder where programs find it."""
    modules = BUILD / "node"
    if not (modules / "node_modules").exists():
        modules.mkdir(parents=True, exist_ok=True)
        (modules / "package.json").write_text('{"private": true}')
        package = f"rocketmq-client-nodejs@{NODE_CLIENT}"
        subprocess.run(["npm", "install", "--silent", package], cwd=modules, check=True)
    return modules


def node_client() -> list[str]:
    """Bring the Node client by npm, and return the command of the Node program."""
    program = node_folder() / "client.js"
    program.write_text((PROGRAMS / "client.js").read_text())
    return ["node", str(program)]


CLIENTS = {"python": python_client, "java": java_client, "node": node_client}


class Killable(Protocol):
    """A server that can be killed and started again."""

    address: str

    def start(self) -> None: ...

    def kill(self) -> None: ...


def seen_by(
    command: list[str], server: Killable, modes: tuple[str, ...] = ("all", "die", "heir")
) -> dict[str, str]:
    """Run a program in its modes, with a kill -9 of the server before the last one. Return what it
    has seen in each scenario.
    """
    lines: list[str] = []
    for mode in modes:
        if mode == "heir":
            server.kill()
            server.start()
        run = subprocess.Popen(
            [*command, server.address, mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said, errors = run.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            said, errors = run.communicate()
            errors += f" It has not ended in {RUN_SECONDS} s."
        lines += said.splitlines()
        if run.returncode and mode != "die":
            lines.append(f"{mode}: exit code {run.returncode}\t{errors[-300:]}")
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def is_right(scenario: str, seen: str | None) -> bool:
    """Return whether a client has seen what it should."""
    if scenario == "rollback after commit":
        return seen not in (None, "accepted")
    return seen is not None and seen == EXPECTED.get(scenario)


def main() -> int:
    """Print the table. Return 1 if anything in it is wrong."""
    asked = sys.argv[1:] or list(CLIENTS)
    found: dict[str, dict[str, str]] = {}
    for name in asked:
        command = CLIENTS[name]()
        with tempfile.TemporaryDirectory() as path:
            server = Served(Path(path) / "store")
            server.start()
            try:
                found[name] = seen_by(command, server)
            finally:
                server.kill()
    wrong = 0
    rows = dict.fromkeys([*EXPECTED, *(each for seen in found.values() for each in seen)])
    print(f"{'scenario':38}" + "".join(f"{name:>10}" for name in asked))
    for scenario in rows:
        cells = []
        for name in asked:
            seen = found[name].get(scenario)
            # A client without this scenario leaves its cell empty.
            right = seen is None or is_right(scenario, seen)
            wrong += not right
            cells.append("-" if seen is None else "right" if right else "WRONG")
            if not right:
                print(f"  {name}, {scenario}: {seen!r}")
        print(f"{scenario:38}" + "".join(f"{cell:>10}" for cell in cells))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

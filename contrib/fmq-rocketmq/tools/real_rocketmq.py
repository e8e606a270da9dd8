"""A real RocketMQ: name server, broker and proxy, from their pinned packages of Maven.

One port of the broker binds to every address. So a tool that starts a RocketMQ runs itself in a
network namespace of its own, which has nothing but the loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from served import ROOT

VERSION = "5.5.0"
PARTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-proxy", "rocketmq-tools")
HOME = ROOT / "build" / "rocketmq" / VERSION
INSIDE = "FMQ_ROCKETMQ_INSIDE"
NAMES, BROKER, PROXY = 9876, 10911, 8081
START_SECONDS = 180.0
OPENED = (
    *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
    *("--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.nio")),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
MAINS = {
    "names": ("-Xmx256m", "org.apache.rocketmq.namesrv.NamesrvStartup"),
    "broker": ("-Xmx512m", "org.apache.rocketmq.broker.BrokerStartup"),
    "proxy": ("-Xmx384m", "org.apache.rocketmq.proxy.ProxyStartup"),
}
SETTINGS = {
    # As a careful user sets it: what is acknowledged is on the disk.
    "flushDiskType": "SYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    # Off by default, and used by the programs.
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    # So that a test need not wait for half a minute until an orphan is asked about.
    "transactionCheckInterval": "5000",
    # Small files, so that the test takes little room.
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "600000",
    "maxIndexNum": "200000",
    "maxHashSlotNum": "50000",
    "diskMaxUsedSpaceRatio": "99",
}


class NotToBeHad(Exception):
    """What a comparison needs is not on this machine."""


def bring() -> None:
    """Bring the packages by Maven, once. Raises NotToBeHad."""
    for tool in ("java", "mvn", "unshare", "ip"):
        if shutil.which(tool) is None:
            raise NotToBeHad(f"{tool} is not on this machine")
    if (HOME / "whole").exists():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    listed = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{part}</artifactId>"
        f"<version>{VERSION}</version></dependency>"
        for part in PARTS
    )
    (HOME / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{listed}</dependencies></project>"
    )
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={HOME / 'lib'}"]
    run = subprocess.run(copy, cwd=HOME, capture_output=True, text=True, check=False)
    if run.returncode:
        raise NotToBeHad(f"Maven has not brought RocketMQ {VERSION}: {run.stdout[-300:]}")
    (HOME / "whole").touch()


def go_inside() -> None:
    """Run this program again in a network namespace of its own, unless it is there. Raises
    NotToBeHad.
    """
    if INSIDE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    if subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode:
        raise NotToBeHad("this machine allows no network namespaces")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "-rn", "--", sys.executable, *sys.orig_argv[1:]])


class RealRocketMQ:
    """Its three processes. `kill` ends the broker with kill -9, and `start` goes on with it."""

    def __init__(self, path: Path, topics: dict[str, str], fifo_groups: Iterable[str]) -> None:
        """`topics` has the type of each topic, as `mqadmin` would make it."""
        self.path = path
        self.address = f"127.0.0.1:{PROXY}"
        self.processes: dict[str, Any] = {}
        config = path / "store" / "config"
        config.mkdir(parents=True)
        (path / "home").mkdir()
        _write(config / "topics.json", "topicConfigTable", map(_topic, topics.items()))
        groups = ({"groupName": each, "consumeMessageOrderly": True} for each in fifo_groups)
        _write(config / "subscriptionGroup.json", "subscriptionGroupTable", groups)
        where = {
            "brokerClusterName": "C",
            "brokerName": "b",
            "brokerId": "0",
            "namesrvAddr": f"127.0.0.1:{NAMES}",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(BROKER),
            "storePathRootDir": str(path / "store"),
            "storePathCommitLog": str(path / "store" / "commitlog"),
        }
        said = where | SETTINGS
        (path / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in said.items()))
        (path / "names.conf").write_text(
            f"listenPort={NAMES}\nbindAddress=127.0.0.1\nkvConfigPath={path}/kv.json\n"
        )
        proxy = {
            "rocketMQClusterName": "C",
            "namesrvAddr": f"127.0.0.1:{NAMES}",
            "grpcServerPort": PROXY,
            "remotingListenPort": 8080,
        }
        (path / "proxy.json").write_text(json.dumps(proxy))

    def start(self) -> None:
        """Start what does not run, and wait until the name server knows the broker."""
        path, names = self.path, f"127.0.0.1:{NAMES}"
        self._run("names", NAMES, "-c", f"{path}/names.conf")
        self._run("broker", BROKER, "-c", f"{path}/broker.conf")
        self._wait_for_broker(names)
        how = "-pm", "cluster", "-pc", f"{path}/proxy.json", "-n", names
        self._run("proxy", PROXY, *how)

    def _run(self, name: str, port: int, *args: str) -> None:
        if name in self.processes:
            return
        heap, main = MAINS[name]
        command = ["java", heap, f"-Duser.home={self.path}", *OPENED, "-cp", f"{HOME}/lib/*", main]
        with open(self.path / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*command, *args],
                env={**os.environ, "ROCKETMQ_HOME": str(self.path / "home")},
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.processes[name].poll() is not None or time.monotonic() > end:
                said = (self.path / f"{name}.log").read_text()[-500:]
                raise NotToBeHad(f"RocketMQ's {name} has not started: {said}")
            time.sleep(0.2)

    def _wait_for_broker(self, names: str) -> None:
        """Wait until the name server knows the broker."""
        command = ["java", "-Xmx128m", f"-Duser.home={self.path}", "-cp", f"{HOME}/lib/*"]
        asks = ["org.apache.rocketmq.tools.command.MQAdminStartup", "clusterList", "-n", names]
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            found = subprocess.run([*command, *asks], capture_output=True, text=True, check=False)
            if f"127.0.0.1:{BROKER}" in found.stdout:
                return
        raise NotToBeHad("RocketMQ's broker has not registered")

    def kill(self) -> None:
        """End the broker with kill -9."""
        broker = self.processes.pop("broker")
        broker.kill()
        broker.wait()

    def close(self) -> None:
        """End all processes."""
        for name in ("proxy", "broker", "names"):
            process = self.processes.pop(name, None)
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait()


def _topic(item: tuple[str, str]) -> dict[str, Any]:
    name, kind = item
    return {
        "topicName": name,
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": kind == "FIFO",
        "attributes": {"message.type": kind},
    }


def _write(path: Path, table: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write a table of the broker, by the first value of each row."""
    made = {next(iter(row.values())): row for row in rows}
    path.write_text(json.dumps({table: made}))

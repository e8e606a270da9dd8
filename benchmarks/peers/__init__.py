"""Who is measured: names, where their code is, and what must be installed for each."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.programs import find_program
from benchmarks.peers.protocol import Peer


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of a peer's class, and what it needs."""

    code: str
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


PEERS = {
    "fmq": Entry("fmq_engine:FmqEngine", ("fmq",)),
    "fmq-hold-gil": Entry("fmq_engine:FmqHoldingGil", ("fmq",)),
    "raw": Entry("raw:RawDisk"),
    "sqlite3": Entry("sqlite:Sqlite"),
    "sqlite3-group": Entry("sqlite_group:SqliteGroup"),
    "lmdb": Entry("lightning:Lightning", ("lmdb",)),
    "rocksdict": Entry("rocks:Rocks", ("rocksdict",)),
    "redis": Entry("redis_aof:RedisAof", ("redis",), ("redis-server",)),
    "postgresql": Entry("postgres:Postgres", ("psycopg",), ("postgres", "initdb")),
}
OURS = ("fmq", "fmq-hold-gil")


def peer_class(name: str) -> type[Peer]:
    """The class of peer `name`; importing it needs what the peer needs."""
    module, class_name = PEERS[name].code.split(":")
    found: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{module}"), class_name)
    return found


def open_peer(name: str, directory: Path) -> Peer:
    """The store of peer `name` in `directory`, made if it is not there."""
    return peer_class(name)(directory)


def missing(name: str) -> str | None:
    """Return what peer `name` lacks on this machine, as a sentence; None if it lacks nothing."""
    entry = PEERS[name]
    for module in entry.modules:
        if importlib.util.find_spec(module) is None:
            return f"the Python package {module} is not installed (pip install {module})"
    for program in entry.programs:
        if find_program(program) is None:
            return f"the server program {program} is not installed"
    if name in OURS and not hasattr(importlib.import_module("fmq"), "open"):
        return "this fmq has no open() yet"
    return None


def batches_on_disk(name: str) -> bool:
    """Return whether peer `name` stores a batch as one thing, so that the way of sending
    matters.
    """
    return name in OURS

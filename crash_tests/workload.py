"""Workloads as data: lists of steps, and the options that they run with.

    ["send", topic, queue, size]                 ["lazy", topic, queue, size]   sync=False
    ["many", topic, queue, count, size]          ["sure", topic, queue, size]   sync=True
    ["read", topic, queue]
    ["fill", topic, queue]                       what fills the segment to its last byte
    ["tx", name, [[topic, queue, count, size]...], group or null]      or "lazy tx", "sure tx"
    ["prepare", name, [...], group or null]      with a group: acks what it can poll
                                                 `t1#2` is a second one with the id `t1`
    ["commit", name]  ["rollback", name]         by the transaction, or decide if it is lost
    ["lazy commit", name]  ["sure commit", name]
    ["decide", name, "commit" or "rollback"]
    ["decide many", [name...], "commit" or "rollback"]   together, and a mark with them
    A transaction whose name begins with m also sets a mark of that name.
    ["consume", group, limit, acks]              polls, acks the first few one by one
    ["batch", group, limit]                      polls a batch and acks it as one
    ["export"]  ["end export"]                   pins the oldest segment, as another process may
    ["follow", pages?]                           looks with a read-only engine, for threads
    ["configure", option, value or null]         stores it for all users, or resets it
    ["checkpoint"]  ["sync"]  ["clock", seconds]  ["reopen"]  ["kill"]

A step that makes no sense where it stands, as shrinking leaves them, does nothing. Limits are
tiny, so that a short workload crosses segments, checkpoints, relocation and retention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

Step = list[Any]

TINY = {
    "segment_bytes": 4096,
    "checkpoint_bytes": 1024,
    "reference_bytes_min": 64,
    "topic_queues": {"b": 2},
    "lease_seconds": 30.0,
}
GROUPS = {"g": ["a", "b"], "h": ["a"]}
BEGINNING = ("tx", "lazy tx", "sure tx", "prepare")  # steps that begin a transaction, which may ack


@dataclass(frozen=True, slots=True)
class Workload:
    """Steps, and the options that they run with."""

    name: str
    steps: list[Step]
    options: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False  # True if the workload makes the directory, too
    # The steps of each thread, after `steps`.
    threads: list[list[Step]] = field(default_factory=list)
    background: bool = False  # whether the engine has threads of its own

    def all_options(self) -> dict[str, Any]:
        return {**TINY, **self.options}

    def groups(self) -> set[str]:
        """Return the groups of the workload, and one that the engine may not know."""
        steps = [*self.steps, *chain.from_iterable(self.threads)]
        reading = {step[1] for step in steps if step[0] in ("consume", "batch")}
        acking = {step[3] for step in steps if step[0] in BEGINNING and step[3]}
        return {"g"} | reading | acking

    def as_json(self) -> dict[str, Any]:
        data = {
            "name": self.name,
            "steps": self.steps,
            "options": self.options,
            "fresh": self.fresh,
        }
        if self.threads:
            data |= {"threads": self.threads, "background": self.background}
        return data

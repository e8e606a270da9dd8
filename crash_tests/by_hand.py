"""Workloads written by hand, each for one part of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crash_tests.budget import Budget
from crash_tests.sweep import sweep
from crash_tests.tally import Tally
from crash_tests.workload import Workload

TWICE = 0.02  # the share of power cuts after which recovery is crashed everywhere; kills all


class ByHand:
    """All workloads by hand, or the one that was asked for."""

    name = "hand"

    def run(self, budget: Budget) -> Tally:
        depth = replace(budget.depth(), twice=TWICE, futures=True)
        return sweep(self.name, self._chosen(budget), budget, depth)

    def _chosen(self, budget: Budget) -> Iterator[Workload]:
        yield from [WORKLOADS[budget.workload]] if budget.workload else WORKLOADS.values()


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "send",
            [["send", "a", 0, 40], ["many", "b", 1, 3, 30], ["lazy", "a", 0, 20], ["sync"]],
            fresh=True,
        ),
        Workload(
            "one-phase",
            [
                ["tx", "t1", [["a", 0, 2, 40], ["b", 1, 1, 90]], None],
                ["tx", "t2", [["b", 0, 1, 10], ["c", 0, 2, 10]], None],
            ],
        ),
        Workload(
            "large",  # bodies of several sectors, so that a tear leaves every head whole
            [
                ["tx", "t1", [["a", 0, 1, 1200], ["b", 1, 1, 300]], None],
                ["prepare", "t2", [["a", 0, 1, 1200]], None],
                ["commit", "t2"],
            ],
        ),
        Workload(
            "two-phase",
            [
                ["prepare", "t1", [["a", 0, 2, 30], ["b", 1, 1, 200]], None],
                ["send", "a", 0, 20],
                ["prepare", "t2", [["a", 0, 1, 100]], None],
                ["commit", "t1"],
                ["rollback", "t2"],
                ["send", "b", 0, 20],
            ],
            fresh=True,
        ),
        Workload(
            "joint-decision",
            [
                ["prepare", "t1", [["a", 0, 2, 30], ["b", 1, 1, 200]], None],
                ["prepare", "m2", [["a", 0, 1, 100]], None],
                ["prepare", "t3", [["b", 0, 1, 40]], None],
                ["decide many", ["t1", "m2"], "commit"],
                ["send", "a", 0, 20],
                ["prepare", "t4", [["b", 0, 1, 40]], None],
                ["decide many", ["t3", "t4"], "rollback"],
            ],
        ),
        Workload(
            "joint-decision-over-segments",
            [
                ["prepare", "t1", [["a", 0, 1, 1400], ["b", 1, 1, 20]], None],
                ["prepare", "t2", [["a", 0, 1, 1300]], None],
                ["prepare", "t3", [["b", 0, 1, 1300]], None],
                ["prepare", "t4", [["b", 0, 1, 900]], None],
                ["send", "a", 0, 20],
                ["decide many", ["t1", "t2", "t3", "t4"], "commit"],
                ["send", "a", 0, 20],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "roll",
            [
                ["prepare", "t1", [["a", 0, 1, 500], ["b", 0, 2, 20]], None],
                ["many", "a", 0, 2, 1100],
                ["send", "b", 1, 300],
                ["commit", "t1"],
                ["send", "a", 0, 1400],
                ["send", "a", 0, 1400],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "roll-without-a-checkpoint",
            [["send", "a", 0, 1800], ["send", "a", 0, 1800], ["send", "b", 0, 1800]],
            {"checkpoint_bytes": 100_000},
            fresh=True,
        ),
        Workload(
            "segments-that-grow",
            [
                ["send", "a", 0, 1800],
                ["send", "a", 0, 1200],
                ["prepare", "t1", [["b", 0, 1, 900], ["a", 0, 1, 90]], None],
                ["send", "b", 1, 3900],
                ["commit", "t1"],
                ["send", "a", 0, 30],
            ],
            {"first_segment_bytes": 2048, "segment_bytes": 8192, "checkpoint_bytes": 100_000},
            fresh=True,
        ),
        Workload(
            "roll-of-a-full-segment",
            [
                ["send", "a", 0, 300],
                ["prepare", "t1", [["a", 0, 1, 30]], None],
                ["fill", "b", 1],
                ["send", "a", 0, 30],
                ["commit", "t1"],
                ["fill", "a", 0],
                ["reopen"],
                ["send", "b", 1, 30],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "checkpoint",
            [
                ["prepare", "t1", [["a", 0, 1, 30]], None],
                ["prepare", "t2", [["b", 0, 1, 300]], None],
                ["commit", "t1"],
                ["checkpoint"],
                ["send", "a", 0, 60],
                ["checkpoint"],
                ["decide", "t2", "rollback"],
                ["checkpoint"],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "ack-in-two-phases",
            [
                ["many", "a", 0, 4, 20],
                ["prepare", "t1", [["b", 0, 2, 20], ["b", 1, 1, 20]], "g"],
                ["commit", "t1"],
                ["prepare", "t2", [], "g"],
                ["commit", "t2"],
                ["consume", "g", 5, 5],
            ],
            fresh=True,
        ),
        Workload(
            "ack",
            [
                ["many", "a", 0, 4, 20],
                ["consume", "g", 2, 1],
                ["tx", "t1", [["b", 0, 1, 20]], "g"],
                ["batch", "h", 3],
                ["prepare", "t2", [["b", 1, 1, 20]], "h"],
                ["reopen"],
                ["consume", "g", 5, 5],
                ["decide", "t2", "rollback"],
                ["consume", "h", 5, 5],
            ],
        ),
        Workload(
            "retention",
            [
                ["prepare", "t1", [["a", 0, 1, 100]], None],
                ["commit", "t1"],
                *(["send", "a", 0, 1200] for _ in range(7)),
                ["read", "a", 0],
                ["send", "b", 1, 40],
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["tx", "t2", [["a", 0, 1, 20], ["b", 0, 1, 20]], None],
            ],
            {"retain_bytes": 12288},
        ),
        Workload(
            "retention-of-several",
            [
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["batch", "g", 1],
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["batch", "g", 20],
                ["send", "a", 0, 1800],
                ["send", "b", 0, 30],
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "retention-of-another-queue",  # of a topic that the group takes from
            [
                ["send", "b", 0, 20],
                ["consume", "g", 1, 1],
                ["many", "b", 1, 3, 100],
                ["consume", "g", 3, 0],
                *(["send", "a", 0, 1800] for _ in range(7)),
            ],
            {"retain_bytes": 8192, "checkpoint_bytes": 100_000},
        ),
        Workload(
            "retention-of-acked",  # by default: what is unread stays, and the rest goes
            [
                ["send", "a", 0, 20],
                ["batch", "h", 1],
                *(["send", "a", 0, 1800] for _ in range(5)),
                ["batch", "h", 2],
                *(["send", "a", 0, 1800] for _ in range(2)),
                ["batch", "h", 20],
                ["prepare", "t1", [["a", 0, 1, 20]], None],
                *(["send", "a", 0, 1800] for _ in range(3)),
                ["batch", "h", 20],
                ["rollback", "t1"],
                ["send", "a", 0, 1800],
            ],
            {"retain_acked_bytes": 8192, "relocate_bytes": 4000},
        ),
        Workload(
            "retention-spares-a-log",  # which no group reads
            [
                ["send", "a", 0, 20],
                ["batch", "h", 1],
                *(["send", "a", 0, 1800] for _ in range(5)),
                *(["batch", "h", 20] for _ in range(4)),
                ["send", "c", 0, 20],
                *(["send", "a", 0, 1800] for _ in range(6)),
                *(["batch", "h", 20] for _ in range(4)),
                ["send", "a", 0, 1800],
            ],
            {"retain_acked_bytes": 8192},
        ),
        Workload(
            "options",
            [
                ["configure", "lease_seconds", 41.0],
                ["send", "a", 0, 20],
                ["configure", "message_bytes_max", 6000],
                ["checkpoint"],
                ["configure", "lease_seconds", 43.0],
                ["send", "a", 0, 20],
                ["kill"],
                ["configure", "lease_seconds", None],
                ["send", "b", 1, 20],
                ["reopen"],
                ["configure", "message_bytes_max", None],
                ["configure", "retain_seconds", 1e6],
                ["send", "a", 0, 20],
            ],
            {"checkpoint_bytes": 100_000},
            fresh=True,
        ),
        Workload(
            "options-outlive-their-segments",
            [
                ["configure", "member_timeout_seconds", 41.0],
                ["configure", "retain_bytes", 12288],
                *(["send", "a", 0, 1800] for _ in range(8)),
                ["configure", "member_timeout_seconds", 43.0],
                *(["send", "a", 0, 1800] for _ in range(4)),
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "retention-after-a-pin",
            [
                ["prepare", "t1", [["a", 0, 1, 100]], None],
                *(["send", "a", 0, 1800] for _ in range(10)),
                ["commit", "t1"],
                ["send", "a", 0, 1800],
                ["send", "b", 0, 30],
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "retention-behind-a-full-segment",  # whose last byte the newest checkpoint names
            [
                ["send", "a", 0, 300],
                ["fill", "a", 0],
                ["checkpoint"],
                ["send", "a", 0, 20],
                ["send", "b", 0, 30],
            ],
            {"retain_bytes": 4096, "checkpoint_bytes": 100_000},
        ),
        Workload(
            "marks",
            [
                ["tx", "m1", [["a", 0, 1, 20]], None],
                ["prepare", "m2", [["a", 0, 2, 20], ["b", 0, 1, 20]], None],
                ["prepare", "m3", [], None],
                ["checkpoint"],
                ["tx", "m4", [], None],
                ["send", "a", 0, 3000],
                ["commit", "m2"],
                ["kill"],
                ["decide", "m3", "rollback"],
                ["send", "a", 0, 20],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "marks-outlive-their-segments",
            [
                ["tx", "m1", [["a", 0, 1, 20]], None],
                ["prepare", "m2", [["a", 0, 1, 80]], None],
                *(["send", "b", 1, 1400] for _ in range(6)),
                ["commit", "m2"],
                *(["send", "b", 1, 1400] for _ in range(4)),
            ],
            {"relocate_bytes": 4000, "retain_bytes": 8192},
        ),
        Workload(
            "follower-left-behind",  # what it read from last is dropped before it looks again
            [
                ["prepare", "t1", [["a", 0, 1, 100]], None],
                ["decide", "t1", "rollback"],
                *(["send", "a", 0, 1800] for _ in range(16)),
            ],
            {"retain_bytes": 4096},
        ),
        Workload(
            "relocation",
            [
                ["prepare", "t1", [["a", 0, 2, 80], ["b", 0, 1, 20]], None],
                ["send", "b", 1, 1400],
                ["prepare", "t2", [["a", 0, 1, 20]], None],
                *(["send", "b", 1, 1400] for _ in range(5)),
                ["commit", "t1"],
                ["send", "b", 1, 1400],
                ["decide", "t2", "rollback"],
                ["send", "b", 1, 1400],
            ],
            {"relocate_bytes": 4000, "retain_bytes": 12288},
        ),
        Workload(
            "relocation-of-large",  # of which each leaves half of a segment empty
            [
                *(["prepare", f"t{i}", [["a", 0, 1, 4100]], None] for i in range(6)),
                *(["send", "b", 1, 4100] for _ in range(2)),
                ["commit", "t0"],
                *(["decide", f"t{i}", "rollback"] for i in range(1, 6)),
                ["send", "b", 1, 1400],
            ],
            {"segment_bytes": 8192, "relocate_bytes": 2000, "checkpoint_bytes": 100_000},
        ),
        Workload(
            "relocation-of-acks",
            [
                ["many", "a", 0, 4, 20],
                ["prepare", "t1", [["b", 0, 1, 20]], "g"],
                *(["send", "b", 1, 1400] for _ in range(5)),
                ["decide", "t1", "commit"],
                ["consume", "g", 5, 1],
            ],
            {"relocate_bytes": 6000},
        ),
        Workload(
            "export",
            [
                *(["send", "a", 0, 1800] for _ in range(3)),
                ["export"],
                *(["send", "a", 0, 1800] for _ in range(6)),
                ["end export"],
                *(["send", "a", 0, 1800] for _ in range(3)),
            ],
            {"retain_bytes": 8192},
        ),
        Workload(
            "window",
            [
                ["tx", "t1", [["a", 0, 1, 20]], None],
                ["prepare", "t2", [["a", 0, 1, 20]], None],
                ["decide", "t2", "rollback"],
                ["clock", 50.0],
                ["kill"],
                ["send", "a", 0, 20],
            ],
            {"outcome_window_seconds": 60.0},
        ),
        Workload(
            "id-after-the-window",  # taken by a second transaction, and its outcome is that one's
            [
                ["tx", "t1", [["a", 0, 1, 20]], None],
                *(["send", "b", 1, 1800] for _ in range(3)),
                ["clock", 61.0],
                ["prepare", "t1#2", [["a", 0, 1, 20]], None],
                ["rollback", "t1#2"],
                ["send", "a", 0, 20],
            ],
            {"outcome_window_seconds": 60.0},
        ),
        Workload(
            "topics",
            [
                ["prepare", "t1", [["a", 0, 1, 20], ["b", 1, 1, 20]], None],
                ["checkpoint"],
                ["kill"],
                ["decide", "t1", "commit"],
                ["send", "a", 0, 20],
            ],
            {"checkpoint_bytes": 100_000},
        ),
        Workload(
            "kill",
            [
                ["send", "a", 0, 40],
                ["prepare", "t1", [["a", 0, 1, 80]], None],
                ["kill"],
                ["send", "a", 0, 40],
                ["commit", "t1"],
                ["kill"],
                ["read", "a", 0],
                ["send", "a", 0, 3900],
            ],
            fresh=True,
        ),
        Workload(
            "interval",
            [
                *(["many", "a", 0, 2, 60] for _ in range(3)),
                ["tx", "t1", [["a", 0, 1, 20], ["b", 0, 1, 20]], None],
                ["prepare", "t2", [["b", 1, 1, 300]], None],
                ["commit", "t2"],
                ["consume", "g", 3, 2],
                ["clock", 1],
                ["send", "b", 0, 3000],
                ["sync"],
            ],
            {"sync": "interval"},
        ),
        Workload(
            "never",
            [
                *(["send", "a", 0, 600] for _ in range(5)),
                ["prepare", "t1", [["b", 1, 1, 300]], None],
                ["commit", "t1"],
                ["send", "a", 0, 600],
                ["sync"],
                ["send", "a", 0, 3000],
                ["send", "a", 0, 600],
            ],
            {"sync": "never"},
        ),
        Workload(
            "asked-to-sync",  # calls that are durable on return, or not, whatever the mode
            [
                ["send", "a", 0, 600],
                ["sure", "b", 0, 40],
                ["lazy tx", "t1", [["a", 0, 1, 20], ["b", 0, 1, 20]], None],
                ["sure tx", "t5", [["a", 0, 1, 20], ["b", 0, 1, 20]], None],
                ["prepare", "t2", [["b", 1, 1, 300]], "g"],
                ["sure commit", "t2"],
                *(["prepare", f"s{i}", [["a", 0, 1, 20]], None] for i in range(4)),
                *(["sure commit", f"s{i}"] for i in range(4)),  # not each meets a checkpoint
                ["prepare", "t3", [["a", 0, 1, 20]], None],
                ["lazy commit", "t3"],
                ["kill"],
                ["prepare", "t4", [["a", 0, 1, 20]], None],
                ["lazy commit", "t4"],
                ["sure", "a", 0, 20],
                *(["prepare", f"d{i}", [["a", 0, 1, 20]], None] for i in range(4)),
                ["decide", "d0", "commit"],
                ["rollback", "d1"],
                ["decide", "d2", "rollback"],
                ["decide", "d3", "commit"],
            ],
            {"sync": "never"},
        ),
        Workload(
            "sync-twice",
            [
                ["send", "a", 0, 100],
                ["checkpoint"],
                ["sync"],
                ["send", "a", 0, 100],
                ["sync"],
                ["send", "a", 0, 100],
            ],
            {"sync": "never"},
        ),
    )
}

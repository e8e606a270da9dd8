"""The steps of threads that run at once: short programs by hand, each for one conflict, and mixed
ones.
"""

from __future__ import annotations

from random import Random

from crash_tests.seeds import Maker
from crash_tests.workload import Step, Workload

ONE = ["send", "a", 0, 20]
T1: list[Step] = [["prepare", "t1", [["a", 0, 1, 100], ["b", 1, 1, 20]], None]]

PROGRAMS = {
    each.name: each
    for each in (
        Workload(
            "shared-sync",  # each call is served by the next sync, which the committer makes
            [],
            threads=[[ONE, ONE], [ONE], [ONE]],
            # Without a committer, a call that is answered too early would flush by itself.
            background=True,
        ),
        Workload(
            "hand-on",  # each call is served by the next sync, and hands the lead on
            [],
            threads=[[ONE, ONE], [ONE], [ONE]],
        ),
        Workload(
            "one-order",  # all queues have one order
            [ONE],
            threads=[
                [["many", "a", 0, 2, 20], ["tx", "t1", [["b", 0, 1, 20], ["b", 1, 1, 20]], None]],
                [["tx", "t2", [["b", 1, 1, 20], ["a", 0, 1, 20], ["b", 0, 1, 20]], None]],
                [["many", "c", 0, 2, 20]],
            ],
        ),
        Workload(
            "no-waiting",  # one write serves calls that wait and calls that do not
            [],
            {"sync": "interval"},
            threads=[
                [["lazy", "a", 0, 20], ["lazy", "a", 0, 20], ["sync"]],
                [["lazy", "a", 0, 30], ["send", "a", 0, 30]],
                [["prepare", "t1", [["a", 0, 1, 100]], None]],
            ],
            background=True,
        ),
        Workload(
            # The thread that rolls, the one that writes after it, and the one that makes the spare
            # may differ.
            "roll-together",
            [["send", "a", 0, 2600]],
            threads=[
                [["send", "a", 0, 700], ["send", "a", 0, 900]],
                [["send", "b", 0, 700], ["send", "b", 0, 900]],
            ],
            background=True,
        ),
        Workload(
            "rivals",  # the first decision wins, whichever thread made it
            T1,
            threads=[
                [["decide", "t1", "commit"]],
                [["decide", "t1", "rollback"]],
                [["decide", "t1", "commit"], ONE],
            ],
        ),
        Workload(
            "two-phases-at-once",
            [ONE],
            threads=[
                [*T1, ["commit", "t1"]],
                [["prepare", "t2", [["b", 1, 2, 100]], None], ["rollback", "t2"], ONE],
                [["decide", "t1", "rollback"], ["read", "b", 1], ["read", "a", 0]],
            ],
        ),
        Workload(
            "one-group",  # each message goes to one of the threads
            [["many", "a", 0, 3, 20]],
            threads=[
                [["consume", "g", 1, 1], ["consume", "g", 1, 1]],
                [["consume", "g", 2, 1]],
                [["tx", "t1", [["b", 0, 1, 20]], "g"], ONE],
            ],
        ),
        Workload(
            "reading-along",  # what is shown is durable
            [ONE],
            threads=[
                [["send", "a", 0, 30], ["many", "b", 0, 2, 30]],
                [["read", "a", 0], ["read", "b", 0], ["read", "a", 0]],
                [["tx", "t1", [["a", 0, 1, 30], ["b", 0, 1, 30]], None]],
            ],
        ),
        Workload(
            "checkpoint-beside",  # a checkpoint is of one instant, while other threads go on
            [ONE, *T1],
            threads=[
                [["checkpoint"], ["checkpoint"]],
                [["send", "a", 0, 200], ["commit", "t1"]],
                [["prepare", "t2", [["b", 0, 1, 300]], None], ["consume", "g", 1, 1]],
            ],
            background=True,
        ),
        Workload(
            "close-beside",  # running calls are served, later ones are refused
            [ONE],
            threads=[
                [["close"]],
                [["send", "a", 0, 30], ["send", "a", 0, 30]],
                [*T1, ["commit", "t1"]],
            ],
            background=True,
        ),
        Workload(
            "checkpoint-of-unsynced",  # messages are shown before they are durable
            [ONE],
            {"sync": "never"},
            threads=[[["checkpoint"]], [["many", "b", 0, 2, 20]], [["lazy", "a", 0, 20], *T1]],
        ),
        Workload(
            "followed-over-a-roll",  # segments and checkpoints are made while a follower looks
            [["send", "a", 0, 1200]],
            threads=[
                [["follow"], ["follow"]],
                [["send", "b", 0, 1800], ["send", "b", 0, 1800], ["checkpoint"]],
            ],
        ),
        Workload(
            # The same, but only records and checkpoints prove what is durable.
            "followed-without-a-page",
            [["send", "a", 0, 1200]],
            threads=[
                [["follow", False], ["follow", False]],
                [["send", "b", 0, 1800], ["send", "b", 0, 1800], ["checkpoint"]],
            ],
        ),
        Workload(
            # Bytes that were zeros at one look are a record at the next.
            "followed-while-appending",
            [ONE],
            threads=[[["follow"], ["follow"]], [ONE, ["send", "b", 0, 30], ONE, ONE]],
        ),
        Workload(
            "followed-over-retention",  # the segment that a follower reads is dropped meanwhile
            [["send", "a", 0, 1800], ["send", "a", 0, 1800], ["send", "a", 0, 1800]],
            {"retain_bytes": 4096},
            threads=[
                [["follow"], ["follow"]],
                [["send", "b", 0, 1800], ["send", "b", 0, 1800], ["send", "b", 0, 1800]],
            ],
        ),
        Workload("checkpoint-and-close", [ONE], threads=[[["checkpoint"]], [["close"]], [ONE]]),
    )
}


def generate(seed: int) -> Workload:
    """Return two to four threads with up to three steps each, made from `seed`."""
    random = Random(seed)
    segment_bytes = random.choice((3072, 4096, 8192))
    options = {
        "segment_bytes": segment_bytes,
        "checkpoint_bytes": random.choice((1024, 2048, 100_000)),
        "reference_bytes_min": random.choice((1, 64, 10_000)),
        "sync": random.choice(("always", "always", "always", "interval", "never")),
    }
    maker = Maker(random, segment_bytes)
    first = [step for step in (maker.step() for _ in range(random.randint(1, 3))) if _fits(step)]
    threads = [
        [step for step in (maker.step() for _ in range(random.randint(1, 3))) if _fits(step)]
        for _ in range(random.choice((2, 2, 3, 3, 4)))
    ]
    if random.random() < 0.1:
        random.choice(threads).append(["close"])
    if random.random() < 0.2:
        threads.append([["follow"], ["follow"]])
    return Workload(
        f"threads {seed}",
        first,
        options,
        threads=[steps or [ONE] for steps in threads],
        background=random.random() < 0.5,
    )


def _fits(step: Step) -> bool:
    """Return whether the step works beside other threads: it needs no process of its own, and does
    not read a disk that others change.
    """
    return step[0] not in ("reopen", "kill", "fill", "clock")

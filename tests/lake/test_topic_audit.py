"""The audit between two topics finds each planted fault, and nothing where jobs wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fmq
import fmq.lake
import fmq.table
from fmq.intake import WriteJob
from fmq.testing import FakeClock
from tests.cli.command import fmq_json, fmq_piped

MARK = "spark/query"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory in which five jobs, large and small, have made `out` of 100 messages in `in`."""
    with fmq.open(tmp_path / "shop") as engine:
        for row in range(100):
            engine.send("in", b"%d" % row, key=f"k{row}")
        for value in range(5):
            job(engine, value, range(20 * value, 20 * value + 20), prepared=value != 2)
    return tmp_path / "shop"


def rows(numbers: Any) -> pa.RecordBatch:
    keys, bodies = [f"k{each}" for each in numbers], [b"made of %d" % each for each in numbers]
    return pa.RecordBatch.from_pydict({"key": keys, "body": bodies})


def prepared(engine: Any, value: int, numbers: Any) -> list[str]:
    """Prepare rows in two parts, as a job does that does not look at its mark. Return the ids."""
    half, ids = len(numbers) // 2, [f"rows/{value}/b/t/{part}" for part in range(2)]
    for tx_id, part in zip(ids, (numbers[:half], numbers[half:]), strict=True):
        tx = engine.transaction(tx_id=tx_id, producer=f"rows/{MARK}")
        tx.send_many("out", [fmq.Message(b"made", key=f"k{each}") for each in part])
        tx.prepare()
    return ids


def job(engine: Any, value: int, numbers: Any, *, prepared: bool = True) -> None:
    with_room = {"hold_bytes": 0 if prepared else 1 << 20, "part_bytes": 200}
    it = WriteJob(engine, MARK, value, "a", "t")
    it.commit([it.write([rows(numbers)], "out", **with_room)])


def in_one(engine: Any, key: str, producer: str | None, *mark: int | None) -> None:
    """Send a message to `out`, in a transaction of its own, which may move the mark."""
    with engine.transaction(producer=producer) as tx:
        tx.send("out", b"more", key=key)
        if mark:
            tx.mark(MARK, mark[0])


def halved(engine: Any) -> None:
    """A committer that decides one part of a job, and dies."""
    first, second = prepared(engine, 5, range(100, 102))
    engine.decide(first, "commit")
    engine.decide(second, "rollback")


def apart(engine: Any) -> None:
    """Rows in one decision, and the mark in another one."""
    engine.decide_many(prepared(engine, 5, range(100, 102)), "commit")
    with engine.transaction() as tx:
        tx.mark(MARK, 5)


def sends_in(engine: Any) -> None:
    for row in range(100, 102):
        engine.send("in", b"%d" % row, key=f"k{row}")


def moved(engine: Any, value: int) -> None:
    with engine.transaction() as tx:
        tx.mark(MARK, value)


def again(engine: Any) -> None:
    """A committer that does not look at the mark."""
    with engine.transaction(producer=f"rows/{MARK}") as tx:
        tx.send_many("out", [fmq.Message(b"made", key=f"k{each}") for each in range(80, 100)])
        tx.mark(MARK, 4)


def without_first(engine: Any) -> None:
    first, second = prepared(engine, 5, range(100, 102))
    engine.decide(first, "rollback")
    engine.decide_many([second], "commit", mark=(MARK, 5, 4))


def of_another_value(engine: Any) -> None:
    engine.decide_many(prepared(engine, 9, range(100, 102)), "commit", mark=(MARK, 5, 4))


def left_behind(engine: Any) -> None:
    prepared(engine, 4, range(100, 102))


FAULTS: dict[str, tuple[list[Callable[[Any], None]], dict[str, int]]] = {
    "a row is doubled": ([lambda it: in_one(it, "k7", f"rows/{MARK}", 5)], {"doubled": 1}),
    "a row is doubled by another program": ([lambda it: in_one(it, "k7", None)], {"doubled": 1}),
    "a row of nothing": ([lambda it: in_one(it, "k999", f"rows/{MARK}", 5)], {"unknown": 1}),
    "a job is done twice": ([again], {"twice": 1, "doubled": 20}),
    "half of a job": ([sends_in, halved], {"unmarked": 1}),
    "rows without the mark": ([sends_in, apart], {"unmarked": 2}),
    "the mark was moved back": ([lambda it: moved(it, 3)], {"back": 1}),
    "the mark was moved to where it is": ([lambda it: moved(it, 4)], {"twice": 1}),
    "a batch is missing": (
        [sends_in, lambda it: job(it, 6, range(101, 102))],
        {"skipped": 1, "missing": 1},
    ),
    "rows of another value": ([sends_in, of_another_value], {"unmarked": 2}),
    "rows are left undecided": ([left_behind], {"left": 2}),
    "a part of a job is rolled back": ([sends_in, without_first], {"missing": 1}),
}


def found(shop: Path, by: str | None = "key") -> dict[str, int]:
    seen = fmq.lake.audit_between(str(shop), "in", "out", by=by)
    kinds = [finding.kind for finding in seen.findings]
    assert seen.wrong == len(kinds) and seen.ok == (not kinds)
    return {kind: kinds.count(kind) for kind in sorted({*kinds})}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(shop: Path, fault: str) -> None:
    plants, kinds = FAULTS[fault]
    assert found(shop) == found(shop, None) == {}
    # The chore that rolls back what is left comes every ten seconds.
    with fmq.open(shop, background=False, clock=FakeClock()) as engine:
        engine.send("other", b"")
        for plant in plants:
            plant(engine)
    assert found(shop) == dict(sorted(kinds.items()))


def test_what_jobs_do_is_sound(shop: Path) -> None:
    """Also what is waiting, what was rolled back, and what other programs send."""
    with fmq.open(shop) as engine:
        sends_in(engine)
        engine.decide_many(prepared(engine, 5, range(100, 102)), "rollback")
        prepared(engine, 6, range(100, 102))  # a job that runs just now
        fmq.table.write(engine, "out", pa.table({"body": [b"x"]}))  # a job without a mark
    seen = fmq.lake.audit_between(str(shop), "in", "out")
    assert (seen.ok, seen.rows, seen.jobs, seen.others, seen.waiting) == (True, 100, 5, 1, 0)
    assert fmq.lake.audit_between(str(shop), "in", "in", by="key").ok
    seen = fmq.lake.audit_between(str(shop), "in", "nothing", by="key")
    assert (seen.ok, seen.rows, seen.waiting) == (True, 0, 102)


def test_the_command_says_what_it_finds(shop: Path) -> None:
    said = fmq_json("audit", shop, "--between", "in", "out", "--by", "key")
    (facts,) = said.of("audit")
    assert (said.code, facts["rows"], facts["jobs"], facts["wrong"]) == (0, 100, 5, 0)
    with fmq.open(shop) as engine:
        in_one(engine, "k7", None)
    said = fmq_json("audit", shop, "--between", "in", "out", "--by", "key")
    (finding,) = said.of("finding")
    assert (said.code, finding["kind"], finding["topic"]) == (1, "doubled", "out")
    for words in (["in", "uot"], ["ni", "out", "--by", "key"]):
        said = fmq_json("audit", shop, "--between", *words)
        assert (said.code, said.lines) == (3, []), "a wrong name is no proof"
        assert "there is no topic" in said.error
    for wrong in ([shop, shop, "--between", "in", "out"], [shop]):
        with pytest.raises(SystemExit):
            fmq_piped("audit", *wrong)

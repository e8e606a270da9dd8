"""An audit finds nothing in a table that was delivered, whatever the journal, and any one fault.

More journals: FMQ_BUDGET=10 python3 tools/dev.py test tests/lake/test_audit_of_any.py
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fmq
import fmq.lake
from tests.budget import within_budget
from tests.lake.tables import content, rewrite, url_of

TOPICS = st.sampled_from(["orders", "emails", "late"])
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
SENDS = st.tuples(TOPICS, BODIES, st.sampled_from([None, "a", "b"]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), SENDS),
        st.tuples(st.just("delayed"), SENDS),
        st.tuples(
            st.sampled_from(
                ["one phase", "commit", "rollback", "undecided", "consumed", "together"]
            ),
            st.lists(SENDS, min_size=1, max_size=3),
        ),
        st.tuples(st.sampled_from(["deliver", "erase", "reject"]), st.none()),
    ),
    max_size=12,
)
OPTIONS = fmq.Options(segment_bytes=16 << 10, topic_queues={"orders": 2})


def send(to: Any, sent: Any, **how: Any) -> None:
    topic, bodies, key = sent
    ids = [f"id {len(body)}" if key == "a" else None for body in bodies]  # some come again
    messages = [
        fmq.Message(body, key=key, message_id=id) for body, id in zip(bodies, ids, strict=True)
    ]
    to.send_many(topic, messages, **how)


def step(engine: Any, kind: str, sends: Any) -> None:
    if kind in ("send", "delayed"):
        send(engine, sends, **({"delay": 0.0} if kind == "delayed" else {}))
    elif kind == "one phase":
        with engine.transaction() as tx:
            for each in sends:
                send(tx, each)
    elif kind in ("commit", "rollback", "undecided"):
        tx = engine.transaction()
        for each in sends:
            send(tx, each)
        tx.prepare()
        if kind != "undecided":
            engine.decide(tx.tx_id, kind)
    elif kind == "together":
        parts = [engine.transaction() for _ in sends]
        for tx, each in zip(parts, sends, strict=True):
            send(tx, each)
            send(tx, each, delay=0.001)
            tx.prepare()
        engine.decide_many([tx.tx_id for tx in parts], "commit")
    elif kind == "consumed":
        with engine.consumer("orders", group="g") as consumer, engine.transaction() as tx:
            for delivery in consumer.poll(limit=3):
                tx.ack(delivery)
            for each in sends:
                send(tx, each)
    elif kind == "reject":
        with engine.consumer("orders", group="g") as consumer:
            for delivery in consumer.poll(limit=1):
                delivery.reject("no good")
    elif kind == "erase":
        for info in engine.queues()[:1]:
            engine.erase(info.topic, info.queue, 0)


@settings(
    max_examples=within_budget(6),
    deadline=None,
    phases=[Phase.generate],  # to shrink a journal takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_an_audit_is_right_about_any_journal(
    tmp_path_factory: pytest.TempPathFactory, to: Any, steps: Any, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    delivered = False
    shop, url, random = folder / "shop", url_of(folder, to), Random(seed)
    with fmq.open(shop, OPTIONS, background=False) as engine:
        engine.send("orders", b"first")
        for kind, sends in steps:
            if kind == "deliver":
                engine.checkpoint()
                fmq.lake.deliver(str(shop), url, to=to, once=True, rows=random.randint(1, 20))
                delivered = True
            elif kind != "erase" or not delivered:  # the table keeps what is erased afterwards
                with suppress(fmq.errors.MessageIdUndecided):
                    step(engine, kind, sends)
    fmq.lake.deliver(str(shop), url, to=to, once=True, rows=random.randint(1, 20))
    seen = fmq.lake.audit(str(shop), url, to=to, part_rows=random.randint(1, 20))
    assert seen.findings == () and seen.rows == content(url, to).num_rows
    rewrite(url, to, lambda rows: with_fault(rows, random))
    assert not fmq.lake.audit(str(shop), url, to=to, part_rows=random.randint(1, 20)).ok


def with_fault(rows: pa.Table, random: Random) -> pa.Table:
    index = random.randrange(rows.num_rows)
    kind = random.choice(["missing", "doubled", "body", "topic", "offset", "position", "tx_id"])
    row = rows.slice(index, 1)
    others = pa.array([each for each in range(rows.num_rows) if each != index], pa.int64())
    if kind == "missing":
        return rows.take(others)
    if kind == "doubled":
        return pa.concat_tables([rows, row])
    (values,) = row.to_pylist()
    other = {
        "body": values["body"] + b"x",
        "topic": values["topic"] + "x",
        "offset": values["offset"] + 1000,
        "position": values["position"] + 1,
        "tx_id": "f" * 32,
    }
    changed = pa.Table.from_pylist([{**values, kind: other[kind]}], rows.schema)
    return pa.concat_tables([rows.take(others), changed])

"""What a message becomes in a target."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Engine
from fmq.errors import BadOption
from fmq.relay import Relay, RelayBatch
from fmq.relay.addresses import target_at
from fmq.relay.envelope import Envelope
from tests.relay.systems import Table, TableTarget


def batch_of(engine: Engine, *topics: str) -> RelayBatch:
    """Return the first batch that a relay delivers."""
    table, found = Table(), []

    class Keeps(TableTarget):
        def deliver(self, batch: RelayBatch) -> None:
            found.append(batch)
            super().deliver(batch)

    Relay(engine, Keeps(table.kept), topics=topics, name="n").run(once=True)
    return found[0]


def test_a_transaction_says_how_many_messages_it_has(engine: Engine) -> None:
    """Of the topics that are copied, so that a reader knows when it has all."""
    engine.send("a", b"alone")
    with engine.transaction(tx_id="T") as tx:
        for topic in ("a", "b", "b", "c"):
            tx.send(topic, b"x")
    enveloped = [*Envelope().headers(batch_of(engine, "a", "b"))]
    said = [(each.name, dict(each.headers).get("fmq-tx-count")) for each in enveloped]
    assert said == [("a", None), ("a", "3"), ("b", "3"), ("b", "3")]


def test_topics_are_renamed_and_prefixed_and_keep_their_ids(engine: Engine) -> None:
    engine.send("a", b"x")
    engine.send("b", b"x")
    envelope = Envelope(prefix="p.", names={"a": "shop"})
    found = [*envelope.headers(batch_of(engine, "a", "b"))]
    store = engine.feedback.store
    assert [(each.name, each.headers[0]) for each in found] == [
        ("p.shop", ("fmq-id", f"{store}/a/0/0")),
        ("p.b", ("fmq-id", f"{store}/b/0/0")),
    ]


def test_a_cloud_event_has_the_attributes_of_binary_mode(engine: Engine) -> None:
    engine.send("a", b"x", key="ada", tag="paid", headers={"content-type": "text/plain"})
    engine.send("a", b"x")
    full, bare = Envelope(cloudevents=True).headers(batch_of(engine, "a"), attributes="ce_")
    store, (sent, _) = engine.feedback.store, engine.read("a")
    assert sent.time is not None
    said = {name: text for name, text in full.headers if name.startswith(("ce_", "content"))}
    assert said == {
        "ce_specversion": "1.0",
        "ce_id": f"{store}/a/0/0",
        "ce_source": f"urn:fmq:{store}",
        "ce_type": "paid",
        "ce_time": sent.time.isoformat()[:-6] + "Z",
        "ce_subject": "ada",
        "content-type": "text/plain",
    }
    said = dict(bare.headers)
    assert (said["ce_type"], "ce_subject" in said) == ("a", False)


@pytest.mark.parametrize(
    ("address", "how"),
    [
        ("nats://here", {"by_key": True}),
        ("redis://here", {"tries": 3}),
        ("postgresql://here/x", {"cloudevents": True}),
        ("https://here/x", {}),
        ("amqp://here", {}),
    ],
)
def test_what_a_target_cannot_do_is_refused(address: str, how: Any) -> None:
    with pytest.raises(BadOption):
        target_at(address, "n", {}, **how)

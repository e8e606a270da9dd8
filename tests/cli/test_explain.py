"""`fmq explain`: the story of a transaction, as the journal has it."""

from __future__ import annotations

from pathlib import Path

import fmq
from tests.cli.command import fmq_json, fmq_table


def story(path: Path, tx_id: str) -> list[tuple[str | None, str]]:
    done = fmq_json("explain", path, tx_id)
    assert (done.code, done.error) == (0, "")
    return [(row.get("kind"), row["text"]) for row in done.of("step")]


def test_explain_says_who_decided_a_transaction_and_why(shop: Path) -> None:
    prepared, *bodies, commit = story(shop, "order-1")
    assert prepared[0] == "PREPARE"
    assert prepared[1].startswith("2 messages prepared") and "by checkout" in prepared[1]
    assert bodies == [
        ("PRE_MESSAGE", "1 message for orders/0, which nobody sees yet"),
        ("PRE_MESSAGE", "1 message for emails/0, which nobody sees yet"),
        ("TX_MESSAGE", "1 message published at orders/0/0"),
        ("TX_MESSAGE", "1 message published at emails/0/0"),
    ]
    assert commit[0] == "COMMIT"
    assert commit[1].startswith("committed by ada") and "because: ticket 4711" in commit[1]
    rollback = story(shop, "order-2")[-1]
    assert rollback[0] == "ROLLBACK" and rollback[1].startswith("rolled back by ada")


def test_explain_says_how_to_decide_an_undecided_transaction(shop: Path) -> None:
    steps = story(shop, "order-3")
    assert [kind for kind, _ in steps] == ["PREPARE", "PRE_MESSAGE", "PRE_MESSAGE", None]
    assert "no checker has answered" in steps[-1][1]
    said = fmq_table("explain", shop, "order-3")
    assert "order-3: undecided" in said and "order-3 commit --reason" in said


def test_answers_are_counted_by_the_process_that_serves(shop: Path) -> None:
    with fmq.open(shop) as engine, engine.serve():
        engine.feedback.resume("order-3")
        (question,) = engine.feedback.ask("checkout", wait=5.0)
        engine.feedback.answer(question, "unknown")
        said = [text for _, text in story(shop, "order-3")]
        assert "a checker has answered 1 question since the engine was opened: unknown" in said


def test_explain_shows_a_commit_in_one_phase_and_its_acks(shop: Path) -> None:
    with fmq.open(shop) as engine, engine.consumer("audit", group="billing") as consumer:
        deliveries = consumer.poll()
        with engine.transaction(tx_id="T", producer="p") as tx:
            tx.send("orders", b"1")
            for each in deliveries:
                tx.ack(each)
    steps = story(shop, "T")
    assert [kind for kind, _ in steps] == ["TX_MESSAGE", "ACK", "COMMIT"]
    assert steps[1][1] == "acked audit/0/2 for billing"
    assert steps[2][1] == "committed"


def test_explain_shows_the_relocation_of_a_transaction(tmp_path: Path) -> None:
    """An undecided transaction that is far before the end is appended again."""
    options = fmq.Options(
        segment_bytes=16 * 1024, checkpoint_bytes=8 * 1024, relocate_bytes=16 * 1024
    )
    path = tmp_path / "shop"
    with fmq.open(path, options, background=False) as engine:
        tx = engine.transaction(tx_id="old", producer="p")
        tx.send("t", b"x")
        tx.prepare()
        for _ in range(20):
            engine.send("t", b"y" * 4096)
        engine.checkpoint()
    steps = story(path, "old")
    assert ("PREPARE", "copied to the end") in [(kind, text[:17]) for kind, text in steps]
    with fmq.open(path, options, background=False) as engine:
        engine.decide("old", "commit", reason="r", decided_by="b")
    assert story(path, "old")[-1][1].startswith("committed by b")


def test_an_unknown_transaction_is_an_error(shop: Path) -> None:
    done = fmq_json("explain", shop, "order-9")
    assert (done.code, done.lines) == (3, []) and "order-9" in done.error

"""`fmq tx`: what waits is shown to whoever has to decide, and the decision is the engine's own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import fmq
from tests.cli.command import COMMAND, ENVIRONMENT, contents, fmq_json, fmq_table


def test_the_undecided_are_listed_with_what_one_must_know(shop: Path) -> None:
    """As the engine itself lists them, and for how long each has waited."""
    code, lines, error = fmq_json("tx", "list", shop)
    assert (code, error) == (0, "")
    with fmq.open(shop, read_only=True) as engine:
        (expected,) = engine.undecided()
    (line,) = lines
    assert line.pop("age_seconds") >= 0
    assert line.pop("prepared_at") == expected.prepared_at.isoformat()
    assert line.pop("topics") == list(expected.topics) == ["orders", "emails"]
    assert line == {
        "what": "undecided",
        **{name: getattr(expected, name) for name in line if name != "what"},
    }
    assert (line["tx_id"], line["producer"], line["messages"]) == ("order-3", "checkout", 2)


def test_an_undecided_transaction_shows_the_messages_that_wait(shop: Path) -> None:
    """With their keys, tags and bodies, which nobody else can read yet."""
    shown = fmq_json("tx", "show", shop, "order-3")
    assert shown.of("outcome")[0]["state"] == "undecided"
    messages = [(line["topic"], line["key"], line["tag"]) for line in shown.of("message")]
    assert messages == [("orders", "c-3", "new"), ("emails", None, None)]
    table = fmq_table("tx", "show", shop, "order-3")
    assert "order 3" in table and "receipt 3" in table


def test_a_decided_transaction_shows_its_outcome_and_receipts(shop: Path) -> None:
    """Where its messages are, if it committed; who rolled it back and why, if it did not."""
    committed = fmq_json("tx", "show", shop, "order-1")
    receipts = [(line["topic"], line["queue"], line["offset"]) for line in committed.of("receipt")]
    assert receipts == [("orders", 0, 0), ("emails", 0, 0)]
    (outcome,) = fmq_json("tx", "show", shop, "order-2").lines
    assert (outcome["state"], outcome["decided_by"]) == ("rolled back", "ada")
    assert outcome["reason"] == "ticket 4711"


def test_looking_changes_nothing(shop: Path) -> None:
    """Not a byte and not a date, of no file, whichever verb looks."""
    before = contents(shop)
    for arguments in (
        ("info", shop),
        ("records", shop),
        ("tx", "list", shop),
        ("tx", "show", shop, "order-3"),
        ("verify", shop),
    ):
        assert fmq_json(*arguments).code == 0, arguments
        assert contents(shop) == before, arguments


def test_a_decision_is_kept_with_its_reason(shop: Path) -> None:
    """After `decide` the messages are visible, and the outcome names who and why."""
    decide = ("tx", "decide", shop, "order-3", "commit", "--reason", "paid", "--by", "eve")
    code, lines, _ = fmq_json(*decide)
    assert (code, lines[0]["state"], lines[0]["decided_by"]) == (0, "committed", "eve")
    with fmq.open(shop, read_only=True) as engine:
        assert [message.body for message in engine.read("orders")] == [b"order 1", b"order 3"]
        outcome = engine.outcome("order-3")
    assert (outcome.decided_by, outcome.reason) == ("eve", "paid")


def test_a_decision_without_a_reason_is_none(shop: Path) -> None:
    """It is required, so it must say something."""
    for reason in ("", "  "):
        with pytest.raises(SystemExit) as ended:
            fmq_json("tx", "decide", shop, "order-3", "commit", "--reason", reason)
        assert ended.value.code == 2
    with fmq.open(shop, read_only=True) as engine:
        assert engine.outcome("order-3").state == "undecided"


def test_damage_hides_who_is_undecided(shop: Path) -> None:
    """What lies before it may be decided behind it: nothing is listed, and it is said why."""
    (segment,) = shop.glob("*.seg")
    data = bytearray(segment.read_bytes())
    for name in ("checkpoint.0", "checkpoint.1"):
        (shop / name).unlink(missing_ok=True)
    data[200] ^= 0x55
    segment.write_bytes(data)
    code, lines, error = fmq_json("tx", "list", shop)
    assert (code, lines) == (3, [])
    assert "Nothing was changed" in error


def test_the_same_decision_again_is_fine_and_the_opposite_is_an_error(shop: Path) -> None:
    """The first durable decision stands."""
    again = ("tx", "decide", shop, "order-1", "commit", "--reason", "again")
    opposite = ("tx", "decide", shop, "order-1", "rollback", "--reason", "no")
    assert fmq_json(*again).code == 0
    code, lines, error = fmq_json(*opposite)
    assert (code, lines) == (3, [])
    assert "was committed" in error


def test_a_seal_keeps_a_decision_from_another_transaction(shop: Path) -> None:
    """With the wrong one nothing is decided; with the right one it is."""
    (line,) = fmq_json("tx", "list", shop).lines
    decide = ("tx", "decide", shop, "order-3", "rollback", "--reason", "x", "--seal")
    assert fmq_json(*decide, "0" * 32).code == 3
    assert len(fmq_json("tx", "list", shop).lines) == 1
    assert fmq_json(*decide, line["seal"]).code == 0
    assert fmq_json("tx", "list", shop).lines == []


def test_a_locked_directory_names_who_has_it(shop: Path) -> None:
    """Deciding needs the lock; the live engine goes on."""
    with fmq.open(shop, background=False) as engine:
        code, _, error = fmq_json("tx", "decide", shop, "order-3", "commit", "--reason", "x")
        assert len(engine.undecided()) == 1
    assert code == 3
    assert f"process {os.getpid()}" in error


def test_unproven_records_of_a_crash_are_noted(tmp_path: Path) -> None:
    """A reader vouches for nothing behind the last proof of durability, and says so; after the
    next opening for writing the transaction is there.
    """
    live, killed = tmp_path / "live", tmp_path / "killed"
    with fmq.open(live, background=False) as engine:
        tx = engine.transaction(tx_id="t1")
        tx.send("t", b"1")
        tx.prepare()
        shutil.copytree(live, killed)
    code, lines, error = fmq_json("tx", "list", killed)
    assert (code, lines) == (0, [])
    assert "1 prepared transaction" in error
    assert "1 prepared transaction" in fmq_json("tx", "show", killed, "t1").error
    fmq.open(killed, background=False).close()
    code, lines, error = fmq_json("tx", "list", killed)
    assert ([line["tx_id"] for line in lines], error) == (["t1"], "")


def test_a_decision_that_cannot_be_shown_is_said_to_be_made(shop: Path) -> None:
    """Its output goes nowhere, and whoever called it must not take it for refused."""
    command = (*COMMAND, "tx", "decide", str(shop), "order-3", "commit", "--reason", "paid")
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert run.returncode == 3
    assert b"'order-3' is committed, and durably so" in run.stderr
    with fmq.open(shop) as engine:
        assert engine.outcome("order-3").state == "committed"

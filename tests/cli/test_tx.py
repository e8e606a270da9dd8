"""`fmq tx` shows undecided transactions, and decides one as `engine.decide` does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import fmq
from tests.cli.command import COMMAND, ENVIRONMENT, contents, fmq_json, fmq_table


def test_the_list_of_the_undecided_agrees_with_the_engine(shop: Path) -> None:
    """It adds how long each has waited."""
    code, lines, error = fmq_json("tx", "list", shop)
    assert (code, error) == (0, "")
    with fmq.open(shop, read_only=True) as engine:
        (expected,) = engine.undecided()
    (line,) = lines
    assert line.pop("age_seconds") >= 0
    assert line.pop("prepared_at") == expected.prepared_at.isoformat()
    assert line.pop("proven") is True
    assert line.pop("topics") == list(expected.topics) == ["orders", "emails"]
    assert line == {
        "what": "undecided",
        **{name: getattr(expected, name) for name in line if name != "what"},
    }
    assert (line["tx_id"], line["producer"], line["messages"]) == ("order-3", "checkout", 2)


def test_an_undecided_transaction_is_shown_with_its_messages(shop: Path) -> None:
    """Keys, tags and bodies are shown; a body that is no text in base64, as `fmq read` does."""
    shown = fmq_json("tx", "show", shop, "order-3")
    assert shown.of("outcome")[0]["state"] == "undecided"
    fields = ("topic", "key", "tag", "body")
    messages = [tuple(line[name] for name in fields) for line in shown.of("message")]
    assert messages == [
        ("orders", "c-3", "new", "order 3"),
        ("emails", None, None, "receipt 3"),
    ]
    table = fmq_table("tx", "show", shop, "order-3")
    assert "order 3" in table and "receipt 3" in table
    with fmq.open(shop, background=False) as engine:
        tx = engine.transaction(tx_id="bytes")
        tx.send("orders", b"\xff1")
        tx.prepare()
    (message,) = fmq_json("tx", "show", shop, "bytes").of("message")
    assert (message["body_base64"], "body" in message) == ("/zE=", False)
    assert "0xff31" in fmq_table("tx", "show", shop, "bytes")


def test_a_decided_transaction_shows_its_outcome_and_receipts(shop: Path) -> None:
    """If it committed, where its messages are. If it was rolled back, who decided that and why."""
    committed = fmq_json("tx", "show", shop, "order-1")
    receipts = [(line["topic"], line["queue"], line["offset"]) for line in committed.of("receipt")]
    assert receipts == [("orders", 0, 0), ("emails", 0, 0)]
    (outcome,) = fmq_json("tx", "show", shop, "order-2").lines
    assert (outcome["state"], outcome["decided_by"]) == ("rolled back", "ada")
    assert outcome["reason"] == "ticket 4711"


def test_read_only_commands_change_no_file(shop: Path) -> None:
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
    """After `decide` the messages are visible, and the outcome has the name and the reason."""
    decide = ("tx", "decide", shop, "order-3", "commit", "--reason", "paid", "--by", "eve")
    code, lines, _ = fmq_json(*decide)
    assert (code, lines[0]["state"], lines[0]["decided_by"]) == (0, "committed", "eve")
    with fmq.open(shop, read_only=True) as engine:
        assert [message.body for message in engine.read("orders")] == [b"order 1", b"order 3"]
        outcome = engine.outcome("order-3")
    assert (outcome.decided_by, outcome.reason) == ("eve", "paid")


def test_a_decision_without_a_reason_is_refused(shop: Path) -> None:
    for reason in ("", "  "):
        with pytest.raises(SystemExit) as ended:
            fmq_json("tx", "decide", shop, "order-3", "commit", "--reason", reason)
        assert ended.value.code == 2
    with fmq.open(shop, read_only=True) as engine:
        assert engine.outcome("order-3").state == "undecided"


def test_with_damage_the_undecided_are_not_listed(shop: Path) -> None:
    """A transaction prepared before the damage may have been decided after it."""
    (segment,) = shop.glob("*.seg")
    data = bytearray(segment.read_bytes())
    for name in ("checkpoint.0", "checkpoint.1"):
        (shop / name).unlink(missing_ok=True)
    data[200] ^= 0x55
    segment.write_bytes(data)
    code, lines, error = fmq_json("tx", "list", shop)
    assert (code, lines) == (3, [])
    assert "Nothing was changed" in error


def test_repeating_a_decision_succeeds_and_the_opposite_is_refused(shop: Path) -> None:
    again = ("tx", "decide", shop, "order-1", "commit", "--reason", "again")
    opposite = ("tx", "decide", shop, "order-1", "rollback", "--reason", "no")
    assert fmq_json(*again).code == 0
    code, lines, error = fmq_json(*opposite)
    assert (code, lines) == (3, [])
    assert "was committed" in error


def test_a_decision_with_a_wrong_seal_is_refused(shop: Path) -> None:
    """With the right seal it is made."""
    (line,) = fmq_json("tx", "list", shop).lines
    decide = ("tx", "decide", shop, "order-3", "rollback", "--reason", "x", "--seal")
    assert fmq_json(*decide, "0" * 32).code == 3
    assert len(fmq_json("tx", "list", shop).lines) == 1
    assert fmq_json(*decide, line["seal"]).code == 0
    assert fmq_json("tx", "list", shop).lines == []


def test_a_decision_in_a_locked_directory_names_the_process(shop: Path) -> None:
    """Deciding needs the lock. The live engine goes on."""
    with fmq.open(shop, background=False) as engine:
        code, _, error = fmq_json("tx", "decide", shop, "order-3", "commit", "--reason", "x")
        assert len(engine.undecided()) == 1
    assert code == 3
    assert f"process {os.getpid()}" in error


def test_a_decision_goes_through_the_process_that_serves(shop: Path) -> None:
    with fmq.open(shop) as engine, engine.serve():
        said = fmq_json("tx", "decide", shop, "order-3", "commit", "--reason", "x", "--by", "eve")
        assert said.code == 0
        assert engine.undecided() == []
        assert engine.outcome("order-3").decided_by == "eve"


def test_list_and_show_ask_the_process_that_serves(shop: Path) -> None:
    """It knows a decision that is not durable yet, and files do not say that."""
    with fmq.open(shop, fmq.Options(sync="interval", sync_interval_seconds=3600)) as engine:
        engine.decide("order-3", "commit")
        assert len(fmq_json("tx", "list", shop).lines) == 1
        with engine.serve():
            assert fmq_json("tx", "list", shop).lines == []
            (outcome,) = fmq_json("tx", "show", shop, "order-3").of("outcome")
    assert outcome["state"] == "committed"


def test_an_unproven_prepare_is_listed_and_marked(tmp_path: Path) -> None:
    """In a copy of a directory nothing proves the last one durable, until the copy is opened for
    writing.
    """
    live, killed = tmp_path / "live", tmp_path / "killed"
    with fmq.open(live, background=False) as engine:
        for number in range(3):
            tx = engine.transaction(tx_id=f"t{number - 1}")
            tx.send("t", b"1")
            tx.prepare()
        shutil.copytree(live, killed)
        assert [line["proven"] for line in fmq_json("tx", "list", live).lines] == [True] * 3
    code, lines, error = fmq_json("tx", "list", killed)
    assert code == 0
    shown = [(line["tx_id"], line["proven"]) for line in lines]
    assert shown == [("t-1", True), ("t0", True), ("t1", False)]
    assert "1 transaction on the disk, and not proven durable" in error
    assert fmq_table("tx", "list", killed).count("not proven durable") == 1
    assert "1 prepared transaction" in fmq_json("tx", "show", killed, "t1").error
    fmq.open(killed, background=False).close()
    code, lines, error = fmq_json("tx", "list", killed)
    assert ([line["proven"] for line in lines], error) == ([True] * 3, "")


def test_a_decision_that_cannot_be_printed_is_confirmed_on_stderr(shop: Path) -> None:
    """The caller must not think that it was refused."""
    command = (*COMMAND, "tx", "decide", str(shop), "order-3", "commit", "--reason", "paid")
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert run.returncode == 3
    assert b"'order-3' is committed, and durably so" in run.stderr
    with fmq.open(shop) as engine:
        assert engine.outcome("order-3").state == "committed"

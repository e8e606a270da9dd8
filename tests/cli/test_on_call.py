"""The nine questions of docs/on_call.md, each answered by one command.

The system is small: a group that is healthy but for one poisoned message, an ordered group that
hangs, one that falls behind, one that nobody reads, and three undecided transactions of a producer
without a checker.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fmq
from fmq.findings import verdict
from fmq.findings.verdict import Seen, remarks, worst
from tests.cli.command import Said, fmq_json, fmq_process


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FMQ_DIR", os.fspath(tmp_path / "shop"))
    with fmq.open(tmp_path / "shop") as engine:
        engine.send_many("orders", [fmq.Message(b"%d" % each, key="c-7") for each in range(5)])
        engine.create_group("archive", "orders")
        for number in range(3):
            tx = engine.transaction(tx_id=f"order-{number}", producer="checkout")
            tx.send("orders", b"one more")
            tx.prepare()
        with (
            engine.consumer("orders", group="mail", member="m1") as mail,
            engine.consumer("orders", group="packing", member="p1", ordered=True) as packing,
            engine.consumer("orders", group="report", member="r1") as report,
        ):
            for delivery in mail.poll():
                delivery.reject("poison") if delivery.offset == 2 else delivery.ack()
            held = packing.poll(limit=1)
            report.poll(limit=1)[0].ack()
            with engine.serve():
                yield tmp_path / "shop"
            del held


def why(*arguments: object, code: int = 1) -> Said:
    """Nothing waits in these tests, so a moment is long."""
    done = fmq_json("why", "--after", "1e-6", *arguments)
    assert (done.code, done.error) == (code, "")
    return done


@pytest.mark.usefixtures("system")
def test_why_without_a_group_shows_each_stuck_group() -> None:
    """`fmq why` has a line about each group, and about what else needs a person."""
    states = {row["about"]: row["state"] for row in why().of("verdict")}
    assert states == {
        "group archive": "nobody reads it",
        "group mail": "up to date",
        "group packing": "stuck",
        "group report": "falls behind",
        "transactions": "3 undecided transactions",
    }


@pytest.mark.usefixtures("system")
def test_why_says_which_member_holds_a_message_and_how_to_free_it() -> None:
    """`fmq why GROUP` says it in one paragraph, with the commands."""
    done = why("packing")
    (row,) = done.of("why")
    assert (
        f"orders/0/0 is held by p1 (process {os.getpid()} on {socket.gethostname()})" in row["text"]
    )
    assert "attempt 1" in row["text"] and "5 messages not acked" in row["text"]
    assert row["since"] is not None and row["members"] == ["p1"]
    commands = [line["run"] for line in done.of("next")]
    verbs = [" ".join(command.split()[1:3]) for command in commands[:3]]
    assert verbs == ["group release", "group put-out", "group skip"]
    assert commands[1].endswith("packing p1 --reason ...")
    assert commands[2].endswith("packing orders 0 0")
    # The member is in the process of the engine, which no command shall end.
    assert not any("kill" in command for command in commands)


@pytest.mark.usefixtures("system")
def test_why_names_the_trouble_of_each_group() -> None:
    (archive,) = why("archive").of("why")
    assert "has no member now: 5 messages not acked, the oldest sent" in archive["text"]
    assert archive["text"].endswith("Restart its workers; no command of fmq starts them.")
    frees = {line["run"].split()[2]: line["why"] for line in why("archive").of("next")}
    assert list(frees) == ["show", "delete"], "nothing else is said to free it"
    assert "5 unread messages lose this reader" in frees["delete"]
    (report,) = why("report").of("why")
    assert "4 messages not acked" in report["text"] and "it has 1 member" in report["text"]
    done = why("mail", code=0)
    assert "has given up 1 message" in done.of("why")[0]["text"]
    assert any(line["run"].startswith("fmq dead list") for line in done.of("next"))


def test_a_silent_member_is_stuck_well_before_it_is_put_out() -> None:
    assert fmq.Options().member_timeout_seconds >= 2 * verdict.PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("lease", "silent", "timeout", "says"),
    [
        (7200, 54.0, 60.0, "12:00:06.000, as a member is out after 1.0 min without one"),
        (7200, 54.0, 86400.0, "unless it extends, others get it at 2026-01-31 14:00:00.000"),
        (3, 54.0, 60.0, "unless it extends, others get it at 2026-01-31 12:00:03.000"),
        (7200, 0.0, 60.0, "unless it extends, others get it at 2026-01-31 14:00:00.000"),
    ],
)
def test_it_says_when_others_get_what_a_member_holds(
    lease: float, silent: float, timeout: float, says: str
) -> None:
    """That is the end of its lease, or when it is put out, whichever comes first."""
    held = [replace(HELD, until=NOW + timedelta(seconds=lease))]
    members = [replace(MEMBER, seen_seconds=silent)]
    found = remarks(replace(SEEN, held=held, members=members, member_timeout=timeout))
    assert says in " ".join(each.text for each in found)


def test_the_stored_member_timeout_counts(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with fmq.open(path, fmq.Options(member_timeout_seconds=600.0)) as engine, engine.serve():
        engine.send("orders", b"")
        with engine.consumer("orders", group="g", lease_seconds=7200.0) as consumer:
            assert consumer.poll()
            [row] = fmq_json("why", "--after", "1e-6", path, "g").of("why")
    assert "as a member is out after 10.0 min without one" in row["text"]


def test_a_client_whose_member_was_put_out_is_named(tmp_path: Path) -> None:
    """It may hang, and its connection is still there."""
    path = tmp_path / "shop"
    with fmq.open(path) as engine, engine.serve():
        engine.send("orders", b"")
        with fmq.connect(path) as client, client.consumer("orders", group="g", member="w") as slow:
            assert slow.poll()
            engine.group("g").put_out("w", reason="a test")
            [row] = why(path, "g").of("why")
    assert f"Process {os.getpid()} on {socket.gethostname()} is connected" in row["text"]
    assert "and its consumer w is out. Restart its workers" in row["text"]


def test_a_worker_in_another_process_may_be_ended() -> None:
    (found, *_) = remarks(replace(SEEN, held=[replace(HELD, since=NOW - timedelta(hours=1))]))
    assert found.commands[2] == ("kill 42", "on web1: others get what it holds")


def test_a_command_that_frees_a_group_works(system: Path) -> None:
    """Run what `fmq why` says, but for the signal to this very process."""
    commands = {line["run"].split()[2]: line["run"] for line in why("packing").of("next")}
    for verb in ("release", "put-out"):
        assert fmq_json(*shlex.split(commands[verb])[1:]).code == 0
    assert "has no member now" in why("packing").of("why")[0]["text"]
    assert fmq_json(*shlex.split(commands["put-out"])[1:]).code == 0, "again, in doubt"
    assert fmq_json(*shlex.split(commands["skip"])[1:]).code == 0
    assert "is held by" not in why("packing").of("why")[0]["text"]


@pytest.mark.usefixtures("system")
def test_undecided_transactions_are_listed_with_the_answers_of_their_checker() -> None:
    rows = fmq_json("tx", "list").of("undecided")
    assert [(row["tx_id"], row["producer"], row["answers"]) for row in rows] == [
        (f"order-{number}", "checkout", 0) for number in range(3)
    ]
    (line,) = [row for row in why().of("verdict") if row["about"] == "transactions"]
    assert "no checker has answered yet" in line["text"]


def test_tx_ask_asks_a_checker_now_and_prints_its_answer(system: Path) -> None:
    """Without a checker that is said after a while; unknown is an answer, too."""
    done = fmq_json("tx", "ask", system, "order-0", "--wait", "0.1")
    assert done.code == 1 and "no checker of checkout answered" in done.lines[0]["text"]
    with fmq.connect(system) as client:
        answers = {"order-1": "unknown", "order-2": "commit"}
        client.checker("checkout")(lambda question: answers.get(question.tx_id, "unknown"))
        done = fmq_json("tx", "ask", system, "order-1")
        assert (done.code, done.lines[0]["answer"]) == (1, "unknown")
        done = fmq_json("tx", "ask", system, "order-2")
        assert (done.code, done.of("outcome")[0]["state"]) == (0, "committed")
    said = fmq_json("explain", system, "order-1").of("step")
    assert any("has answered" in row["text"] for row in said)


def test_tx_ask_is_refused_where_no_process_serves(shop: Path) -> None:
    done = fmq_json("tx", "ask", shop, "order-3")
    assert (done.code, done.lines) == (3, []) and "no process serves" in done.error


@pytest.mark.usefixtures("system")
def test_top_shows_lags_free_space_and_retention() -> None:
    done = fmq_json("top", "--interval", "0.01")
    (top,) = done.of("top")
    assert top["free_bytes"] > 0 and top["retain_acked_bytes"] == fmq.Options().retain_acked_bytes
    lags = {row["group"]: (row["lag"], row["in_hand"]) for row in done.of("group")}
    assert lags == {"archive": (5, 0), "mail": (0, 0), "packing": (5, 1), "report": (4, 0)}


@pytest.mark.parametrize("of", ["group", "topic"])
def test_why_says_who_paused_a_group_why_and_since_when(system: Path, of: str) -> None:
    """It comes first, whatever else there is to say, and the command that ends it works."""
    name = {"group": "packing", "topic": "orders"}[of]
    assert fmq_json("pause", system, f"--{of}", name, "--reason", "bad release").code == 0
    done = why("packing")
    (row,) = done.of("why")
    assert row["state"] == "paused"
    assert f"{of.capitalize()} {name} is paused by" in row["text"]
    assert "because: bad release." in row["text"]
    resume = done.of("next")[0]["run"].split()
    assert fmq_json(*resume[1:]).code == 0
    assert why("packing").of("why")[0]["state"] == "stuck"


def test_a_limit_says_who_why_and_how_much_is_in_hand(system: Path) -> None:
    words = "--concurrency", "1", "--reason", "a slow printer", "--by", "ann"
    assert fmq_json("limit", system, "packing", *words).code == 0
    done = why("packing")
    rows = [row["text"] for row in done.of("why") if "has a limit" in row["text"]]
    assert len(rows) == 1
    assert "It has a limit (1 at once), set by ann since " in rows[0]
    assert rows[0].endswith("because: a slow printer; 1 in hand now.")
    runs = [row["run"] for row in done.of("next") if "--none" in row["run"]]
    assert fmq_json(*shlex.split(runs[0])[1:]).code == 0
    assert not any("has a limit" in row["text"] for row in why("packing").of("why"))


def test_why_prints_a_paragraph_and_commands_on_a_terminal(system: Path) -> None:
    said = fmq_process("why", "--after", "1e-6", system, "packing", "--format", "table")
    assert (said.returncode, said.stderr) == (1, "")
    assert said.stdout.startswith("\npacking: stuck") and "only if it is the cause" in said.stdout


def test_a_directory_at_rest_says_what_the_journal_says(system: Path, tmp_path: Path) -> None:
    """There is no member and no lease then, and nothing is opened for writing."""
    fmq.backup(system, tmp_path / "copy")
    fmq.restore(tmp_path / "copy", tmp_path / "rest")
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "rest").iterdir()}
    (row,) = why(tmp_path / "rest", "packing").of("why")
    assert (row["state"], row["members"]) == ("nobody reads it", None)
    assert "no process has the directory open: 5 messages not acked" in row["text"]
    assert before == {file.name: file.stat().st_mtime_ns for file in (tmp_path / "rest").iterdir()}


# --- the words -----------------------------------------------------------------------------------

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
INFO = fmq.GroupInfo("g", "t", 0, 4, 0, 3, oldest=NOW - timedelta(hours=2))
YOUNG = replace(INFO, oldest=NOW - timedelta(seconds=1))
MEMBER = fmq.MemberInfo("w", ("t",), (), None, 0.0, "web1", 42)
HELD = fmq.HeldMessages("t", 0, 4, 2, "held", 2, "w", "web1", 42)
MINUTE_AGO = NOW - timedelta(minutes=1)
OUT = fmq.FormerMember("w", ("t",), MINUTE_AGO, "disconnected", 2, "web1", 42)
SEEN = Seen("shop", "g", [INFO], [MEMBER], [], None, NOW)


def test_a_process_whose_consumer_is_out_is_named_to_be_ended() -> None:
    """But not that of the engine, which others need."""
    client = fmq.ClientInfo("c", "web1", 42, None, NOW, 3, 0.0, 0, (("g", "w"),), ())
    seen = replace(SEEN, members=[], former=(OUT,), connected=(client,))
    (remark,) = remarks(seen)
    assert next(command for command, _ in remark.commands) == "kill 42"
    (remark,) = remarks(replace(seen, writer="fmq serve, process 42"))
    assert not any("kill" in command for command, _ in remark.commands)


@pytest.mark.parametrize(
    ("seen", "state", "says"),
    [
        (
            SEEN,
            "falls behind",
            "not acked, the oldest sent 2026-01-31 10:00:00 (2.0 h ago)",
        ),
        (replace(SEEN, infos=[replace(INFO, unread=0)]), "up to date", "acked all"),
        (replace(SEEN, infos=[YOUNG]), "working", "3 messages"),
        (replace(SEEN, members=[]), "nobody reads it", "no member now"),
        (
            replace(SEEN, members=[], former=(OUT,)),
            "nobody reads it",
            "its process has ended, at 2026-01-31 11:59:00.000 (1.0 min ago); it held 2 messages",
        ),
        (
            replace(SEEN, members=[], former=(replace(OUT, why="silent"),)),
            "nobody reads it",
            "went out, as it made no call for 1.0 min, at",
        ),
        (
            replace(SEEN, members=[], former=(replace(OUT, why="put out", by="ann", reason="r"),)),
            "nobody reads it",
            "was put out by ann, because: r, at",
        ),
        (
            replace(SEEN, members=[], opened_at=NOW - timedelta(hours=3)),
            "nobody reads it",
            "No member has come since the engine was opened at 2026-01-31 09:00:00.000 (3.0 h ago)",
        ),
        (replace(SEEN, members=None, held=None), "nobody reads it", "no process has the directory"),
        (replace(SEEN, members=None, held=None, writer="pid 5"), "falls behind", "not serve it"),
        (replace(SEEN, members=[replace(MEMBER, topics=("u",))]), "nobody reads it", "topic t"),
        (
            replace(SEEN, members=[replace(MEMBER, strategy="even")]),
            "nobody reads it",
            "t/0 belongs to no member",
        ),
        (
            replace(SEEN, held=[replace(HELD, since=NOW - timedelta(seconds=90))]),
            "stuck",
            "t/0/4–5 are held by w (process 42 on web1) since 2026-01-31 11:58:30.000 (1.5 min",
        ),
        (
            replace(SEEN, held=[replace(HELD, since=NOW)], infos=[YOUNG]),
            "working",
            "held by w",
        ),
        (
            replace(SEEN, members=[replace(MEMBER, seen_seconds=34.0)]),
            "stuck",
            "No member takes messages (it has 1): w (process 42 on web1) was last seen 34.0 s ago",
        ),
        (
            replace(SEEN, held=[HELD], members=[replace(MEMBER, seen_seconds=600.0)]),
            "stuck",
            "last seen 10.0 min ago",
        ),
        (
            replace(SEEN, held=[HELD], members=[replace(MEMBER, seen_seconds=31.0)]),
            "stuck",
            "last seen 31.0 s ago",
        ),
        (
            replace(SEEN, held=[HELD, replace(HELD, state="behind")]),
            "falls behind",
            "2 messages of the same keys wait behind what is held",
        ),
        (
            replace(SEEN, held=[replace(HELD, state="transaction", tx_id="T")]),
            "stuck",
            "acked by the undecided transaction T",
        ),
        (
            replace(SEEN, held=[replace(HELD, state="waits", until=NOW + timedelta(hours=1))]),
            "stuck",
            "4–5 were handed out 2 times and are not acked, and wait for the next attempt until",
        ),
        (
            replace(SEEN, held=[replace(HELD, state="waits", count=1, attempt=1)]),
            "falls behind",
            "t/0/4 was handed out 1 time and is not acked, and waits for its turn",
        ),
    ],
)
def test_each_state_of_a_group_has_its_remark(seen: Seen, state: str, says: str) -> None:
    found = remarks(seen)
    assert worst(found) == state
    assert says in " ".join(each.text for each in found)
    for each in found:
        assert state not in verdict.PROBLEMS or each.state != state or each.commands

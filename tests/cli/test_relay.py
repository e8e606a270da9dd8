"""`fmq relay` into PostgreSQL: once, on and on, and when another one takes over."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fmq
from tests.bind.conftest import address
from tests.budget import BUDGET
from tests.cli.command import ENVIRONMENT, fmq_json, fmq_process

__all__ = ["address"]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def database(address: str) -> str:
    """The address of an empty database as a URL, which `fmq relay` takes."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS fmq_relay, fmq_relayed")
    return address


def bodies(address: str) -> list[bytes]:
    with psycopg.connect(address) as connection:
        rows: list[Any] = connection.execute("SELECT body FROM fmq_relayed ORDER BY id").fetchall()
    return [body for (body,) in rows]


def test_relay_once_copies_all_that_is_there(shop: Path, database: str) -> None:
    asked = ("relay", shop, "--to", database, "--topics", "orders", "--once")
    missing = fmq_process(*asked)
    assert (missing.returncode, "fmq_relay" in missing.stderr) == (3, True)
    first = fmq_json(*asked, "--create").of("relay")[0]
    assert (first["messages"], first["lag"]) == (len(bodies(database)), 0)
    assert first["messages"] > 0
    assert fmq_json(*asked).of("relay")[0]["messages"] == 0
    asked_status = ("relay-status", shop, "--to", database)
    (row,) = fmq_json(*asked_status).of("relayed")
    assert (row["topic"], row["copied"], row["lag"]) == ("orders", first["messages"], 0)
    assert fmq_json(*asked_status, "--name", "other").of("relayed") == []
    with fmq.connect(shop) as engine:  # the process that the command has started still has it
        engine.send("orders", b"no text of PostgreSQL has a NUL", key="a\0b")
    (row,) = fmq_json(*asked_status).of("relayed")
    assert (row["lag"], row["end"] - row["copied"]) == (1, 1)
    assert row["waits_since"] is not None
    refused = fmq_process(*asked)
    assert (refused.returncode, "--on-refused park" in refused.stderr) == (3, True)
    assert fmq_json(*asked, "--on-refused", "park").of("relay")[0]["parked"] == 1


def test_a_relay_begins_where_a_person_says_renames_and_encodes(
    shop: Path, database: str, tmp_path: Path
) -> None:
    (tmp_path / "upper.py").write_text("def encode(message):\n    return message.body.upper()\n")
    asked = ("relay", shop, "--to", database, "--topics", "orders", "--once", "--create")
    end = fmq_json(*asked, "--from", "end").of("relay")[0]
    assert (end["messages"], bodies(database)) == (0, [])
    with fmq.connect(shop) as engine:
        engine.send("orders", b"new")
        offset = engine.queues("orders")[0].next
    again = fmq_process(*asked, "--from", "start")
    assert (again.returncode, "has a place already" in again.stderr) == (3, True)
    wrong = fmq_process(*asked, "--codec", "upper:nothing", cwd=tmp_path)
    assert (wrong.returncode, "no such function" in wrong.stderr) == (3, True)
    how = ("--codec", "upper:encode", "--map", "orders=shop.orders")
    assert fmq_process(*asked, *how, cwd=tmp_path).returncode == 0
    assert bodies(database) == [b"NEW"]
    with psycopg.connect(database) as connection:
        (row,) = connection.execute("SELECT topic, fmq_id FROM fmq_relayed").fetchall()
    assert (row[0], row[1].endswith(f"/orders/0/{offset - 1}")) == ("shop.orders", True)
    said = fmq_json(*asked, "--adopt", "--from", "start").of("relay")[0]
    assert (said["messages"], len(bodies(database))) == (offset, offset + 1)
    assert said["commit_p99_seconds"] > 0
    missing = fmq_process(*asked, "--adopt")
    assert (missing.returncode, "--adopt needs --from" in missing.stderr) == (3, True)


def test_relays_stand_by_for_each_other_and_say_what_they_do_at_a_port(
    shop: Path, database: str
) -> None:
    asked = (shop, "--to", database, "--topics", "orders", "--create", "--standby")
    line = [sys.executable, "-m", "fmq", "relay", *map(str, asked), "--http", "127.0.0.1:0"]
    with fmq.open(shop) as engine, engine.serve():
        copied_by_first = len(engine.read("orders", limit=1000))
        relays, pages = [], []
        for number in range(2):
            relay = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            relays.append(relay)
            assert relay.stderr is not None
            pages.append(relay.stderr.readline().split()[-1])
            while not number and len(copied(database)) < copied_by_first:
                assert relay.poll() is None
        with urllib.request.urlopen(pages[0]) as page:
            text = page.read().decode()
        assert f'fmq_relay_messages_total{{relay="relay"}} {copied_by_first}.0' in text
        assert 'fmq_relay_lag_seconds{relay="relay"} 0.0' in text
        assert "fmq_relay_commit_seconds_count" in text
        with urllib.request.urlopen(pages[1]) as page:
            assert 'fmq_relay_claims_total{relay="relay"} 0.0' in page.read().decode()
        relays[0].terminate()
        relays[0].communicate()
        engine.send("orders", b"by the second")
        while b"by the second" not in copied(database):
            assert relays[1].poll() is None
        relays[1].terminate()
        relays[1].communicate()
    assert [each.returncode for each in relays] == [0, 0]


def test_a_standby_goes_on_after_the_relay_that_copies_was_killed(
    shop: Path, database: str
) -> None:
    """It waits ten seconds by the real clock: FMQ_BUDGET=2 tries it."""
    if BUDGET <= 1:
        pytest.skip("ten seconds of silence are real ones: FMQ_BUDGET=2")
    asked = (shop, "--to", database, "--topics", "orders", "--create", "--standby")
    line = [sys.executable, "-m", "fmq", "relay", *map(str, asked)]
    with fmq.open(shop) as engine, engine.serve():
        sent = [message.body for message in engine.read("orders", limit=1000)]
        relays = [subprocess.Popen(line, cwd=ROOT)]
        for number in range(3):
            relays.append(subprocess.Popen(line, cwd=ROOT))
            sent.append(b"number %d" % number)
            engine.send("orders", sent[-1])
            while sent[-1] not in copied(database):
                assert [each.poll() for each in relays] == [None, None]
            first = relays.pop(0)  # the one that copies, as the other one has come later
            first.kill()
            first.wait()
        engine.send("orders", b"last")
        while b"last" not in copied(database):
            assert relays[0].poll() is None
        relays[0].terminate()
        assert relays[0].wait() == 0
    assert bodies(database) == [*sent, b"last"]


def test_at_a_terminal_a_bar_shows_how_far_a_relay_is(shop: Path, database: str) -> None:
    """Method: read through a pseudo-terminal. The bar comes four times a second."""
    asked = (shop, "--to", database, "--topics", "orders", "--create")
    line = [sys.executable, "-m", "fmq", "relay", *map(str, asked)]
    environment = {**ENVIRONMENT, "COLUMNS": "120", "TERM": "xterm"}
    ours, theirs = pty.openpty()
    with fmq.open(shop) as engine, engine.serve():
        count = len(engine.read("orders", limit=1000))
        with subprocess.Popen(line, cwd=ROOT, stdout=theirs, env=environment) as relay:
            os.close(theirs)
            shown, ends = "", False
            while True:
                try:
                    shown += os.read(ours, 4096).decode(errors="replace")
                except OSError:  # nobody has the other end open any more
                    break
                if not ends and re.search(rf"100%.* {count} rows .*rows/s", shown):
                    relay.terminate()
                    ends = True
    os.close(ours)
    assert (relay.returncode, ends) == (0, True)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert [f"{count}"] == [
        line.split()[-1] for line in text.splitlines() if "messages copied" in line
    ], text


def test_relay_copies_until_sigterm_or_until_another_relay_takes_over(
    shop: Path, database: str
) -> None:
    """The older of two relays ends with 3."""
    asked = (shop, "--to", database, "--topics", "orders,emails", "--create")
    line = [sys.executable, "-m", "fmq", "relay", *map(str, asked)]
    with fmq.open(shop) as engine, engine.serve():
        relay = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        with engine.transaction() as tx:
            tx.send("orders", b"the order")
            tx.send("emails", b"its email")
        while b"its email" not in copied(database):
            assert relay.poll() is None, relay.communicate()
        newer = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE)
        while relay.poll() is None:
            engine.send("orders", b"one more")
        assert (relay.returncode, "was claimed by another" in relay.communicate()[1]) == (3, True)
        newer.terminate()
        newer.communicate()
        assert newer.returncode == 0
    assert len({*bodies(database)}) >= 3


def test_a_relay_into_a_web_service_says_that_it_may_post_twice(shop: Path) -> None:
    """Nobody listens there, so nothing is copied, and the relay waits until it is ended."""
    asked = (shop, "--to", "http://127.0.0.1:9/", "--topics", "orders", "--name", "web")
    line = [sys.executable, "-m", "fmq", "relay", *map(str, asked)]
    relay = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert relay.stderr is not None
    notes = []
    while "gave no answer" not in (said := relay.stderr.readline()):
        assert said
        assert relay.poll() is None
        notes.append(said)
    relay.terminate()
    relay.communicate()
    assert relay.returncode == 0
    assert any("again after a crash" in each for each in notes)
    (row,) = fmq_json("relay-status", shop, "--to", "http://127.0.0.1:9/", "--name", "web").of(
        "relayed"
    )
    assert (row["copied"], row["lag"]) == (0, row["end"])


def copied(database: str) -> list[bytes]:
    try:
        return bodies(database)
    except psycopg.errors.UndefinedTable:
        return []


def test_an_unknown_target_and_a_mistyped_name_make_nothing(shop: Path, tmp_path: Path) -> None:
    done = fmq_process("relay", shop, "--to", "gopher://here", "--topics", "orders")
    assert (done.returncode, "kafka://HOST:PORT" in done.stderr) == (3, True)
    done = fmq_process(
        *("relay", shop, "--to", "postgresql://here/x", "--topics", "orders", "--prefix", "p-")
    )
    assert (done.returncode, "no prefix and no CloudEvents" in done.stderr) == (3, True)
    done = fmq_process("sink", "redis://here", shop, "--topics", "orders")
    assert (done.returncode, "kafka://HOST:PORT" in done.stderr) == (3, True)
    wrong = tmp_path / "shpo"
    done = fmq_process("sink", "kafka://here", wrong, "--topics", "orders")
    assert (done.returncode, wrong.exists()) == (3, False)
    done = fmq_process("relay", wrong, "--to", "postgresql://here/x", "--topics", "orders")
    assert (done.returncode, wrong.exists()) == (3, False)

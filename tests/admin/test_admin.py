"""Pages in Django's admin: what they show, who may act, and what an act does. And system checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fmq

ROOT = Path(__file__).resolve().parent.parent.parent
STORY = Path(__file__).parent / "admin_story.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a process with a project of Django's has seen: its settings are for all of a process."""
    place = tmp_path_factory.mktemp("admin")
    with fmq.open(place / "queue", fmq.Options(lease_seconds=20)) as engine:
        engine.serve()
        for name in ("order-1", "order-2"):
            tx = engine.transaction(tx_id=name, producer="checkout")
            tx.send("orders", name.encode())
            tx.prepare()
        for body in (b"<b>bad</b>", b"\xff"):
            engine.send("mails", body)
        with engine.consumer("mails", group="mail") as consumer:
            for delivery in consumer.poll():
                delivery.reject("no address")
        done = subprocess.run(
            [sys.executable, STORY, place],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        found["outcomes"] = {
            name: (outcome.state, outcome.decided_by, outcome.reason)
            for name in ("order-1", "order-2")
            for outcome in [engine.outcome(name)]
        }
        found["dead"] = len(engine.dead_letters("mail").list())
        found["paused"] = [each.paused and each.paused.by for each in engine.groups("mail")]
    return found


def test_the_pages_show_what_is_there(told: dict[str, object]) -> None:
    assert "order-1" in str(told["undecided"]) and "checkout" in str(told["undecided"])
    letters = str(told["letters"])
    assert "no address" in letters and "0xff" in letters
    assert "&lt;b&gt;bad" in letters and "<b>bad" not in letters, "bodies are escaped"
    assert "mails/0" in str(told["groups"])
    assert told["index"] == ["dead letters", "groups", "undecided transactions"]


def test_only_staff_with_the_permission_sees_a_page_or_acts(told: dict[str, object]) -> None:
    assert told["nobody"] == 302, "to the page for logging in"
    assert told["staff without permissions"] == 403
    assert told["viewer sees"] == 200
    assert 'name="act"' not in str(told["viewer's page"])
    assert told["viewer acts"] == 403


def test_an_act_asks_first_and_says_who_and_why(told: dict[str, object]) -> None:
    assert "Their messages become visible" in str(told["asked"])
    assert told["after asking"] == 2, "nothing is done before the reason"
    assert told["outcomes"] == {
        "order-1": ("committed", "boss", "paid by phone"),
        "order-2": ("undecided", None, None),
    }


def test_dead_letters_are_replayed_and_groups_paused(told: dict[str, object]) -> None:
    assert told["dead"] == 1
    assert told["paused"] == ["boss"]


def test_an_act_on_what_has_changed_is_refused_with_its_reason(told: dict[str, object]) -> None:
    assert "order-1" in str(told["decided again"])


def test_the_checks_tell_of_options_that_differ_and_of_network_file_systems(
    told: dict[str, object],
) -> None:
    assert told["checks"] == ["fmq.W003"]
    assert "lease_seconds=30" in str(told["check"]) and "20" in str(told["check"])
    assert told["remote"] == ["fmq.W002"]

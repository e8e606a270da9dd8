"""`manage.py fmq`, and the system check of databases with markers, in a project of Django's."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

import fmq
from fmq.bind.django.system_check import W001
from tests import warm
from tests.bind.databases import Database, Sqlite
from tests.bind.django_shop import leave, point_at

ROOT = Path(__file__).resolve().parent.parent.parent
MANAGE = """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(INSTALLED_APPS=["fmq.bind.django"], FMQ_DIR={directory!r})
execute_from_command_line(sys.argv)
"""


def manage(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (place / "manage.py").write_text(MANAGE.format(directory=str(place / "queue")))
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return warm.run([place / "manage.py", *words], cwd=place, env=environment)


def test_the_command_is_that_of_fmq_on_the_directory_of_the_settings(tmp_path: Path) -> None:
    """Its options are not taken by Django's parser, and its exit code is that of fmq."""
    with fmq.open(tmp_path / "queue") as engine:
        engine.send("orders", b"1")
        engine.send("orders", b"2")
    done = manage(tmp_path, "fmq", "read", "orders", "--limit", "1", "--format", "json")
    assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == ["1"], done.stderr
    wrong = manage(tmp_path, "fmq", "read", "none")
    assert (wrong.returncode, "none" in wrong.stderr) == (3, True)


def test_call_command_runs_it_in_a_process_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with fmq.open(tmp_path / "queue") as engine:
        engine.send("orders", b"1")
    with override_settings(FMQ_DIR=tmp_path / "queue"):
        call_command("fmq", "read", "orders")
        assert json.loads(capfd.readouterr().out)["body"] == "1"
        with pytest.raises(SystemExit) as ended:
            call_command("fmq", "read", "none")
    assert ended.value.code == 3


def warnings_of(alias: str) -> list[str]:
    return [each.msg for each in run_checks(databases=[alias]) if each.id == W001]


def test_a_database_that_may_lose_commits_is_warned_of(database: Database) -> None:
    """If it has markers, so that messages depend on its commits."""
    alias = point_at(database)
    assert warnings_of(alias) == []
    weaker = "PRAGMA synchronous = OFF" if isinstance(database, Sqlite) else WEAKER_POSTGRES
    with connections[alias].cursor() as cursor:
        cursor.execute(weaker)
    (warning,) = warnings_of(alias)
    assert "take back what was committed" in warning
    with connections[alias].cursor() as cursor:
        cursor.execute("DROP TABLE fmq_tx")
    assert warnings_of(alias) == [], "no message depends on it"
    leave(alias)


WEAKER_POSTGRES = "SET synchronous_commit = off"


def test_a_database_in_memory_and_one_that_is_not_asked_are_not_warned_of(tmp_path: Path) -> None:
    with connections["memory"].cursor() as cursor:
        cursor.execute(fmq.bind.ddl("sqlite"))
    assert warnings_of("memory") == []
    leave("memory")
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute(fmq.bind.ddl("sqlite"))
    assert [each for each in run_checks() if each.id == W001] == []

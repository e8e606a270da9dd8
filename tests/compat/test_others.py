"""The tests that others have for their queues: `tools/others_tests.py` runs them on ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools import others_tests
from tools.others_tests import Result, Run

FETCHED = {name for name, suite in others_tests.SUITES.items() if suite.distribution}


@pytest.mark.parametrize(
    ("name", "module", "least"),
    [("python", "test.test_queue", 24), ("huey", "huey.tests.test_storage", 20)],
)
def test_the_installed_tests_of_other_projects_pass(
    tmp_path: Path, name: str, module: str, least: int
) -> None:
    """Those of `queue.Queue` and of huey's storages need nothing from an index."""
    pytest.importorskip(module, reason=f"its tests are not installed with {name}")
    assert name not in FETCHED
    result = others_tests.run(name, tmp_path)
    assert result.surprises == []
    assert result.count("passed") >= least
    assert result.count("skipped") == 0


def test_each_failing_test_of_another_project_is_on_the_list_of_differences() -> None:
    """A failure that is not listed is wrong. So is a test that is listed and passes."""
    reasons = {"Queue::test_a": "one", "Queue::test_b": "another"}
    result = Result(expected=reasons)
    assert result.surprises == ["no test ran"]
    for name, outcome in (("a", "failed"), ("b", "passed"), ("c", "failed"), ("d", "skipped")):
        result.outcomes[f"x::Queue::test_{name}"] = outcome
        result.messages[f"x::Queue::test_{name}"] = f"{name}!"
    assert result.differences == ["x::Queue::test_a: one"]
    assert result.surprises == [
        "x::Queue::test_c: c!",
        "x::Queue::test_b: it passes, and expected.toml has it",
    ]
    lines = [*others_tests.table({"x": result})]
    assert lines[1].split() == ["x", "1", "2", "1", "1"]


def test_each_listed_difference_belongs_to_a_suite_that_exists() -> None:
    import tomllib

    listed = tomllib.loads((others_tests.OTHERS / "expected.toml").read_text())
    assert set(listed) <= set(others_tests.SUITES)


def test_a_suite_whose_needs_are_not_met_is_skipped_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's tests keep their results in Redis. Nothing is downloaded."""
    lacking = replace(others_tests.SUITES["celery"], lacks=lambda: "there is no redis-server")
    monkeypatch.setitem(others_tests.SUITES, "celery", lacking)
    result = others_tests.run("celery", tmp_path)
    assert result.surprises == []
    assert [*others_tests.table({"celery": result})][-1] == (
        "\nSKIPPED, of celery: there is no redis-server"
    )
    assert [*tmp_path.iterdir()] == []


def test_a_test_that_ends_otherwise_on_another_broker_is_listed() -> None:
    """What fails on the other broker alone is a difference, and no error of ours."""
    ours, theirs = Result(), Result(is_foreign=True)
    ours.outcomes = {"a": "passed", "b": "passed", "c": "skipped"}
    theirs.outcomes = {"a": "passed", "b": "failed"}
    assert theirs.surprises == []
    lines = [*others_tests.table({"celery": ours, "celery-on-redis": theirs})]
    assert lines[3:] == [
        "\ncelery and celery-on-redis: 2 tests end otherwise",
        "\ncelery: b: passed, there failed",
        "\ncelery: c: skipped, there missing",
    ]


def test_each_file_of_a_suite_can_have_a_pytest_of_its_own(tmp_path: Path) -> None:
    for name in ("test_b.py", "test_a.py", "test_left_out.py", "conftest.py"):
        (tmp_path / name).touch()
    apart = Run((".",), leaves_out=("test_left_out.py",))
    assert [*apart.places_in(tmp_path)] == [("test_a.py",), ("test_b.py",)]
    assert [*Run(("a", "b")).places_in(tmp_path)] == [("a", "b")]

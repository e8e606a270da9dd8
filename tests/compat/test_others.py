"""The tests that others have for their queues: `tools/others_tests.py` runs them on ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import others_tests
from tools.others_tests import Result

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


def test_each_listed_difference_is_of_an_existing_suite() -> None:
    import tomllib

    listed = tomllib.loads((others_tests.OTHERS / "expected.toml").read_text())
    assert set(listed) <= set(others_tests.SUITES)

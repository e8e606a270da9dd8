"""`fmq report`: the numbers of a journal, and a page of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fmq
from fmq.report.numbers_of_journal import SECOND_US, SPANS, Curve
from tests.cli.command import fmq_json, fmq_table
from tests.dash.dash_system import EVIL, OUT, hanging_system


@pytest.mark.parametrize("is_live", [False, True])
def test_the_numbers_are_those_that_the_engine_has_counted(
    tmp_path: Path, *, is_live: bool
) -> None:
    with hanging_system(tmp_path / "shop") as engine:
        engine.decide("order-1", "commit", reason="paid")
        engine.decide("order-2", "rollback", reason="not paid")
        engine.checkpoint()
        counts = engine.stats().counts
        assert counts is not None
        said = fmq_json("report", tmp_path / "shop") if is_live else None
    said = said or fmq_json("report", tmp_path / "shop")
    sent = {row["topic"]: row["messages"] for row in said.of("topic")}
    assert sent == {name: many for name, many in counts.sent.items() if many}
    groups = {row["group"]: (row["acked"], row["dead"]) for row in said.of("group")}
    assert groups == {
        name: (sum(of.acked.values()), of.rejected)
        for name, of in counts.groups.items()
        if sum(of.acked.values())
    }
    (top,) = said.of("report")
    assert (top["committed"], top["rolled_back"], top["undecided"]) == (2, 1, 1)
    assert top["half_decided_seconds"] > 0
    assert top["start"] <= top["end"]


def test_the_page_is_one_file_without_scripts(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with hanging_system(tmp_path / "shop") as engine:
        engine.checkpoint()
        said = fmq_table("report", tmp_path / "shop", page)
    text = page.read_text()
    assert str(page) in said.replace("\n", "") or "page" in said
    for word in ("<script", "http:", "https:", "<img", EVIL, OUT):
        assert word not in text.replace("http://www.w3.org", ""), word
    for word in ("Topics", "orders", "mail", "no such", "order-1", "checkout", "<svg"):
        assert (word in text) == (word != "no such"), word


def test_an_empty_journal_has_a_report(tmp_path: Path) -> None:
    fmq.open(tmp_path / "shop").close()
    page = tmp_path / "page.html"
    (row,) = fmq_json("report", tmp_path / "shop", page).of("report")
    assert (row["messages"], row["committed"]) == (0, 0)
    assert "<h1>" in page.read_text()


def test_the_spans_of_a_curve_grow_with_time() -> None:
    """Nothing is lost, and what came in one span stays in one."""
    curve, start = Curve(0), 0
    for seconds in (0, 1, 63, 64, 100, 10_000):
        curve.add(np.array([seconds * SECOND_US]), np.array([2]))
    curve.add(np.array([-5]), np.array([1]))  # the clock was set back
    assert (curve.total, len(curve.values), curve.start_us) == (13, SPANS, start)
    assert curve.width_us == 256 * SECOND_US
    assert curve.values[0] == 11 and curve.values[10_000 // 256] == 2

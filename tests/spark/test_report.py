"""The page of tools/report.py tells what the engine tells."""

import re
import statistics
from collections import Counter
from datetime import UTC
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fmq
from fmq.cli.text import size
from fmq.clock import as_us
from fmq.report import Numbers, page_of, read
from fmq.report.chart import Series, columns
from fmq.report.page import duration
from tests.spark.filled import fill
from tests.spark.reading import shown_by_engine

MARKUP = "<b>&amp;</b>"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("report") / "shop")
    fill(path)
    with fmq.open(path) as engine:
        engine.send(MARKUP, b"not markup")
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll(limit=10):
                delivery.ack()
    return path


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, path: str) -> Numbers:
    return read(spark, path)


def test_the_report_counts_the_messages_that_the_engine_shows(numbers: Numbers, path: str) -> None:
    shown = shown_by_engine(path)
    messages = Counter(row["topic"] for row in shown)
    sizes = Counter[str]()
    for row in shown:
        sizes[row["topic"]] += len(row["body"])
    assert {topic.name: sum(topic.messages) for topic in numbers.topics} == messages
    assert {topic.name: sum(topic.bytes) for topic in numbers.topics} == sizes
    start, width, number = numbers.steps
    steps = Counter((as_us(row["time"].replace(tzinfo=UTC)) - start) // width for row in shown)
    together = [sum(values) for values in zip(*(t.messages for t in numbers.topics), strict=True)]
    assert together == [steps[step] for step in range(number)]


def test_the_report_counts_the_transactions_of_the_engine(numbers: Numbers, path: str) -> None:
    """Compare counts, the time from prepare to commit, the largest, and the undecided."""
    with fmq.open(path, read_only=True) as engine:
        outcomes = [engine.outcome(f"two-{round}") for round in range(20)]
        waiting = len(engine.undecided())
        groups = engine.groups()
    states = Counter(outcome.state for outcome in outcomes)
    assert numbers.one_phase == 20
    assert numbers.committed == states["committed"]
    assert numbers.rolled_back == states["rolled back"]
    assert numbers.undecided_now == waiting == numbers.undecided[-1] == states["undecided"]
    took = [
        (outcome.decided_at - outcome.prepared_at).total_seconds() * 1_000_000
        for outcome in outcomes
        if outcome.state == "committed" and outcome.decided_at
    ]
    assert sum(numbers.latency.values()) == len(took)
    assert numbers.quantiles_us["all"] == pytest.approx(max(took))
    assert numbers.quantiles_us["half"] == pytest.approx(statistics.median(took))
    largest = max(outcome.bytes for outcome in outcomes)
    assert [row["bytes"] for row in numbers.biggest] == [largest] * 10
    assert numbers.groups == groups
    assert groups[0].unread > 100


def test_the_page_shows_the_numbers_and_loads_nothing(numbers: Numbers) -> None:
    page = page_of(numbers)
    cards = {name: value for value, name in re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", page)}
    assert cards == {
        "messages": f"{numbers.messages:,}",
        "bytes in their bodies": size(numbers.bytes),
        "topics": "3",
        "transactions in one phase": "20",
        "in two phases, committed": "10",
        "rolled back": "5",
        "undecided": "5",
        "half are decided within": duration(numbers.quantiles_us["half"]),
    }
    assert not re.search(r"https?:|<script|<link|@import|url\(", page)
    assert MARKUP not in page
    assert MARKUP in unescape(page)
    assert sum(columns_of(page, "messages")) == numbers.messages


def columns_of(page: str, heading: str) -> list[int]:
    """The numbers that columns of the chart under `heading` tell to whoever points at them."""
    chart = page.split(f"<h3>{heading}</h3>")[1].split("</svg>")[0]
    told = chart.replace("</title>", "\n")
    return [int(each.replace(",", "")) for each in re.findall(r": ([\d,]+)$", told, re.MULTILINE)]


def test_the_page_is_well_formed(numbers: Numbers) -> None:
    """Every element that is opened is closed, in order."""
    checker = Nesting()
    checker.feed(page_of(numbers))
    assert checker.open == []
    assert checker.wrong == []
    assert checker.seen["svg"] == 4


class Nesting(HTMLParser):
    EMPTY = frozenset({"meta", "rect", "line"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.seen = Counter[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen[tag] += 1
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def test_a_report_of_an_empty_journal_has_a_page(spark: SparkSession, tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop"):
        pass
    page = page_of(read(spark, str(tmp_path / "shop")))
    assert "There are no messages." in page


def test_stacked_columns_are_as_high_as_their_numbers() -> None:
    svg = columns([Series("a", [1, 4]), Series("b", [3, 0])], ["x", "y"], [0], str)
    heights = [float(height) for height in re.findall(r'<rect .*height="([\d.]+)"', svg)]
    one, three, four = heights
    assert three == pytest.approx(3 * one, abs=0.2)
    assert four == pytest.approx(4 * one, abs=0.2)

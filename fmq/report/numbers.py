"""What a report tells of a journal, worked out by Spark SQL over its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import fmq
from fmq.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
WIDTHS_US = (
    *(ms * 1000 for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(s * SECOND for s in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60 * SECOND for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3600 * SECOND for hours in (1, 2, 3, 6, 12, 24, 48, 168, 336, 720)),
)
STEPS_MAX = 120
TOPICS_SHOWN = 7
OTHERS = "all others"
BIGGEST = 10
# Five to each power of ten.
LATENCY_STEPS = 5
QUANTILES = {"half": 0.5, "nine in ten": 0.9, "99 in 100": 0.99, "all": 1.0}


class Steps(NamedTuple):
    """Equal stretches of time."""

    start_us: int
    width_us: int
    number: int

    def time(self, step: int) -> datetime:
        return datetime.fromtimestamp((self.start_us + step * self.width_us) / SECOND, UTC)


@dataclass(slots=True)
class TopicNumbers:
    """What a topic got in each step."""

    name: str
    messages: list[int]
    bytes: list[int]


@dataclass(slots=True)
class Numbers:
    """All that a report shows."""

    path: str
    steps: Steps
    topics: list[TopicNumbers] = field(default_factory=list)
    topics_in_all: int = 0
    one_phase: int = 0
    committed: int = 0
    rolled_back: int = 0
    undecided_now: int = 0
    undecided: list[int] = field(default_factory=list)
    """At the end of each step."""
    latency: dict[int, int] = field(default_factory=dict)
    """How many took from 10**(n/5) us on, up to, not with, the next n."""
    quantiles_us: dict[str, float] = field(default_factory=dict)
    biggest: list[dict[str, Any]] = field(default_factory=list)
    groups: list[fmq.GroupInfo] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(sum(topic.messages) for topic in self.topics)

    @property
    def bytes(self) -> int:
        return sum(sum(topic.bytes) for topic in self.topics)


def read(spark: SparkSession, path: str) -> Numbers:
    """The numbers of the journal in the directory at `path`, as it is now."""
    register(spark)
    source = spark.read.format("fmq")
    source.option("view", "transactions").load(path).cache().createOrReplaceTempView("fmq_tx")
    messages = source.option("view", "messages")
    messages.option("columns", "time").load(path).createOrReplaceTempView("fmq_times")
    messages.option("columns", "topic,time,body").load(path).createOrReplaceTempView("fmq_messages")
    try:
        numbers = Numbers(path, _steps(spark))
        _count_messages(spark, numbers)
        _count_transactions(spark, numbers)
        _count_undecided(spark, numbers)
        _measure_latency(spark, numbers)
    finally:
        spark.catalog.uncacheTable("fmq_tx")
    with fmq.open(path, read_only=True) as engine:
        numbers.groups = engine.groups()
    return numbers


def _rows(spark: SparkSession, query: str, **values: Any) -> list[Any]:
    return list(spark.sql(query, args=values).collect())


def _steps(spark: SparkSession) -> Steps:
    [(first, last)] = _rows(
        spark,
        """
        select min(unix_micros(time)), max(unix_micros(time)) from (
            select time from fmq_times
            union all select prepared from fmq_tx
            union all select decided from fmq_tx)
        """,
    )
    if first is None:
        return Steps(0, WIDTHS_US[0], 0)
    for width in WIDTHS_US:
        start = first // width * width
        if (last - start) // width < STEPS_MAX:
            break
    return Steps(start, width, (last - start) // width + 1)


def _count_messages(spark: SparkSession, numbers: Numbers) -> None:
    steps = numbers.steps
    found: dict[str, TopicNumbers] = {}
    for topic, step, messages, size in _rows(
        spark,
        """
        select topic, (unix_micros(time) - :start) div :width, count(*), sum(octet_length(body))
        from fmq_messages group by all
        """,
        start=steps.start_us,
        width=steps.width_us,
    ):
        one = found.setdefault(topic, TopicNumbers(topic, [0] * steps.number, [0] * steps.number))
        one.messages[step] += messages
        one.bytes[step] += size
    numbers.topics_in_all = len(found)
    numbers.topics = _largest(list(found.values()), steps.number)


def _largest(topics: list[TopicNumbers], steps: int) -> list[TopicNumbers]:
    """The topics with most messages, and the others as one."""
    topics.sort(key=lambda topic: (-sum(topic.messages), topic.name))
    shown, others = topics[:TOPICS_SHOWN], topics[TOPICS_SHOWN:]
    if others:
        together = TopicNumbers(
            OTHERS,
            [sum(topic.messages[step] for topic in others) for step in range(steps)],
            [sum(topic.bytes[step] for topic in others) for step in range(steps)],
        )
        shown.append(together)
    return shown


def _count_transactions(spark: SparkSession, numbers: Numbers) -> None:
    # Prepared and decided in one append, so there was no time in between.
    for state, one_phase, count in _rows(
        spark,
        """
        select state, coalesce(state = 'committed' and duration_us = 0, false), count(*)
        from fmq_tx group by all
        """,
    ):
        if one_phase:
            numbers.one_phase = count
        elif state == "committed":
            numbers.committed = count
        elif state == "rolled back":
            numbers.rolled_back = count
        else:
            numbers.undecided_now = count
    rows = _rows(
        spark,
        """
        select tx_id, state, producer, prepared, duration_us, messages, bytes from fmq_tx
        order by bytes desc, messages desc, tx_id limit :limit
        """,
        limit=BIGGEST,
    )
    numbers.biggest = [row.asDict() for row in rows]


def _count_undecided(spark: SparkSession, numbers: Numbers) -> None:
    steps = numbers.steps
    changes = dict(
        _rows(
            spark,
            """
            select (unix_micros(time) - :start) div :width step, sum(change) from (
                select prepared time, 1 change from fmq_tx
                union all select decided, -1 from fmq_tx where decided is not null)
            group by step
            """,
            start=steps.start_us,
            width=steps.width_us,
        )
    )
    waiting = 0
    for step in range(steps.number):
        waiting += changes.get(step, 0)
        numbers.undecided.append(waiting)


def _measure_latency(spark: SparkSession, numbers: Numbers) -> None:
    of_two_phases = "from fmq_tx where state = 'committed' and duration_us > 0"
    numbers.latency = dict(
        _rows(
            spark,
            f"""
            select int(floor(log10(duration_us) * :steps + 1e-9)) step, count(*)
            {of_two_phases} group by step order by step
            """,
            steps=LATENCY_STEPS,
        )
    )
    shares = ", ".join(map(str, QUANTILES.values()))
    [(found,)] = _rows(spark, f"select percentile(duration_us, array({shares})) {of_two_phases}")
    if found is not None:
        numbers.quantiles_us = dict(zip(QUANTILES, found, strict=True))


def latency_us(step: int) -> float:
    """Return where a step of latency begins."""
    edge: float = 10 ** (step / LATENCY_STEPS)
    return edge


def steps_between(steps: Sequence[int]) -> range:
    """All steps from the first that was found to the last."""
    return range(min(steps), max(steps) + 1) if steps else range(0)

"""What Prometheus reads of an engine: the format, the page, the alerts and the dashboard."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.metrics import MetricsPage, exposition
from fmq.metrics.exposition import escaped
from fmq.metrics.numbers import Metric
from fmq.testing import FakeClock

ROOT = Path(__file__).parent.parent.parent
LINE = re.compile(
    r"# (HELP fmq_[a-z_]+ .+|TYPE fmq_[a-z_]+ (gauge|counter|histogram))"
    r'|fmq_[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? [-+.0-9e]+'
)
BESIDE = ("examples/prometheus-alerts.yml", "examples/grafana.json", "docs/metrics.md")


@pytest.fixture
def busy(engine: fmq.Engine) -> fmq.Engine:
    """An engine with an ack, a dead letter, a backlog and an undecided transaction."""
    engine.send_many("orders", [b"one", b"two", b"three"])
    tx = engine.transaction(tx_id="t", producer="shop")
    tx.send("orders", b"four")
    tx.prepare()
    with engine.consumer("orders", group='a "quoted\\" group') as consumer:
        consumer.poll(limit=1)[0].ack()
        consumer.poll(limit=1)[0].reject("no")
    return engine


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def value_of(text: str, sample: str) -> float:
    (found,) = [line for line in text.splitlines() if line.startswith(f"{sample} ")]
    return float(found.rpartition(" ")[2])


def test_each_line_is_of_the_format(busy: fmq.Engine) -> None:
    text = exposition(busy)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert LINE.fullmatch(line), line
    labels = f'{{group="{escaped(chr(97) + " " + chr(34) + "quoted" + chr(92) + chr(34))} group"'
    assert value_of(text, f'fmq_group_unread{labels},topic="orders"}}') == 1
    assert value_of(text, f"fmq_rejected_total{labels}}}") == 1
    assert value_of(text, 'fmq_messages_sent_total{topic="orders"}') == 3
    assert value_of(text, "fmq_undecided_transactions") == 1
    assert value_of(text, "fmq_healthy") == 1


def test_a_group_with_a_limit_says_it(busy: fmq.Engine) -> None:
    busy.create_group("limited", "orders")
    busy.create_group("other", "orders")
    busy.group("limited").limit(concurrency=3, rate=0.5)
    busy.group("other").limit(rate=7)
    text = exposition(busy)
    labels = '{group="limited",topic="orders"}'
    assert value_of(text, f"fmq_group_limit{labels}") == 3
    assert value_of(text, f"fmq_group_limit_per_second{labels}") == 0.5
    limits = [line for line in text.splitlines() if line.startswith("fmq_group_limit{")]
    assert len(limits) == 1


def test_quotes_and_line_breaks_in_a_label_are_escaped() -> None:
    assert escaped('a"\n\\') == 'a\\"\\n\\\\'


def test_the_parser_of_prometheus_reads_the_metrics(busy: fmq.Engine) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {each.name: each for each in parser.text_string_to_metric_families(exposition(busy))}
    (unread,) = families["fmq_group_unread"].samples
    assert unread.labels == {"group": 'a "quoted\\" group', "topic": "orders"}
    assert families["fmq_messages_sent"].type == "counter"
    assert families["fmq_write_seconds"].type == "histogram"


def test_the_buckets_of_a_histogram_only_grow(engine: fmq.Engine, clock: FakeClock) -> None:
    """One hand-over took no time, one 3 s, and one longer than the last bucket."""
    for seconds in (0, 3, 1000):
        engine.send("orders", b"one")
        clock.advance(seconds)
        with engine.consumer("orders", group="mail") as consumer:
            consumer.poll(limit=1)[0].ack()
    buckets = [
        float(line.rpartition(" ")[2])
        for line in exposition(engine).splitlines()
        if line.startswith("fmq_handed_over_seconds_bucket")
    ]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-2], buckets[-1]) == (1, 2, 3)
    text = exposition(engine)
    assert value_of(text, 'fmq_handed_over_seconds_count{group="mail"}') == 3
    assert value_of(text, 'fmq_handed_over_seconds_bucket{group="mail",le="4.294967296"}') == 2


def test_scrapes_that_come_together_share_one_look(tmp_path: Path) -> None:
    clock = FakeClock()
    with fmq.open(tmp_path) as engine, MetricsPage(engine, "127.0.0.1:0", clock) as page:
        engine.send("orders", b"one")
        first = fetched(page.url)[1]
        engine.send("orders", b"two")
        assert fetched(page.url)[1] == first
        clock.advance(1)
        assert value_of(fetched(page.url)[1], 'fmq_messages_sent_total{topic="orders"}') == 2


@pytest.mark.parametrize(("took", "kept"), [(0.01, 1.0), (0.1, 5.0), (3.0, 10.0)])
def test_a_look_that_takes_long_is_shared_for_longer(
    engine: fmq.Engine, took: float, kept: float
) -> None:
    """So scrapes of many groups take a fiftieth of a processor, and no answer is very old."""
    clock, looks = FakeClock(), [0]

    def metrics() -> list[Metric]:
        looks[0] += 1
        clock.advance(took)
        return []

    with MetricsPage(engine, "127.0.0.1:0", clock, metrics) as page:
        fetched(page.url)
        clock.advance(kept - took - 0.001)
        fetched(page.url)
        assert looks == [1]
        clock.advance(max(took, 0.002))
        fetched(page.url)
        assert looks == [2]


def test_a_page_tells_a_closed_engine_from_one_that_works(tmp_path: Path) -> None:
    engine = fmq.open(tmp_path)
    with MetricsPage(engine, "127.0.0.1:0") as page:
        health = page.url.replace("/metrics", "/healthz")
        assert fetched(health) == (200, "ok\n")
        assert fetched(health.replace("healthz", "other"))[0] == 404
        engine.close()
        assert fetched(health)[0] == 503
        assert fetched(page.url)[0] == 503


def test_clients_that_say_nothing_hold_up_no_call(tmp_path: Path) -> None:
    with fmq.open(tmp_path) as engine, MetricsPage(engine, "127.0.0.1:0") as page:
        where = page.url.split("/")[2].split(":")
        idle = [socket.create_connection((where[0], int(where[1]))) for _ in range(12)]
        engine.send("orders", b"one")
        assert page.answer("/metrics")[0] == 200
        for each in idle:
            each.close()


def test_many_scrapers_and_senders_at_once(tmp_path: Path) -> None:
    """Each send is durable, and each scrape is whole."""
    with fmq.open(tmp_path) as engine, MetricsPage(engine, "127.0.0.1:0", FakeClock()) as page:
        failed: list[object] = []

        def scrape() -> None:
            for _ in range(20):
                text = exposition(engine)
                failed.extend(each for each in text.splitlines() if not LINE.fullmatch(each))

        threads = [threading.Thread(target=scrape) for _ in range(2)]
        for each in threads:
            each.start()
        for _ in range(50):
            engine.send("orders", b"one")
        for each in threads:
            each.join()
        assert not failed
        assert engine.queues()[0].next == 50
        assert page.answer("/healthz") == (200, "ok\n")


@pytest.mark.parametrize("where", ["9464", "127.0.0.1", "127.0.0.1:x", ":9464", "127.0.0.1:99999"])
def test_a_wrong_address_of_the_metrics_page_is_refused(engine: fmq.Engine, where: str) -> None:
    with pytest.raises(fmq.BadOption, match=r"like 127\.0\.0\.1:9464"):
        MetricsPage(engine, where)


def test_the_command_serve_serves_the_metrics_page(tmp_path: Path) -> None:
    """`fmq serve --http` says where, answers while a client works, and ends with its process."""
    path = tmp_path / "d"
    run = [sys.executable, "-m", "fmq", "serve", str(path), "--http", "127.0.0.1:0"]
    with subprocess.Popen(run, cwd=ROOT, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        try:
            said = served.stderr.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+/metrics", said)
            assert url is not None, said
            assert f" {path}/SOCKET," in said
            with fmq.connect(path) as client:
                client.send("orders", b"one")
                text = fetched(url[0])[1]
                assert value_of(text, 'fmq_messages_sent_total{topic="orders"}') == 1
                assert value_of(text, "fmq_clients") == 1
        finally:
            served.send_signal(signal.SIGTERM)
            served.stderr.read()
    assert served.returncode == 0


@pytest.mark.parametrize("file", BESIDE)
def test_documents_and_dashboards_name_only_metrics_that_exist(busy: fmq.Engine, file: str) -> None:
    text = (ROOT / file).read_text()
    there = set(re.findall(r"^(fmq_[a-z_]+)", exposition(busy), re.MULTILINE))
    families = set(re.findall(r"^# TYPE (fmq_[a-z_]+)", exposition(busy), re.MULTILINE))
    there |= families
    named = set(re.findall(r"\bfmq_[a-z_]+", text))
    assert named and named <= there, sorted(named - there)
    if file.endswith("json"):
        board: dict[str, Any] = json.loads(text)
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    if file.endswith("md"):
        assert families <= named, sorted(families - named)

"""A relay into a web service of the tests' own, which answers as it is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayTakenOver
from fmq.relay.http_target import HttpTarget
from fmq.testing.relay import CASES, RelayWorld

PAGE = Path(__file__).parent.parent.parent / "docs" / "relay.md"


class Service(ThreadingHTTPServer):
    """It keeps what it takes. `answers` are for the next requests; then it takes all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?a=b"

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.taken]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.server.paths.append(self.path)
        if status in (204, 0):
            self.server.taken.append(({**self.headers}, body))
        if not status:  # it has taken the message, and the answer is lost
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    with Service() as made:
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def service(running: Service) -> Service:
    for each in (running.taken, running.answers, running.paths):
        each.clear()
    return running


def relayed(engine: Engine, service: Service, **more: Any) -> Relay:
    relay = Relay(engine, HttpTarget(engine, service.url, "n"), topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


@pytest.mark.parametrize("case", [*CASES])
def test_the_http_target_loses_nothing_and_keeps_the_order(service: Service, case: str) -> None:
    """What is posted twice has one id. The place is in the directory of the world, so the check of
    all targets, which knows the system alone, is made by hand here.
    """

    class System:
        def target(self) -> HttpTarget:
            return HttpTarget(world.engine, service.url, "n")

        def shown(self) -> list[Any]:
            return []

    world = RelayWorld(System)
    try:
        CASES[case](world)
        world.relay()
        store = world.engine.feedback.store
        sent = [f"{store}/{topic}/{queue}/{offset}" for topic, queue, offset in world.sent]
        assert [*dict.fromkeys(service.ids())] == sent
    finally:
        world.close()


def test_a_post_has_all_that_a_message_has_and_a_signature(
    service: Service, engine: Engine
) -> None:
    with engine.transaction(tx_id="T") as tx:
        said: dict[str, Any] = {"headers": {"host": "ü\n"}, "message_id": "m", "tag": "paid"}
        tx.send("t", b"\0body", key="k", **said)
    target = HttpTarget(engine, service.url, "n", secret=b"known to both")
    with closing(target):
        Relay(engine, target, topics="t", name="n").run(once=True)
    ((headers, body),) = service.taken
    (sent,) = engine.read("t")
    name = f"{engine.feedback.store}/t/0/0"
    assert (body, service.paths) == (b"\0body", ["/hook?a=b"])
    assert (headers["idempotency-key"], headers["webhook-id"]) == (name, name)
    assert json.loads(headers["fmq-message"]) == {
        "topic": "t",
        "queue": 0,
        "offset": 0,
        "time": sent.origin.time_us,  # type: ignore[union-attr]
        "tx": "T",
        "tx-count": 1,
        "key": "k",
        "tag": "paid",
        "message-id": "m",
        "headers": {"host": "ü\n"},
    }
    (example,) = re.findall(
        r"```python\n(import base64\nimport hmac.*?)```", PAGE.read_text(), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["is_ours"](headers, body, b"known to both")
    assert not names["is_ours"](headers, body + b"x", b"known to both")
    assert not names["is_ours"](headers, body, b"of another")
    assert not names["is_ours"]({**headers, "webhook-timestamp": "1"}, body, b"known to both")


@pytest.mark.parametrize("answer", [503, 429, 0])
def test_an_answer_that_asks_for_patience_or_is_lost_is_a_doubt(
    service: Service, engine: Engine, answer: int
) -> None:
    """The messages before it are not posted again."""
    for number in range(4):
        engine.send("t", b"%d" % number)
    service.answers[:] = [204, 204, answer]
    relay = relayed(engine, service)
    assert (relay.stats().doubts, relay.stats().messages, relay.stats().lag) == (1, 4, 0)
    again = [b"2"] if answer == 0 else []
    assert [body for _, body in service.taken] == [b"0", b"1", *again, b"2", b"3"]


def test_a_message_that_the_service_refuses_ends_the_relay_or_is_parked(
    service: Service, engine: Engine
) -> None:
    for number in range(3):
        engine.send("t", b"%d" % number)
    service.answers[:] = [204, 422]
    with pytest.raises(MessageRefused, match=r"offset 1 is refused .* 422"):
        relayed(engine, service)
    service.answers[:] = [204, 422]
    relay = relayed(engine, service, on_refused="park")
    assert [body for _, body in service.taken] == [b"0", b"0", b"2"]
    assert (relay.stats().parked, relay.stats().lag) == (1, 0)
    assert relayed(engine, service).stats().messages == 0


def test_an_older_relay_ends_with_the_batch_that_it_has_in_hand(
    service: Service, engine: Engine
) -> None:
    engine.send("t", b"x")
    old, new = (HttpTarget(engine, service.url, "n") for _ in range(2))

    class Late(HttpTarget):
        def _post(self, *what: Any) -> None:
            super()._post(*what)
            new.claim()

    late = Late(engine, service.url, "n")
    with pytest.raises(RelayTakenOver, match="sends the last batch of this one again"):
        Relay(engine, late, topics="t", name="n").run(once=True)
    assert old.status() is None
    for each in (old, new, late):
        each.close()


def test_a_topic_that_was_made_again_is_posted_from_its_start(
    service: Service, engine: Engine
) -> None:
    """Its messages have ids that were posted before."""
    target = HttpTarget(engine, service.url, "n")
    with closing(target):
        for body in (b"1", b"2"):
            engine.send("t", body)
            Relay(engine, target, topics="t", name="n").run(once=True)
            place = target.status()
            assert place is not None
            assert (place.topic, place.offset) == ("t", 0)
            engine.topic("t").delete()
        place = target.status()
        assert place is not None
        assert place.topic.startswith("deleted-")
    assert [body for _, body in service.taken] == [b"1", b"2"]


def test_an_address_without_a_host_is_refused(engine: Engine) -> None:
    with pytest.raises(fmq.BadOption, match="a web service is at"):
        HttpTarget(engine, "ftp://here")


def test_a_message_that_the_service_fails_at_too_often_is_parked(
    service: Service, engine: Engine
) -> None:
    """So that it does not hold up all behind it. The count begins again with each message."""
    for number in range(3):
        engine.send("t", b"%d" % number)
    service.answers += [500, 204, 500, 503, 429, 500]  # the third one is taken after one failure
    target = HttpTarget(engine, service.url, "n", tries=3)
    relay = Relay(engine, target, topics="t", name="n", on_refused="park")
    with closing(relay):
        relay.run(once=True)
    assert [body for _, body in service.taken] == [b"0", b"2"]
    (letter,) = engine.dead_letters("relay-n").list()
    assert (letter.offset, "after 3 tries" in letter.reason) == (1, True)


def test_a_cloud_event_has_the_headers_of_the_http_binding(
    service: Service, engine: Engine
) -> None:
    engine.send("t", b"x", key="ä %", tag="paid")
    target = HttpTarget(engine, service.url, "n", cloudevents=True)
    with closing(target):
        Relay(engine, target, topics="t", name="n").run(once=True)
    ((headers, _),) = service.taken
    assert headers["ce-id"] == headers["webhook-id"]
    assert (headers["ce-type"], headers["ce-subject"]) == ("paid", "%C3%A4%20%25")

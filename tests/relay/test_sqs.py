"""A relay into FIFO queues of SQS. The server is moto's. Before it stands one of the tests' own,
which loses answers, and answers that one message of a request was not taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from shutil import copytree
from threading import Thread
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayError, RelayTakenOver
from fmq.relay.addresses import target_at
from fmq.testing import CrashDisk
from fmq.testing.relay import CASES, RelayWorld

pytest.importorskip("boto3", reason="no client of SQS on this machine")
pytest.importorskip("moto.server", reason="no moto on this machine")

import boto3
from moto.server import ThreadedMotoServer

from fmq.relay.sqs_target import SqsTarget, create_queues
from tests.cli.command import fmq_json
from tests.relay.systems import places_of

NUMBERS = count()
PAGE = Path(__file__).parent.parent.parent / "docs" / "relay.md"


class Front(ThreadingHTTPServer):
    """It hands requests on. `troubles` are for the next requests with messages."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = host, port
        self.troubles: list[str] = []
        self.requests: list[list[Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    server: Front

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        trouble, failed = "", []
        if self.headers["x-amz-target"] == "AmazonSQS.SendMessageBatch":
            asked = json.loads(body)
            self.server.requests.append([each["MessageBody"] for each in asked["Entries"]])
            trouble = self.server.troubles.pop(0) if self.server.troubles else ""
            if trouble.startswith("fails "):
                _, number, code = trouble.split()
                entry = asked["Entries"].pop(int(number))
                failed = [{"Id": entry["Id"], "Code": code, "Message": "-", "SenderFault": False}]
                body = json.dumps(asked).encode()
        status, answer = 500, b"{}"
        if trouble != "is down":
            connection = HTTPConnection(*self.server.behind)
            headers = {**self.headers, "content-length": str(len(body))}
            connection.request("POST", self.path, body, {**headers, "connection": "close"})
            answered = connection.getresponse()
            status, answer = answered.status, answered.read()
            connection.close()
        if failed:
            answer = json.dumps(json.loads(answer) | {"Failed": failed}).encode()
        if trouble == "loses the answer":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture(scope="module")
def running() -> Iterator[Front]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with Front(*server.get_host_and_port()) as made:
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()
    server.stop()


@pytest.fixture
def front(running: Front, monkeypatch: pytest.MonkeyPatch) -> Front:
    monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    running.troubles.clear()
    running.requests.clear()
    return running


@pytest.fixture
def address(front: Front) -> str:
    """Of the queue of the topic `t`, which is there and is empty."""
    made = f"sqs://eu-west-1/{next(NUMBERS)}-"
    create_queues(made, ["t"])
    return made


@pytest.fixture
def large_engine() -> Iterator[Engine]:
    """An engine that takes messages of megabytes."""
    with fmq.open("data", disk=CrashDisk()) as made:
        yield made


def taken(queue: str) -> list[Any]:
    """Return all messages of a queue, in the order in which a reader gets them."""
    found: list[Any] = []
    client = boto3.client("sqs", region_name="eu-west-1")
    with closing(client):
        url = client.get_queue_url(QueueName=queue)["QueueUrl"]
        asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        while got := client.receive_message(**asked, AttributeNames=["All"]).get("Messages"):
            found += got
            gone = [
                {"Id": each["MessageId"], "ReceiptHandle": each["ReceiptHandle"]} for each in got
            ]
            client.delete_message_batch(QueueUrl=url, Entries=gone)
    return found


def bodies(address: str) -> list[str]:
    return [each["Body"] for each in taken(f"{address.rpartition('/')[2]}t.fifo")]


def said(message: Any) -> dict[str, str]:
    attributes = message.get("MessageAttributes", {})
    return {name: each["StringValue"] for name, each in attributes.items()}


def relayed(engine: Engine, target: SqsTarget, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


@pytest.mark.parametrize("case", [*CASES])
def test_the_sqs_target_shows_each_message_once_and_in_order(front: Front, case: str) -> None:
    """Though it is at least once: SQS drops what comes again within five minutes. The place is in
    the directory of the world, so the check is made by hand, as for a web service.
    """
    address = f"sqs://eu-west-1/{next(NUMBERS)}-"
    create_queues(address, ["a", "b"])

    class System:
        def target(self) -> SqsTarget:
            return SqsTarget(world.engine, address, "n")

        def shown(self) -> list[Any]:
            return []

    world = RelayWorld(System)
    try:
        CASES[case](world)
        world.relay()
        prefix = address.rpartition("/")[2]
        got = [said(each)["fmq-id"] for name in "ab" for each in taken(f"{prefix}{name}.fifo")]
        assert places_of(got) == sorted(world.sent)
    finally:
        world.close()


def test_a_message_of_sqs_has_all_that_it_has_here(address: str, engine: Engine) -> None:
    with engine.transaction(tx_id="T") as tx:
        headers = {"a": "ü", "fmq-encoding": "of mine"}
        tx.send("t", "grün".encode(), key="k", tag="paid", headers=headers, message_id="m")
    relayed(engine, SqsTarget(engine, address, "n"))
    (message,) = taken(f"{address.rpartition('/')[2]}t.fifo")
    (sent,) = engine.read("t")
    assert sent.origin is not None
    assert message["Body"] == "grün"
    assert message["Attributes"]["MessageGroupId"] == "t/0"
    attributes = said(message)
    assert json.loads(attributes.pop("fmq-headers")) == headers
    assert attributes == {
        "fmq-id": f"{engine.feedback.store}/t/0/0",
        "fmq-time": str(sent.origin.time_us),
        "fmq-key": "k",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "fmq-tx": "T",
        "fmq-tx-count": "1",
    }


def test_what_sqs_cannot_have_as_text_is_encoded(address: str, engine: Engine) -> None:
    """And a key that is no text for it stands beside the headers."""
    (example,) = re.findall(
        r"```python\n(import base64\nfrom typing.*?)```", PAGE.read_text(), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(example, names)
    sent = [b"", b"\xff", b"a\0", b"empty", b"plain\r\n"]
    for body in sent:
        engine.send("t", body, key="\1")
    relayed(engine, SqsTarget(engine, address, "n"))
    found = taken(f"{address.rpartition('/')[2]}t.fifo")
    assert [names["body_of"](each) for each in found] == sent
    assert [said(each).get("fmq-encoding") for each in found] == [
        *("empty", "base64", "base64", None, None)
    ]
    assert all(json.loads(said(each)["fmq-headers"]) == {"fmq-key": "\1"} for each in found)


def test_an_answer_that_is_lost_is_repeated_and_sqs_drops_the_repeat(
    front: Front, address: str, engine: Engine
) -> None:
    for number in range(25):
        engine.send("t", b"%d" % number)
    front.troubles[:] = ["", "loses the answer"]
    stats = relayed(engine, SqsTarget(engine, address, "n")).stats()
    wanted = [str(number) for number in range(25)]
    assert (stats.doubts, stats.messages, stats.lag) == (1, 25, 0)
    assert front.requests == [wanted[:10], wanted[10:20], wanted[10:20], wanted[20:]]
    assert bodies(address) == wanted


def test_a_message_that_sqs_did_not_take_is_a_doubt_and_comes_again(
    front: Front, address: str, engine: Engine
) -> None:
    """Behind those of its request, which SQS took."""
    for number in range(4):
        engine.send("t", b"%d" % number)
    front.troubles[:] = ["fails 1 InternalError", "is down"]
    stats = relayed(engine, SqsTarget(engine, address, "n")).stats()
    assert (stats.doubts, stats.lag) == (2, 0)
    assert front.requests == [["0", "1", "2", "3"], ["1"], ["1"]]
    assert bodies(address) == ["0", "2", "3", "1"]


def test_a_message_that_sqs_refuses_ends_the_relay_or_is_parked(
    front: Front, address: str, large_engine: Engine
) -> None:
    """One that is too large, and one that is named in the answer."""
    engine = large_engine
    large = "x" * ((1 << 20) + 1)
    for body in ("0", large, "2", "3"):
        engine.send("t", body.encode())
    with pytest.raises(MessageRefused, match=r"offset 1 is refused .* cannot be longer"):
        relayed(engine, SqsTarget(engine, address, "n"))
    front.requests.clear()
    front.troubles[:] = ["", "", "fails 1 InvalidMessageContents"]
    stats = relayed(engine, SqsTarget(engine, address, "n"), on_refused="park").stats()
    assert (stats.parked, stats.lag) == (2, 0)
    assert bodies(address) == ["0", "2"]
    letters = engine.dead_letters("relay-n").list()
    assert [each.offset for each in letters] == [1, 3]


def test_a_queue_that_takes_less_refuses_the_one_that_is_too_large(
    address: str, engine: Engine
) -> None:
    """Though SQS refuses the whole request."""
    queue = f"{address.rpartition('/')[2]}t.fifo"
    client = boto3.client("sqs", region_name="eu-west-1")
    with closing(client):
        url = client.get_queue_url(QueueName=queue)["QueueUrl"]
        client.set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": "1024"})
    for body in (b"0", b"x" * 1025, b"2"):
        engine.send("t", body)
    with pytest.raises(MessageRefused, match="offset 1 is refused"):
        relayed(engine, SqsTarget(engine, address, "n"))
    relayed(engine, SqsTarget(engine, address, "n"), on_refused="park")
    assert bodies(address) == ["0", "2"]


def test_a_request_has_ten_messages_and_256_kib_at_most(
    front: Front, address: str, large_engine: Engine
) -> None:
    engine = large_engine
    for size in (200 << 10, 50 << 10, 10 << 10, 300 << 10, *[1] * 11):
        engine.send("t", b"x" * size)
    relayed(engine, SqsTarget(engine, address, "n"))
    assert [len(each) for each in front.requests] == [2, 1, 1, 10, 1]


def test_a_topic_that_was_made_again_is_sent_from_its_start(address: str, engine: Engine) -> None:
    """Its messages have ids that were sent before, and SQS does not take them for repeats."""
    for body in (b"1", b"2"):
        engine.send("t", body)
        relayed(engine, SqsTarget(engine, address, "n"))
        engine.topic("t").delete()
    found = taken(f"{address.rpartition('/')[2]}t.fifo")
    assert [each["Body"] for each in found] == ["1", "2"]
    assert len({said(each)["fmq-id"] for each in found}) == 1


def test_a_restored_directory_sends_what_it_has_gone_on_with(address: str, tmp_path: Path) -> None:
    """Of two messages that have one id and one position, SQS drops none."""
    for name, body in (("first", b"1"), ("first", b"2"), ("restored", b"3")):
        with fmq.open(tmp_path / name) as engine:
            engine.send("t", body)
            relayed(engine, SqsTarget(engine, address, "n"))
        if body == b"1":
            copytree(tmp_path / "first", tmp_path / "restored")
    assert bodies(address) == ["1", "2", "3"]


def test_one_queue_may_have_all_topics_and_groups_may_be_keys(front: Front, engine: Engine) -> None:
    address = f"sqs://eu-west-1/all{next(NUMBERS)}.fifo"
    keys = ["k", None, "two words", "k" * 129]
    for topic in ("a", "b"):
        engine.send_many(topic, [fmq.Message(b"x", key) for key in keys])
    how: Any = {"engine": engine, "create": True, "by_key": True}
    target = target_at(address, "n", {"a": 1, "b": 1}, **how)
    with closing(Relay(engine, target, topics=["a", "b"], name="n")) as relay:
        relay.run(once=True)
    again = target_at(address, "n", {"a": 1}, **how)  # the queue is there, and stays
    again.close()
    found = taken(address.rpartition("/")[2])
    groups = [each["Attributes"]["MessageGroupId"] for each in found]
    assert len(found) == 8
    assert groups[:2] == ["k", "a/0"]
    assert groups[4:6] == ["k", "b/0"]
    assert groups[2:4] == groups[6:]
    assert all(len(each) <= 128 and " " not in each for each in groups)


def test_an_older_relay_ends_with_the_batch_that_it_has_in_hand(
    address: str, engine: Engine
) -> None:
    engine.send("t", b"x")
    new = SqsTarget(engine, address, "n")

    class Late(SqsTarget):
        def _send(self, *what: Any) -> None:
            super()._send(*what)
            new.claim()

    with pytest.raises(RelayTakenOver, match="sends the last batch of this one again"):
        relayed(engine, Late(engine, address, "n"))
    relayed(engine, new)
    assert bodies(address) == ["x"]


def test_a_queue_that_is_missing_is_named_and_nothing_is_lost(front: Front, engine: Engine) -> None:
    engine.send("t", b"x")
    address = f"sqs://eu-west-1/{next(NUMBERS)}-"
    with pytest.raises(RelayError, match=r"SQS has no queue '\d+-t.fifo'"):
        relayed(engine, SqsTarget(engine, address, "n"))
    create_queues(address, ["t"], DeduplicationScope="messageGroup")
    relayed(engine, SqsTarget(engine, address, "n"))
    assert bodies(address) == ["x"]


def test_the_command_copies_and_says_that_a_message_may_come_twice(
    front: Front, tmp_path: Path
) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("t", b"x")
    address = f"sqs://eu-west-1/{next(NUMBERS)}-"
    asked = ("relay", tmp_path / "shop", "--to", address, "--topics", "t", "--once", "--create")
    done = fmq_json(*asked)
    assert (done.code, done.of("relay")[0]["messages"]) == (0, 1)
    assert "gets messages again after a crash" in done.error
    assert bodies(address) == ["x"]
    (row,) = fmq_json("relay-status", tmp_path / "shop", "--to", address).of("relayed")
    assert (row["topic"], row["copied"], row["lag"]) == ("t", 1, 0)


def test_a_name_that_sqs_does_not_take_ends_the_relay(front: Front, engine: Engine) -> None:
    """It parks nothing."""
    engine.send("t", b"x")
    names: Any = {"names": {"t": "a b"}}
    with pytest.raises(RelayError, match="alphanumeric"):
        target_at("sqs://eu-west-1", "n", {"t": 1}, engine=engine, create=True, **names)
    with pytest.raises(RelayError, match=r"SQS has no queue 'a b.fifo'"):
        relayed(engine, SqsTarget(engine, "sqs://eu-west-1", "n", **names), on_refused="park")
    assert engine.dead_letters("relay-n").list() == []


def test_what_cannot_be_a_target_is_refused(engine: Engine) -> None:
    for address in ("sqs://", "sqs:///t.fifo", "sqs://eu-west-1/a/b"):
        with pytest.raises(fmq.BadOption, match="SQS is at sqs://REGION"):
            SqsTarget(engine, address)
    with pytest.raises(fmq.BadOption, match="no CloudEvents for SQS"):
        SqsTarget(engine, "sqs://eu-west-1", cloudevents=True)
    with pytest.raises(fmq.BadOption, match="needs the engine"):
        target_at("sqs://eu-west-1", "n", {})

"""What the command shows of a topic with a stored codec: its fields, and raw bodies still."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.dash import router
from tests import warm
from tests.cli.command import ENVIRONMENT, fmq_json, fmq_process, fmq_table
from tests.dash.dash_system import TOKEN, Reader


@dataclass
class Order:
    id: int
    customer: str
    note: str | None = None


ANN = Order(1, "ann\x1b[31m")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fmq.open(tmp_path / "shop", background=False) as engine:
        orders = engine.topic("orders", codec=fmq.codecs.dataclass(Order))
        orders.send(ANN, key="a")
        engine.send_many("orders", [b"\xff", b'{"id":3,"more":1}', b'{"id":NaN}'])
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll():
                delivery.reject("no such customer")
    return tmp_path / "shop"


@pytest.mark.parametrize("is_live", [False, True])
def test_a_message_of_a_codec_has_its_value_beside_its_body(path: Path, *, is_live: bool) -> None:
    """In the lines of JSON, which programs read. A body that is no JSON has none."""
    engine = fmq.open(path) if is_live else None
    if engine is not None:
        engine.serve()
    first, broken, more, odd = fmq_json("read", path, "orders").lines
    assert (first["value"], json.loads(first["body"])) == (asdict(ANN), asdict(ANN))
    assert "value" not in broken and "body_base64" in broken
    assert (more["value"], "value" in odd) == ({"id": 3, "more": 1}, False)
    assert fmq_json("find", path, "orders", "a").lines[0]["value"] == asdict(ANN)
    assert fmq_json("dead", "show", path, "billing", "0").lines[0]["value"] == asdict(ANN)
    whole = fmq_json("read", path, "orders", "--whole").lines
    assert whole[0]["value"] == asdict(ANN)
    if engine is not None:
        engine.close()


def test_fields_are_columns_of_the_table(path: Path) -> None:
    """A body that they do not show in full follows."""
    header, *lines = fmq_table("read", path, "orders").splitlines()
    assert header.split()[-4:] == [".id", ".customer", ".note", "body"]
    text = "\n".join(lines)
    assert "ann\\x1b[31m" in text and "0xff" in text and '"more"' in text
    assert '"customer"' not in text
    assert ".customer" in fmq_table("find", path, "orders", "a")
    assert '"customer": ' in fmq_table("read", path, "orders", "--whole")


def test_a_transaction_that_waits_shows_values(path: Path) -> None:
    """Also the pages, once bodies are asked for."""
    with fmq.open(path) as engine, engine.serve():
        tx = engine.transaction(tx_id="T")
        tx.send("orders", b'{"id": 7, "customer": "bob"}')
        tx.send("orders", b"\xff")
        tx.send("plain", b'{"id": 8}')
        tx.prepare()
        first, broken, other = fmq_json("tx", "show", path, "T").of("message")
        assert first["value"] == {"id": 7, "customer": "bob"}
        assert "value" not in broken and "value" not in other
        assert "id: 7, customer: bob" in fmq_table("tx", "show", path, "T")
        reader = Reader(router(engine, TOKEN, directory=str(path))).enter()
        shown = reader.get("tx?id=T&bodies=1")
        assert "customer bob" in shown.text and '"id": 8' in shown.text
        assert "bob" not in reader.get("tx?id=T").text
        assert "customer ann" in reader.get("message?topic=orders&queue=0&offset=0").text


def test_raw_bodies_stay_as_they_were_sent(path: Path) -> None:
    raw = warm.run_bytes(["-m", "fmq", "read", path, "orders", "--raw"], env=ENVIRONMENT).stdout
    with fmq.open(path, read_only=True) as reader:
        assert raw == b"".join(each.body + b"\n" for each in reader.read("orders"))


def test_messages_with_values_are_copied_by_a_pipe(path: Path) -> None:
    read = fmq_process("read", path, "orders", "--key", "a").stdout
    command = ["-m", "fmq", "send", path, "copy", "--json-lines"]
    warm.run_bytes(command, input=read.encode(), env=ENVIRONMENT)
    (copied,) = fmq_json("read", path, "copy").lines
    assert (json.loads(copied["body"]), "value" in copied) == (asdict(ANN), False)


def test_a_type_with_many_fields_is_shown_as_a_body(path: Path) -> None:
    class Wide:
        name = "json"

        @property
        def schema(self) -> dict[str, Any]:
            return {"properties": {f"f{number}": {"type": "integer"} for number in range(20)}}

        def encode(self, value: int) -> bytes:
            return json.dumps({"f1": value}).encode()

        def decode(self, body: bytes) -> int:
            return int(json.loads(body)["f1"])

    with fmq.open(path, background=False) as engine:
        engine.topic("wide", codec=Wide()).send(7)
    assert '{"f1": 7}' in fmq_table("read", path, "wide")
    assert fmq_json("read", path, "wide").lines[0]["value"] == {"f1": 7}


def test_topics_say_their_codec(path: Path) -> None:
    with fmq.open(path, background=False) as engine:
        engine.send("plain", b"x")
        engine.topic("bare", codec=fmq.codecs.json(version=3))
    said = {row["topic"]: row["codec"] for row in fmq_json("topics", path).of("topic")}
    fields = {"id": "integer", "customer": "string", "note": "null|string"}
    assert said["orders"] == {"name": "json", "version": 1, "fields": fields}
    assert said["bare"] == {"name": "json", "version": 3, "fields": None}
    assert said["plain"] is None
    shown = fmq_table("topics", path)
    assert "json 1: id" in shown and "json 3" in shown

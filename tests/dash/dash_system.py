"""The system that the pages are about, and a reader of them without a browser.

A group hangs, one is slow, one has no members, three transactions are undecided, and names, keys,
bodies and reasons are markup wherever the journal takes it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import fmq
from fmq.dash import DashApp, router
from tests.cli.command import fmq_json

TOKEN = "a token of a test"
EVIL = '<script>window.broken = 1</script><img src=x onerror="window.broken = 1">'
OUT = '"><script>window.broken = 1</script>'
LONG = 3600.0
"""No lease ends in a test, and no member is silent for too long, however busy the machine is."""
PATIENCE = 1e-6
"""Nothing waits in these tests, so a moment is long."""


@contextmanager
def hanging_system(path: Path) -> Iterator[fmq.Engine]:
    """Yield the engine, which serves."""
    with fmq.open(path, fmq.Options(member_timeout_seconds=LONG)) as engine:
        engine.send_many(
            "orders", [fmq.Message(EVIL.encode(), key=OUT, tag="t", headers={OUT: EVIL})] * 5
        )
        engine.send("later", b"soon", delay=3600)
        engine.send(OUT, b"a topic whose name is markup")
        engine.create_group("archive", "orders")
        for number in range(3):
            tx = engine.transaction(tx_id=f"order-{number}", producer="checkout")
            tx.send("orders", EVIL.encode())
            tx.prepare()
        with engine.transaction(tx_id="paid", producer="checkout") as tx:
            tx.send("orders", b'{"paid": true}')
        with (
            engine.consumer("orders", group="mail", member="m1", lease_seconds=LONG) as mail,
            engine.consumer(
                "orders", group="packing", member="p1", ordered=True, lease_seconds=LONG
            ) as packing,
            engine.consumer("orders", group="report", member="r1", lease_seconds=LONG) as report,
            engine.consumer(OUT, group=OUT, member=OUT, lease_seconds=LONG) as evil,
        ):
            for delivery in mail.poll():
                delivery.reject(EVIL) if delivery.offset == 2 else delivery.ack()
            held = packing.poll(limit=1), evil.poll()
            report.poll(limit=1)[0].ack()
            engine.topic(OUT).pause(reason=EVIL, by=OUT)
            with engine.serve():
                yield engine
            del held


def written(engine: fmq.Engine) -> list[int]:
    """Return the positions of all records but notes of attempts, which come by themselves."""
    engine.sync()
    rows = fmq_json("records", engine.path).of("record")
    return [row["position"] for row in rows if row["kind"] != "TRIED"]


def pages_of(path: str, engine: fmq.WritingEngine, **named: Any) -> DashApp:
    """Return the pages about a directory of this machine."""
    return router(engine, TOKEN, directory=path, patience=PATIENCE, **named)


@dataclass
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def text(self) -> str:
        """What a reader sees of a page."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.body)).split())

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [unescape(each) for each in re.findall(r'<a href="([^"]*)"', self.body)]


@dataclass
class Reader:
    """Asks an application as a browser does, and keeps its cookie."""

    app: Any
    root: str = ""
    host: str = "127.0.0.1:8787"
    cookie: str = ""
    events: list[str] = field(default_factory=list)

    def enter(self) -> Reader:
        assert self.get(f"enter?token={TOKEN.replace(' ', '+')}").status == 303
        return self

    def get(self, page: str, **named: Any) -> Got:
        return asyncio.run(self.ask("GET", page, **named))

    def post(self, page: str, form: str) -> Got:
        return asyncio.run(self.ask("POST", page, form))

    async def ask(
        self, method: str, page: str, form: str = "", leaves_after: int | None = None
    ) -> Got:
        path, _, query = page.partition("?")
        path = "" if path == "." else f"/{path.removeprefix('./')}"
        headers = {"host": self.host, "cookie": f'other={{"a";b; {self.cookie}; last=1'}
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": f"{self.root}{path}",
            "root_path": self.root,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "server": ("127.0.0.1", 8787),
        }
        sent: list[Any] = []
        enough = asyncio.Event()
        asked = iter([{"type": "http.request", "body": form.encode()}])

        async def receive() -> Any:
            if (message := next(asked, None)) is not None:
                return message
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if leaves_after is not None and len(sent) > leaves_after:
                enough.set()

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].partition(";")[0]
        body = b"".join(each["body"] for each in sent[1:])
        return Got(sent[0]["status"], found, body.decode())

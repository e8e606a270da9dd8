"""A client on a loop over TLS, large frames, and in the child of a fork."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import fmq
import fmq.aio
from tests.machine import NEEDS_LOCALHOST
from tests.remote.test_network import CERTIFICATE, KEY, port_of, token_in


@NEEDS_LOCALHOST
def test_a_loop_is_served_over_tls(tmp_path: Path) -> None:
    token = token_in(tmp_path / "token")

    async def story(where: str) -> None:
        async with fmq.aio.connect(where, token_file=token, tls_ca=CERTIFICATE) as engine:
            await asyncio.gather(*[engine.send("t", b"x" * 100_000) for _ in range(40)])
            async with engine.consumer("t", group="g") as consumer:
                got = 0
                while got < 40:
                    for delivery in await consumer.poll(limit=100, timeout=60):
                        got += len(delivery.body) == 100_000
                        await delivery.ack()

    named: dict[str, Any] = {"token_file": token, "tls_cert": CERTIFICATE, "tls_key": KEY}
    with fmq.open(tmp_path / "d") as engine, engine.serve(tcp="localhost:0", **named) as serving:
        asyncio.run(story(f"tcp://localhost:{port_of(serving)}"))


def test_a_message_larger_than_the_socket_buffer_does_not_block_the_loop(tmp_path: Path) -> None:
    async def story() -> None:
        async with fmq.aio.connect(tmp_path / "d", start=False) as engine:
            await engine.send("t", b"")
            sends = [engine.send("t", b"x" * (1 << 20)) for _ in range(24)]
            receipts = await asyncio.gather(*sends)
            assert [each.offset for each in receipts] == list(range(1, 25))

    with fmq.open(tmp_path / "d") as engine:
        engine.serve()
        asyncio.run(story())


def test_a_forked_child_is_a_new_client(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d") as engine:
        engine.serve()
        face = fmq.aio.connect(engine.path, lazy=True, start=False)
        asyncio.run(face.send("t", b"parent"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(face.send("t", b"child"))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        asyncio.run(face.send("t", b"parent again"))
        assert [each.body for each in engine.read("t")] == [b"parent", b"child", b"parent again"]
        asyncio.run(face.close())

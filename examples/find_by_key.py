"""What has happened to one order: its messages are found by their key, the newest first.

Run it with a directory: `python examples/find_by_key.py /tmp/shop`.
"""

from __future__ import annotations

import sys
import tempfile

import fmq

OPTIONS = fmq.Options(segment_bytes=64 * 1024)  # small, so that there are several segments


def main(path: str) -> None:
    with fmq.open(path, OPTIONS) as engine:
        for order in range(1000):
            for state in ("paid", "packed", "sent"):
                engine.send("orders", f"{state} {order}".encode(), key=f"order {order}", sync=False)
        engine.sync()
    # Also behind full segments and after a restart; only what may have the key is read.
    with fmq.open(path, OPTIONS) as engine:
        for message in engine.find("orders", key="order 7"):
            print(message.offset, bytes(message.body).decode())
        (newest,) = engine.find("orders", key="order 999", limit=1)
        assert newest.body == b"sent 999"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/shop")

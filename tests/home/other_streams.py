"""Streams of NATS that somebody else than fmq has made for a home."""

from __future__ import annotations

from typing import Any

from fmq.home.home_addresses import objects_at
from tools.home_servers import HomeServer


def home_in_stream(server: HomeServer, name: str, **chosen: object) -> str:
    """Return the address of a home whose stream has these settings, besides those it needs."""
    home = server.home(name)
    objects: Any = objects_at(home)
    stream = objects._stream
    objects._run(objects._asked("STREAM.DELETE"))
    needed = {"name": stream, "subjects": [f"{stream}.>"], "max_msgs_per_subject": 1}
    assert "error" not in objects._run(objects._asked("STREAM.CREATE", **needed, **chosen))
    objects.close()
    return home

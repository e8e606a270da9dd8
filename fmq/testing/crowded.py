"""Serves an engine on its directory's socket, with room for few connections."""

from __future__ import annotations

from functools import partial

from fmq.engines.engine import Engine
from fmq.server.doors import Reach
from fmq.server.host import Host
from fmq.server.server_handle import Serving
from fmq.wire.processes import absolute

INCARNATION = b"crowded!"


def serve_few(engine: Engine, connections_max: int) -> Serving:
    """Serve `engine` as `engine.serve()` does, to at most `connections_max` connections at once."""
    make = partial(Host, engine._door, incarnation=INCARNATION)
    return Serving(absolute(engine.path), make, Reach(connections_max=connections_max))

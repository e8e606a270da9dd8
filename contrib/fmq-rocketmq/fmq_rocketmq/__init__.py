"""fmq-rocketmq: clients of RocketMQ 5, unmodified, send to and take from an fmq engine.

    import fmq, fmq_rocketmq

    with fmq.open("shop") as engine, fmq_rocketmq.serve(engine, "127.0.0.1:8081"):
        ...  # programs in Java, Go, Node or Python use 127.0.0.1:8081 as their endpoint

docs/rocketmq.md has the names of both beside each other, and what is not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmq_rocketmq.server import Server, serve

__all__ = ["Server", "serve"]


def __getattr__(name: str) -> Any:
    """Import the server when it is first asked for. pytest imports this package in each run, and
    grpc is slow to import, or missing.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fmq_rocketmq import server

    return getattr(server, name)

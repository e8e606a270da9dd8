"""fmq-rocketmq: clients of RocketMQ 5, unmodified, send to and take from an fmq engine.

    import fmq, fmq_rocketmq

    with fmq.open("shop") as engine, fmq_rocketmq.serve(engine, "127.0.0.1:8081"):
        ...  # programs in Java, Go, Node or Python use 127.0.0.1:8081 as their endpoint

docs/rocketmq.md has the names of both beside each other, and what is not served.
"""

from fmq_rocketmq.server import Server, serve

__all__ = ["Server", "serve"]

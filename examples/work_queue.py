"""Workers handle jobs in threads: flaky ones are tried again, hopeless ones become dead letters."""

import logging
import tempfile
from threading import Timer

import fmq

with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/shop") as engine:
    logging.getLogger("fmq.consumers").disabled = True  # it tells of each attempt that fails
    engine.send_many("jobs", [b"resize 1", b"flaky 2", b"hopeless 3", b"resize 4"])

    def handle(delivery: fmq.Delivery) -> None:
        name = delivery.body.decode()
        if name.startswith("hopeless") or (name.startswith("flaky") and delivery.attempt == 1):
            raise RuntimeError(f"{name} has failed")
        print(f"{name}: done in attempt {delivery.attempt}")

    retry = fmq.Retry(3, backoff=[0.05, 0.1], jitter=0.2)
    with engine.consumer("jobs", group="workers", retry=retry) as consumer:
        Timer(1.0, consumer.drain).start()  # a real worker runs until SIGTERM
        consumer.run(handle, workers=2)

    for dead in engine.dead_letters("workers").list():
        print(f"{dead.body.decode()}: given up after {dead.attempts} attempts, {dead.reason}")

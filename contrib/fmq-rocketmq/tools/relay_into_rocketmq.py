"""Relay a topic into a real RocketMQ, kill the relay again and again, and read what has arrived
with the own client of RocketMQ.

    python contrib/fmq-rocketmq/tools/relay_into_rocketmq.py --messages 2000 --kills 10 --seed 1

The target is at least once: a message may come again, and has the same `fmq-id` then. None may be
missing. Where RocketMQ is not to be had, the
command says so, and its exit code is 0.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from real_rocketmq import VERSION, NotToBeHad, RealRocketMQ, bring, go_inside
from served import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "contrib" / "fmq-rocketmq")]
import fmq
from fmq.relay import Relay
from fmq_rocketmq.relay_target import RocketMQTarget

TOPIC = "relayed"
QUIET_SECONDS = 8.0  # without a message, all have come


def relay(directory: Path, address: str, *, once: bool = False) -> subprocess.Popen[bytes]:
    """Start a relay, in a process of its own."""
    words = [sys.executable, __file__, "--relay", address, str(directory), *["--once"] * once]
    return subprocess.Popen(words)


def run_relay(directory: str, address: str, *, once: bool) -> None:
    """Relay until all is there, or until this process is killed."""
    with fmq.connect(directory) as engine:
        target = RocketMQTarget(engine, f"rocketmq://{address}")
        Relay(engine, target, topics=TOPIC, batch=20).run(once=once)


def received(address: str, count: int) -> list[tuple[str, bytes]]:
    """Return the id and the body of each message that RocketMQ's client is given."""
    from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer

    consumer = SimpleConsumer(
        ClientConfiguration(address, Credentials()), "readers", {TOPIC: FilterExpression()}, 6
    )
    consumer.startup()
    found: list[tuple[str, bytes]] = []
    last = time.monotonic()
    while len({each for each, _ in found}) < count or time.monotonic() - last < QUIET_SECONDS:
        if time.monotonic() - last > 4 * QUIET_SECONDS:
            break
        try:
            messages = consumer.receive(32, 60) or []
        except Exception:  # the server does not know the consumer yet
            time.sleep(0.2)
            continue
        for message in messages:
            found.append((message.properties["fmq-id"], bytes(message.body)))
            consumer.ack(message)
            last = time.monotonic()
    consumer.shutdown()
    return found


def main() -> int:
    """Return 1 if a message is missing or changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("directory", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--relay", help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    if args.relay:
        run_relay(args.directory, args.relay, once=args.once)
        return 0
    rng = random.Random(args.seed)
    try:
        bring()
        go_inside()
        with tempfile.TemporaryDirectory() as place:
            path = Path(place)
            with fmq.open(path / "outbox", background=False) as engine:
                for number in range(args.messages):
                    engine.send(TOPIC, b"%d" % number)
                store = engine.feedback.store
            real = RealRocketMQ(path / "rocketmq", {TOPIC: "NORMAL"}, ())
            try:
                real.start()
                for _ in range(args.kills):
                    running = relay(path / "outbox", real.address)
                    time.sleep(1.0 + rng.random())  # it has begun, and is not done
                    running.kill()
                    running.wait()
                ended = relay(path / "outbox", real.address, once=True).wait()
                subprocess.run([sys.executable, "-m", "fmq", "stop", path / "outbox"], check=True)
                found = received(real.address, args.messages)
            finally:
                real.close()
    except NotToBeHad as error:
        print(f"skipped: {error}")
        return 0
    first = dict(reversed(found))
    wanted = {f"{store}/{TOPIC}/0/{number}": b"%d" % number for number in range(args.messages)}
    missing = len(wanted.keys() - first.keys())
    wrong = sum(wanted.get(each) != body for each, body in first.items())
    order = [int(body) for _, body in dict.fromkeys(found)]
    disorder = sum(after < before for before, after in pairwise(order))
    print(
        f"RocketMQ {VERSION}, seed {args.seed}: {len(wanted):,} messages, {args.kills} kills, exit "
        f"code {ended}; missing {missing}, wrong {wrong}, again {len(found) - len(first)} with "
        f"their fmq-id, out of order {disorder}"
    )
    return int(bool(missing or wrong or ended))


if __name__ == "__main__":
    raise SystemExit(main())

"""Each request of the protocol, and in the place of each of its fields what it cannot be.

The client gets an answer or is closed. The engine goes on for the other clients, and the directory
opens again with all that it has written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

import pytest

from fmq.errors import BadAllocation, EngineFailed
from fmq.faces.table import GROUP_CHANGES
from fmq.server.named_calls import CALLS
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.wire.claims import ACK, TAKE, AckAsked, encode_ack
from fmq.wire.frames import AGAIN, FAILED, VERSION, Op, frame
from fmq.wire.sends import RECALL, SEND
from fmq.wire.values import decode_error, encode_values
from tests.budget import draw
from tests.remote.hostile import Hostile
from tests.small import bodies, check, opened

HANDLE = 1
FRONT = Struct("<I")
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 0.5, 1 << 16, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 10**30, 1e300,
    float("nan"), float("inf"), "x", "", "7", "\ud800", "n" * 300, "earliest", {"bytes": "78"},
    {"bytes": ""}, {"tuple": [1]}, {"dict": [["a", 1]]}, {"datetime": 0}, {"datetime": 1 << 62},
    {"datetime": "x"}, {"Receipt": ["t", 0, 0, 0, 1]}, {"Receipt": [[], None]}, {"Options": []},
    {}, [], [[]], [None], [0], ["t"], [[1, 2, 3]], [[-1, 0, 0, 1]], {"unknown": 1},
)  # fmt: skip
QUESTION = [
    *("U", "p", {"datetime": 5}, {"tuple": ["t"]}, 1, 1, "seal", "store", 4096, "token", 30.0),
    *(0, False),
]  # fmt: skip


class Sound(NamedTuple):
    """A request as a client of fmq sends it."""

    op: Op
    values: Any = None
    rest: bytes = b""
    """What follows the values of a COMMIT or PREPARE."""
    struct: Struct | None = None
    """Without values: the fields at its beginning; `values` are theirs."""

    def payload(self, values: Any) -> bytes:
        if self.struct is not None:
            return self.struct.pack(*values) + self.rest
        if self.values is None:
            return self.rest
        data = json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if self.op in (Op.COMMIT, Op.PREPARE):
            return FRONT.pack(len(data)) + data + self.rest
        return data


def calls() -> dict[str, tuple[list[Any], dict[str, Any]]]:
    asked = {"Question": QUESTION}
    decided = {"reason": "r", "decided_by": "me", "seal": None}
    return {
        "appended": ([0, ["t"], 10], {}),
        "became": ([[["U", 4096, 0]]], {}),
        "check_dead": (["g", [0]], {}),
        "check_group": (["g"], {}),
        "beat": ([1.0, 5.0], {}),
        "check_topic": (["t"], {}),
        "checkpoint": ([], {}),
        "clients": ([], {}),
        "codec_of": (["t"], {}),
        "commit_prepared": (["U", 0, None], {}),
        "confirm_prepared": (["U", 0], {}),
        "count_dead": (["g"], {}),
        "count_decision": ([asked], {}),
        "count_unknown": ([asked], {}),
        "decide": (["U", "commit"], decided),
        "decide_many": ([["U"], "commit", ["m", 1, None]], {}),
        "delayed": (["t"], {"limit": 10}),
        "end_try": ([asked], {}),
        "finish_decisions": ([], {}),
        "former_members": (["g"], {}),
        "give_way": ([], {}),
        "groups": (["g"], {}),
        "has_bound": (["p"], {}),
        "in_hand": (["g", ["t", False, 0, 0], 10], {}),
        "make_all_due": ([["p"]], {}),
        "make_due": (["U"], {}),
        "mark": (["m"], {}),
        "marks": ([["m"], "m"], {}),
        "members": (["g"], {}),
        "offset_at": (["t", 0, {"datetime": 0}], {}),
        "outcome": (["U"], {}),
        "outcome_of": (["U", 0], {}),
        "page_of_dead": (["g", -1, 10], {}),
        "places_of": (["t", "k", 10], {}),
        "prepared": (["U", 0], {}),
        "erase": (["t", 0, 0, None], {}),
        "purge_dead": (["g", [0], None], {}),
        "put_out": (["g", "m", "ann", "hangs"], {}),
        "queues": (["t"], {}),
        "queues_of": (["t"], {}),
        "release": (["g", "m", "ann", "hangs"], {}),
        "ack_ticket": (["g", "1-0-0-1", None], {}),
        "release_ticket": (["g", "1-0-0-1", 5.0, True], {}),
        "reject_ticket": (["g", "1-0-0-1", "no"], {}),
        "replay_dead": (["g", [0]], {}),
        "roll_back_prepared": (["U", 0, None], {}),
        "stats": ([], {}),
        "stop": ([5.0], {}),
        "sync": ([], {}),
        "take_one": (["U"], {}),
        "replayed": (["g", "t", -1, 10], {}),
        "passing": (["g", "t"], {}),
        "schedules": (["s"], {}),
        "settings": ([], {}),
        "unacked": (["g", "t", 10], {}),
        "undecided": ([], {}),
    }


CHANGES: dict[str, list[Any]] = {
    "ack_below": ["g", "t", 0, 2],
    "reject": ["g", "t", 0, 0, "no"],
    "add_queues": ["t", 1],
    "configure": [{"queues": 2}, [], False],
    "delete_group": ["g"],
    "delete_topic": ["t"],
    "limit": ["g", 3, 0.5, 2, 10.0, True, "ann", "slow"],
    "make_group": ["new", "t", "earliest", False, "tags:a"],
    "make_topic": ["new", 2, 60.0],
    "pause": ["g", "", "ann", "slow"],
    "pause_schedule": ["s", "ann", "slow"],
    "purge": ["g", "t", 0, 0, "ann", "old"],
    "remove_schedule": ["s", "ann", ""],
    "resume": ["g", "", "ann", ""],
    "resume_schedule": ["s", "ann", ""],
    "retain": ["t", 60.0],
    "run_schedule": ["s", "ann", ""],
    "schedule": [
        *("new", "0 0 1 1 *", "t", {"bytes": "61"}, "UTC", "k", None),
        *({"dict": [["a", "b"]]}, "once", "ann", False),
    ],
    "seek": ["g", "t", 0, 0],
    "set_codec": ["t", "json", 2, {"dict": [["id", "integer"]]}],
    "set_filter": ["g", "t", ""],
    "skip": ["g", "t", 0, 2, 1],
}
TABLE = [[0, "a"], [1, "b"]]
STRATEGIES: dict[str, list[Any]] = {
    "consistent_hash": [20],
    "by_room": [["a"], TABLE],
    "by_configuration": [[["m", [0, 1]], ["n", []]]],
    "nearby": [["by_room", ["a"], TABLE], TABLE, [["m", "a"]]],
}
COLLECTED = [
    *(0, 0, None, "T", True, "p", None, False, [[HANDLE, 0, 0, 1]]),
    [["m", 1, {"bytes": "61"}, None], ["n", 0, None, -1]],
]


def sound() -> dict[str, Sound]:
    ack = encode_ack(AckAsked(0, 0, 1, None, "t", 0))[ACK.size :]
    how = [None, "tags:a", [3, [1.0], 0.5], False, False, True, False, "count"]
    said = [["t"], "g", 30.0, [[5, "t", 0, 0, 1]], "m", *how]
    return {
        "HELLO": Sound(Op.HELLO, [VERSION, {"bytes": "61" * CLIENT_BYTES}, None, "host", 1]),
        "SEND": Sound(Op.SEND, [0, 0, 0, 0], RUN, SEND),
        "COMMIT": Sound(Op.COMMIT, COLLECTED, RUN),
        "PREPARE": Sound(Op.PREPARE, COLLECTED, RUN),
        "READ": Sound(Op.READ, ["t", 0, 0, 10, 0.0, 5]),
        "WAIT": Sound(Op.WAIT, [[["t", 0, 0]], 0.0, 5]),
        "JOIN": Sound(Op.JOIN, said),
        **{
            f"JOIN {name}": Sound(Op.JOIN, [*said[:5], [name, *args], *how[1:]])
            for name, args in STRATEGIES.items()
        },
        "POLL": Sound(Op.POLL, [2, 0.0, True, 6]),
        "ACK": Sound(Op.ACK, [0, 0, 1, 0, 0, 1], ack, ACK),
        "ACK_ALL": Sound(Op.ACK_ALL, [0, 0, 1, 0, 0, 1], ack, ACK),
        "ADVANCE": Sound(Op.ADVANCE, [0, 0, 1, 0, 0, 1], ack, ACK),
        "RELEASE": Sound(Op.RELEASE, [0, 0, 1, 0.0, True, 1]),
        "LEAVE": Sound(Op.LEAVE),
        "ASK": Sound(Op.ASK, [[["p", None]], 5, 0.0]),
        "HOLD": Sound(Op.HOLD, [0, 0, 1]),
        "END_HOLD": Sound(Op.END_HOLD, [0, 0, 1]),
        "TAKE_ID": Sound(Op.TAKE_ID, ["T"]),
        "RELEASE_ID": Sound(Op.RELEASE_ID, ["T"]),
        "TAKE": Sound(Op.TAKE, [0, 0, 1, 0], b"", TAKE),
        "REJECT": Sound(Op.REJECT, [0, 0, 1, "t", 0, "why"]),
        "RECALL": Sound(Op.RECALL, [0, 0, 5, 5], b"", RECALL),
        "CANCEL": Sound(Op.CANCEL, [5]),
        "DRAIN": Sound(Op.DRAIN),
        "EXTEND": Sound(Op.EXTEND, [0, 0, 1, 30.0]),
        **{f"CALL {name}": Sound(Op.CALL, [name, *said]) for name, said in calls().items()},
        **{
            f"CHANGE {name}": Sound(Op.CHANGE, [0, 0, name, args]) for name, args in CHANGES.items()
        },
    }


def run_of_one() -> bytes:
    """The bytes of a run, as a client sends it."""
    sent: list[bytes] = []

    class Recording(MemoryServer):
        def deliver(self, session: Any, data: bytes) -> None:
            sent.append(data)
            super().deliver(session, data)

    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        Recording(engine, clock).connect().send("t", b"1", key="k")
    return sent[-1][12 + SEND.size :]


RUN = run_of_one()


def variants(value: Any) -> Iterator[Any]:
    """`value` with one part of it, at any depth, replaced by each odd value, or missing."""
    yield from ODD
    if isinstance(value, list):
        yield [*value, 0]
        for i, part in enumerate(value):
            yield value[:i] + value[i + 1 :]
            for other in variants(part):
                yield [*value[:i], other, *value[i + 1 :]]
    elif isinstance(value, dict):
        for name, part in value.items():
            for other in variants(part):
                yield {**value, name: other}
        if all(type(each) is not list for each in value.values()):
            yield {**value, "odd": 0}


def extremes(sound: Sound) -> Iterator[list[int]]:
    """The fields of a struct, with one of them the smallest, the largest, or in between."""
    assert sound.struct is not None
    for i in range(len(sound.values)):
        for other in (0, 1, 2, 3, 255, 65535, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, -1,
                      -(1 << 63), (1 << 64) - 1):  # fmt: skip
            yield [*sound.values[:i], other, *sound.values[i + 1 :]]


def payloads(sound: Sound) -> list[bytes]:
    """The request, and what becomes of it if one of its fields is something else."""
    found = [sound.payload(sound.values), b"", b"\0", b"[" * 5000]
    if sound.struct is not None:
        for values in extremes(sound):
            try:
                found.append(sound.payload(values))
            except Exception:
                continue  # the field cannot say it
        found += [found[0][:-1], found[0] + b"\0", found[0] * 3]
    elif sound.values is not None:
        found += [sound.payload(each) for each in variants(sound.values)]
    return [*dict.fromkeys(found)]


class Client(Hostile):
    """A client with a consumer that has messages in hand, a held id, and what it needs of topics
    and groups. It says HELLO again once it was closed.
    """

    def __init__(self, server: MemoryServer, number: int) -> None:
        super().__init__(server)
        # Big-endian, as the server in memory draws the ids of good clients little-endian.
        self.hello(VERSION, number.to_bytes(CLIENT_BYTES, "big"), None, "host", 1)
        join = [["t"], f"g{number}" if number % 2 else "g", 30.0, [], f"m{number}", None, None]
        self.send(frame(Op.JOIN, 2, encode_values([*join, None]), handle=HANDLE))
        self.send(frame(Op.POLL, 3, encode_values([2, 0.0, False]), handle=HANDLE))


EVERY = sound()


def test_the_test_covers_every_request_of_the_protocol() -> None:
    assert {each.op for each in EVERY.values()} == set(Op)
    assert {name[5:] for name in EVERY if name.startswith("CALL ")} == set(CALLS)
    assert {name[7:] for name in EVERY if name.startswith("CHANGE ")} == set(GROUP_CHANGES)


@pytest.mark.parametrize(
    "strategy",
    [
        *(["consistent_hash", number] for number in (0, -1, 1001, 10**30, True, 2.0, "2")),
        *([], ["average", 1], ["by_magic", 1], [["nearby"]], ["consistent_hash"]),
        *(["by_room", [], []], ["by_room", ["a"], [[0, "a"]] * 4097], ["by_room", "a", []]),
        *(["by_room", ["a"], [[1 << 16, "a"]]], ["by_room", ["a"], [[0, ""]]]),
        *(["by_configuration", [["m", [0, 0]]]], ["by_configuration", [["", [0]]]]),
        ["by_configuration", [["m", [*range(4097)]]]],
        ["nearby", ["nearby", "average", [], []], [], []],
        ["nearby", "by_magic", [], []],
    ],
    ids=lambda strategy: f"{strategy!r:.40}",
)
def test_a_strategy_that_no_fmq_client_sends_is_refused(strategy: Any) -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        client = Hostile(MemoryServer(engine, clock))
        client.hello(VERSION, bytes(CLIENT_BYTES), None, "host", 1)
        join = [["t"], "g", 30.0, [], "m", strategy, None, None]
        client.send(frame(Op.JOIN, 2, encode_values(join), handle=HANDLE))
        last = client.answers[-1]
        assert last.flags & FAILED
        assert isinstance(decode_error(last.payload), (TypeError, BadAllocation))
        assert not engine.groups()


@pytest.mark.parametrize("name", EVERY)
def test_no_field_of_a_request_ends_the_engine_of_others(name: str) -> None:
    """Whatever one client says, the next send of another one is answered, and what was written
    is found again when the directory is opened. Each run draws some values; `FMQ_BUDGET=99` tries
    them all.
    """
    asked, disk, clock = EVERY[name], CrashDisk(), FakeClock()
    with opened(disk, clock, segment_bytes=1 << 20) as engine:
        server = MemoryServer(engine, clock)
        good = server.connect()
        client, sent = None, 0
        first, *others = payloads(asked)
        for number, payload in enumerate([first, *draw(others, 12, name)]):
            if client is None or client.has_closed():
                _make_things(engine)
                client = Client(server, number)
            before = len(client.answers)
            for flags in (0, AGAIN):
                client.send(frame(asked.op, 7, payload, flags=flags, handle=HANDLE))
            while len(client.answers) == before and server.loop.step():
                pass
            last = client.answers[-1] if client.answers else None
            if last is not None and last.flags & FAILED:
                error = decode_error(last.payload)
                assert not isinstance(error, EngineFailed), (payload, error)
            assert client.has_closed() or len(client.answers) > before, payload
            failure = engine.stats().failure
            assert failure is None, f"{payload[:200]!r}: {failure}"
            if number % 8 == 0:
                good.send("good", b"%d" % number)
                sent += 1
        good.send("good", b"last")
        assert len(bodies(good, "good")) == sent + 1
        assert inside(engine).commit_queue.failure is None
    check(disk)
    with opened(disk, clock, segment_bytes=1 << 20) as engine:
        assert len(bodies(engine, "good")) == sent + 1


def _make_things(engine: Any) -> None:
    """See that there are messages, a group with a dead letter, and an undecided transaction."""
    engine.send_many("t", [b"1", b"2", b"3"])
    try:
        engine.outcome("U")
    except Exception:
        tx = engine.transaction(tx_id="U", producer="p", check_after=0.0)
        tx.send("t", b"4")
        tx.prepare()
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer.poll(limit=1):
            delivery.reject("made")

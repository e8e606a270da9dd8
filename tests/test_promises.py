"""The promises of docs/promises.md, one test each, under their numbers.

Each is the short form of what other tests go into; together they are what a reader may run to
see that the page does not say more than holds.
"""

import ast
import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import fmq
from fmq.errors import (
    AlreadyDecided,
    Damaged,
    EngineFailed,
    Forked,
    Locked,
    StorageFull,
    UnknownTransaction,
)
from fmq.testing import CrashDisk, FaultDisk, PowerLoss
from tests.small import bodies, content, flip, opened

ROOT = Path(__file__).resolve().parent.parent
TOPICS = ("orders", "emails")
SEGMENT = f"{0:020d}.seg"


class Told:
    """What the engine has acknowledged by the moment the power failed."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.committed: list[str] = []
        self.prepared: list[str] = []
        self.rolled_back: list[str] = []
        self.acked: list[bytes] = []


def work(disk: CrashDisk) -> Told:
    """Every call that P1 speaks of, until the power fails."""
    told = Told()
    try:
        with opened(disk) as engine:
            engine.send("audit", b"sent")
            told.sent.append(b"sent")
            with engine.transaction(tx_id="one phase") as tx:
                send_everywhere(tx)
            told.committed.append("one phase")
            for tx_id in ("to commit", "to roll back", "to leave"):
                tx = engine.transaction(tx_id=tx_id)
                send_everywhere(tx)
                tx.prepare()
                told.prepared.append(tx_id)
            engine.decide("to commit", "commit")
            told.committed.append("to commit")
            engine.decide("to roll back", "rollback")
            told.rolled_back.append("to roll back")
            with engine.consumer("audit", group="archive") as consumer:
                [delivery] = consumer.poll()
                delivery.ack()
                told.acked.append(delivery.body)
    except PowerLoss:
        pass
    return told


def send_everywhere(tx: fmq.Transaction) -> None:
    for topic in TOPICS:
        tx.send(topic, tx.tx_id.encode())


def crashes(*, honest: bool = True) -> Iterator[tuple[int, CrashDisk, Told]]:
    """A disk for each operation at which the power may fail, and one for a kill there."""
    whole = CrashDisk()
    work(whole)
    for crash_at in range(whole.operations):
        disk = CrashDisk(crash_at=crash_at, honest=honest)
        told = work(disk)
        yield crash_at, disk.after_power_loss(seed=crash_at), told
        yield crash_at, disk.after_kill(), told


def test_p1_acknowledged_calls_survive_a_kill_and_a_power_cut() -> None:
    for crash_at, disk, told in crashes():
        assert forgotten(disk, told) == [], crash_at


def forgotten(disk: CrashDisk, told: Told) -> list[str]:
    """Return the acknowledged messages that are missing."""
    lost = []
    with opened(disk) as engine:
        if bodies(engine, "audit")[: len(told.sent)] != told.sent:
            lost.append("a send")
        states = {tx_id: state_of(engine, tx_id) for tx_id in told.prepared + told.committed}
        lost += [tx_id for tx_id in told.prepared if states[tx_id] == "absent"]
        lost += [tx_id for tx_id in told.committed if states[tx_id] != "committed"]
        lost += [tx_id for tx_id in told.rolled_back if states[tx_id] != "rolled back"]
        with engine.consumer("audit", group="archive") as consumer:
            lost += ["an ack" for each in consumer.poll() if each.body in told.acked]
    return lost


def state_of(engine: fmq.Engine, tx_id: str) -> str:
    try:
        return engine.outcome(tx_id).state
    except UnknownTransaction:
        return "absent"


def test_p1_needs_an_honest_disk() -> None:
    """P1. This is the control: on a disk whose syncs do nothing, the same test finds losses."""
    lost = []
    for _, disk, told in crashes(honest=False):
        with suppress(fmq.FmqError):
            lost += forgotten(disk, told)
    assert {"a send", "one phase", "to commit"} <= set(lost)


def test_p2_delivered_messages_survive_the_next_power_cut() -> None:
    """P2. Kill, recover, read, cut the power: everything that was read is still there. After a kill
    the page cache has bytes that may not be on the disk.
    """
    for crash_at, disk, _ in crashes():
        with opened(disk) as engine:
            seen = bodies(engine, "audit"), bodies(engine, "orders")
            left = disk.after_power_loss(seed=crash_at)
        with opened(left) as engine:
            assert bodies(engine, "audit")[: len(seen[0])] == seen[0], crash_at
            assert bodies(engine, "orders")[: len(seen[1])] == seen[1], crash_at


def test_p3_the_outcome_of_a_failed_call_can_be_asked_for() -> None:
    """P3. The sync of a commit fails. After opening again all of it is there, or nothing."""
    outcomes = {outcome_of_a_failed_commit(short) for short in (None, 0, 100, 400)}
    assert outcomes == {"absent", "committed"}, "unknown means that both happen"


def outcome_of_a_failed_commit(short: int | None) -> str:
    """Return the outcome of a commit of which `short` bytes, or all, were in the page cache."""
    disk = CrashDisk()
    faults = FaultDisk(disk)
    engine = opened(faults)
    engine.send("audit", b"before")
    faults.fail("write", names="*.seg", short=short)
    with pytest.raises(EngineFailed), engine.transaction(tx_id="doubtful") as tx:
        send_everywhere(tx)
    engine.close()
    with opened(disk.after_kill()) as again:
        there = [len(bodies(again, topic)) for topic in TOPICS]
        state = state_of(again, "doubtful")
    assert there == ([1, 1] if state == "committed" else [0, 0])
    return state


def test_p4_all_messages_of_a_transaction_become_visible_together_or_never() -> None:
    """P4. After any crash each transaction is on both topics or on neither."""
    for crash_at, disk, _ in crashes():
        with opened(disk) as engine:
            seen = [bodies(engine, topic) for topic in TOPICS]
            assert seen[0] == seen[1], crash_at
            assert b"to roll back" not in seen[0], crash_at
            assert b"to leave" not in seen[0], crash_at


def test_p5_a_prepared_transaction_waits_for_its_decision() -> None:
    """P5. It survives restarts. Deciding twice is safe, the opposite or a wrong seal is refused."""
    disk = CrashDisk()
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="order-42")
        send_everywhere(tx)
        tx.prepare()
    for _ in range(3):
        disk = disk.after_kill()
        with opened(disk) as engine:
            [undecided] = engine.undecided()
            assert undecided.tx_id == "order-42"
            assert bodies(engine, "orders") == []
    with opened(disk) as engine:
        with pytest.raises(UnknownTransaction):
            engine.decide("order-42", "commit", seal="0" * 32)
        first = engine.decide("order-42", "commit", seal=undecided.seal)
        assert engine.decide("order-42", "commit") == first
        with pytest.raises(AlreadyDecided) as refused:
            engine.decide("order-42", "rollback")
        assert refused.value.outcome == first
        assert bodies(engine, "orders") == [b"order-42"]


def test_p6_offsets_stay_and_an_ack_is_never_taken_back() -> None:
    """P6. What a transaction consumed and produced counts once, however often it is tried."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send_many("orders", [b"%d" % number for number in range(6)])
        for fails in (False, True, False):
            consumer = engine.consumer("orders", group="billing")
            with suppress(RuntimeError), consumer, engine.transaction() as tx:
                for delivery in consumer.poll(limit=3):
                    tx.send("bills", delivery.body)
                    tx.ack(delivery)
                if fails:
                    raise RuntimeError("half way")
        before = [(each.offset, each.body) for each in engine.read("orders")]
    disk = disk.after_power_loss(seed=1)
    with opened(disk) as engine:
        assert [(each.offset, each.body) for each in engine.read("orders")] == before
        assert [offset for offset, _ in before] == list(range(6))
        assert bodies(engine, "bills") == [b"%d" % number for number in range(6)]
        with engine.consumer("orders", group="billing") as consumer:
            assert consumer.poll() == []


def test_p7_damage_to_durable_bytes_is_reported_and_never_skipped() -> None:
    """P7. fmq.check finds a flipped bit anywhere in a closed directory, with its place, and no
    engine returns a wrong message for it.
    """
    whole = CrashDisk()
    work(whole)
    whole = whole.after_kill()
    with opened(whole) as engine:
        end = engine.stats().position
    found = 0
    for offset in range(0, end, 5):
        disk = whole.after_kill()
        flip(disk, SEGMENT, offset)
        problems = fmq.check("data", disk=disk).problems
        assert all(problem.file == SEGMENT for problem in problems), problems
        found += bool(problems)
        with suppress(Damaged), opened(disk) as engine:
            assert bodies(engine, "audit") == [b"sent"]
            assert bodies(engine, "orders") == [b"one phase", b"to commit"]
    # What is left are zeros between records, which no reader looks at.
    assert found > 0.9 * (end // 5)


def test_p8_bytes_cut_after_an_unclean_end_are_kept_and_reported() -> None:
    """P8. A last append that a power cut damaged is cut, copied to quarantine/, reported."""
    disk = CrashDisk()
    engine = opened(disk)
    engine.send("audit", b"first")
    place = engine.send("audit", b"second").position
    disk = disk.after_power_loss(1)
    flip(disk, SEGMENT, place + 20)
    with opened(disk) as again:
        report = again.stats().recovery
        assert (report.clean, report.copied) == (False, True)
        assert report.cut_bytes > 60
        assert bodies(again, "audit") == [b"first"]
    kept = disk.directory("data", make=False).subdirectory("quarantine", make=False)
    assert kept.names() == [f"{place:020d}.cut"]
    engine.close()


def test_p9_the_first_failed_sync_ends_all_writing() -> None:
    """P9. Nothing is written after it, nothing is retried, and what was visible can be read."""
    disk = FaultDisk(CrashDisk())
    engine = opened(disk)
    engine.send("audit", b"before")
    disk.fail("write", names="*.seg")
    with pytest.raises(EngineFailed):
        engine.send("audit", b"failed")
    count = disk.count("write")
    for call in (engine.sync, engine.checkpoint, lambda: engine.send("audit", b"later")):
        with pytest.raises(EngineFailed):
            call()
    assert bodies(engine, "audit") == [b"before"]
    engine.close()
    assert disk.count("write") == count


def test_p10_recovery_can_be_interrupted_anywhere() -> None:
    """P10. It ends the same whether it is run once or stopped at each of its operations."""
    disk = CrashDisk()
    engine = opened(disk)
    for number in range(30):
        engine.send("audit", b"%d" % number)
    killed = disk.after_kill()
    with opened(killed.after_kill()) as again:
        expected = bodies(again, "audit")
    counted = killed.after_kill()
    engine.close()
    start = counted.operations
    opened(counted).close()
    stops = range(start, counted.operations)
    interrupted = 0
    for crash_at in stops:
        stopped = killed.after_kill(crash_at=crash_at)
        try:
            opened(stopped).close()
        except PowerLoss:
            interrupted += 1
            with opened(stopped.after_power_loss(seed=crash_at)) as again:
                assert bodies(again, "audit") == expected, crash_at
    assert interrupted == len(stops) > 0, "it had something to do, and was stopped at each of it"


def test_p10_a_read_only_engine_writes_nothing() -> None:
    """P10. It opens what a kill left, shows what is proven durable, and changes nothing."""
    disk = CrashDisk()
    work(disk)
    disk = disk.after_kill()
    before, operations = content(disk), disk.operations
    with fmq.open("data", read_only=True, disk=disk) as reader:
        assert bodies(reader, "audit") == [b"sent"]
    assert (content(disk), disk.operations) == (before, operations)


def test_p11_a_full_disk_refuses_messages_and_never_a_decision() -> None:
    """P11. Refused whole, the engine usable, and all that is undecided can still be committed."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        for number in range(5):
            tx = engine.transaction(tx_id=f"order-{number}")
            tx.send("orders", bytes(700))
            tx.prepare()
        disk.fail("create", error=errno.ENOSPC, persistently=True)
        disk.fail("allocate", error=errno.ENOSPC, persistently=True)
        sent = 0
        with pytest.raises(StorageFull):
            for _ in range(100):
                engine.send("audit", bytes(500))
                sent += 1
        assert len(bodies(engine, "audit")) == sent
        for number in range(5):
            engine.decide(f"order-{number}", "commit")
        assert bodies(engine, "orders") == [bytes(700)] * 5
        disk.heal()
        engine.send("audit", b"there is room again")


def test_p12_one_process_writes_and_a_fork_is_refused(tmp_path: Path) -> None:
    """P12. The second engine gets Locked with the holder's name, a forked child gets Forked."""
    with fmq.open(tmp_path / "shop") as engine:
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            fmq.open(tmp_path / "shop")
        child = os.fork()
        if not child:
            try:
                engine.send("audit", b"from the child")
            except Forked:
                os._exit(42)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        engine.send("audit", b"from the parent")
        assert bodies(engine, "audit") == [b"from the parent"]


def test_p13_no_pickle_and_no_code_from_a_directory() -> None:
    """P13. Nothing in fmq imports pickle or its kin, or calls eval or exec."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "eval", "exec", "compile"}
    found = []
    for path in (ROOT / "fmq").rglob("*.py"):
        source = path.read_text()
        if forbidden.isdisjoint(re.findall(r"\w+", source)):
            continue
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id]
            found += [(path.name, name) for name in names if name in forbidden]
    assert found == []


@pytest.mark.parametrize("seed", range(20))
def test_p13_garbage_is_refused_or_harmless(seed: int) -> None:
    """P13. Stretches of random bytes over any file: a typed error, or the truth."""
    random = Random(seed)
    disk = CrashDisk()
    work(disk)
    disk = disk.after_kill()
    directory = disk.directory("data", make=False)
    name = random.choice(sorted(content(disk)))
    file = directory.open(name, write=True)
    offset = random.randrange(max(1, min(file.size(), 1500)))
    file.write(offset, (random.randbytes(random.choice((1, 8, 40, 400))),), sync=True)
    with suppress(fmq.FmqError), opened(disk) as engine:
        assert bodies(engine, "audit") in ([b"sent"], [])
        assert set(bodies(engine, "orders")) <= {b"one phase", b"to commit"}

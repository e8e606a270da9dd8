"""`fmq.testing.crash` finds what a crash breaks in a program, says where, and finds it again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import fmq
from fmq.testing import CrashFailure, World, crash
from fmq.testing.world import Act
from tests.budget import BUDGET
from tests.testing import shop


def failure(workload: Act, check: Act = shop.check, **more: object) -> CrashFailure:
    with pytest.raises(CrashFailure) as caught:
        crash(workload, check, **more)  # type: ignore[arg-type]
    return caught.value


def line(function: object, text: str) -> str:
    """Return the place of the program as a report must show it, such as `shop.py:31 in
    place: source`.
    """
    code = function.__code__  # type: ignore[attr-defined]
    source = Path(code.co_filename).read_text().splitlines()
    number = next(n for n in range(code.co_firstlineno, len(source)) if text in source[n]) + 1
    return f"{Path(code.co_filename).name}:{number} in {code.co_name}: {source[number - 1].strip()}"


@pytest.mark.parametrize(
    ("place", "running", "left"),
    [
        (shop.row_first, "rows.commit()", "rows=['order 1'] messages=[]"),
        (shop.message_first, "engine.send(", "rows=[] messages=['order 1']"),
        (shop.row_inside_block, "with engine.", "rows=['order 1'] messages=[]"),
        (shop.message_inside_block, "with rows,", "rows=[] messages=['order 1']"),
        (shop.from_one_line, "    step()", "rows=['order 1'] messages=[]"),
        (shop.prepared_too_late, "rows.commit()", "rows=['order 1'] messages=[]"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_dual_write_is_found_between_its_two_commits(
    place: shop.Place, running: str, left: str
) -> None:
    """Either commit may come first, and no line needs to lie between them."""
    found = failure(shop.shop(place), recover=shop.settle)
    text = str(found)
    assert text.startswith(f"after a crash the check fails: AssertionError: {left}")
    assert line(place, running) in text
    assert line(shop.shop(place), "place(engine") in text
    assert "engine.py:" not in text, "what fmq does inside is not the program's"


def wal(engine: fmq.Engine, world: World) -> None:
    with shop.database(world) as rows:
        rows.execute("PRAGMA journal_mode=WAL")


WAYS = {
    "rollback journal, by hand": (shop.settle, None),
    "WAL, by a checker": (shop.settle_by_checker, wal),
    "rollback journal, by a checker": (shop.settle_by_checker, None),
    "WAL, by hand": (shop.settle, wal),
}


@pytest.mark.parametrize("way", [*WAYS][: 2 if BUDGET <= 1 else None])
def test_a_prepared_transaction_with_recovery_survives_every_crash(way: str) -> None:
    """The steps are mark, prepare, commit and confirm. The recovery asks the database. A run has
    each recovery and each journal once; with FMQ_BUDGET=2 it has all ways.
    """
    recover, setup = WAYS[way]
    report = crash(shop.shop(shop.right), shop.check, recover=recover, setup=setup)
    assert report.states > report.points > 40


def test_a_row_that_is_only_in_the_wal_is_found() -> None:
    """All files of the world are crashed together, whatever their names."""
    text = str(failure(shop.shop(shop.row_first), setup=wal))
    assert "rows=['order 1'] messages=[]" in text


@pytest.mark.parametrize("recover", [None, shop.settle_by_guess], ids=["none", "guess"])
def test_a_recovery_that_does_not_ask_the_database_is_found(recover: Act | None) -> None:
    """A program that prepares must decide after a crash, and must not guess."""
    found = failure(shop.shop(shop.right), recover=recover)
    wanted = "rows=['order 1'] messages=[]" if recover is None else "rows=[] messages=['order 1']"
    assert wanted in str(found)


def test_a_recovery_that_a_crash_breaks_is_found() -> None:
    """`recover` is crashed at its own crash points, and the report shows both crashes."""

    def recover(engine: fmq.Engine, world: World) -> None:
        for tx in engine.undecided():
            engine.decide(tx.tx_id, "rollback")
            engine.send("dropped", tx.tx_id.encode())  # too late if it dies right before this

    def check(engine: fmq.Engine, world: World) -> None:
        done = [f"order {n}" for n in (1, 2) if state(engine, f"order {n}") == "rolled back"]
        assert done == [bytes(message.body).decode() for message in engine.read("dropped")]

    found = failure(shop.shop(shop.right), check, recover=recover)
    first, second = found.only.split(" > ")
    assert line(shop.right, "tx.prepare()") in str(found)
    assert line(recover, "engine.decide(") in str(found)
    assert str(failure(shop.shop(shop.right), check, recover=recover, only=found.only))
    assert crash(shop.shop(shop.right), check, recover=recover, only=first).states == 1


def state(engine: fmq.Engine, tx_id: str) -> str:
    try:
        return engine.outcome(tx_id).state
    except fmq.errors.UnknownTransaction:
        return "unknown"


def test_a_message_reported_before_it_is_durable_is_found() -> None:
    """A send with sync=False may be lost, though the customer was told of it."""

    def workload(engine: fmq.Engine, world: World) -> None:
        engine.send("orders", b"order 1", sync=False)
        world.tell("order 1")

    found = failure(workload, sent)
    assert line(workload, "world.tell(") in str(found)
    assert "told    'order 1'" in str(found)
    assert found.only.endswith("kill")


def sent(engine: fmq.Engine, world: World) -> None:
    messages = [bytes(message.body).decode() for message in engine.read("orders")]
    assert [told for told in world.told if told not in messages] == []


def test_a_power_cut_finds_a_loss_that_a_kill_does_not() -> None:
    """With sync="never" a killed process loses nothing."""

    def workload(engine: fmq.Engine, world: World) -> None:
        engine.send("orders", b"order 1")
        world.tell("order 1")

    found = failure(workload, sent, options=fmq.Options(segment_bytes=65536, sync="never"))
    assert "power" in found.only
    assert "the power fails and leaves of what was not synced: nothing" in str(found)
    crash(workload, sent, options=fmq.Options(segment_bytes=65536))


@pytest.mark.parametrize("early", [True, False])
def test_an_ack_before_the_work_is_done_is_found(early: bool) -> None:
    """This is a dual write of a consumer. With an ack after the work, it is at worst done twice."""

    def setup(engine: fmq.Engine, world: World) -> None:
        engine.send_many("orders", [b"order 1", b"order 2"])

    def workload(engine: fmq.Engine, world: World) -> None:
        with shop.database(world) as rows, engine.consumer("orders", group="rows") as consumer:
            for delivery in consumer.poll(limit=10):
                if early:
                    delivery.ack()
                rows.execute(shop.INSERT, (bytes(delivery.body).decode(),))
                rows.commit()
                if not early:
                    delivery.ack()

    def check(engine: fmq.Engine, world: World) -> None:
        with shop.database(world) as rows, engine.consumer("orders", group="rows") as consumer:
            [(done,)] = rows.execute("SELECT count(*) FROM orders").fetchall()
            assert done + len(consumer.poll(limit=10)) >= 2

    if early:
        assert line(workload, "delivery.ack()") in str(failure(workload, check, setup=setup))
    else:
        crash(workload, check, setup=setup)


@pytest.mark.parametrize("together", [True, False])
def test_acks_in_a_transaction_make_a_pipeline_exactly_once(
    together: bool,
) -> None:
    """`recover` repeats what a crash interrupted. With separate acks a bill is sent twice."""

    def setup(engine: fmq.Engine, world: World) -> None:
        engine.send_many("orders", [b"1", b"2", b"3"])

    def pipeline(engine: fmq.Engine, world: World) -> None:
        with engine.consumer("orders", group="billing") as consumer:
            while deliveries := consumer.poll(limit=2):
                with engine.transaction() as tx:
                    for delivery in deliveries:
                        tx.send("bills", delivery.body)
                        if together:
                            tx.ack(delivery)
                if not together:
                    for delivery in deliveries:
                        delivery.ack()

    def check(engine: fmq.Engine, world: World) -> None:
        bills = sorted(message.body for message in engine.read("bills"))
        assert bills == [b"1", b"2", b"3"]  # what was in hand at a crash may go last

    if together:
        crash(pipeline, check, recover=pipeline, setup=setup)
    else:
        assert "check fails" in str(failure(pipeline, check, recover=pipeline, setup=setup))


def test_an_asyncio_program_is_crashed_like_any_other() -> None:
    """Its calls run in threads, one after the other. Crash points are where they return."""

    def workload(engine: fmq.Engine, world: World) -> None:
        async def main() -> None:
            await asyncio.to_thread((world.path / "row").write_text, "order 1")
            await asyncio.to_thread(engine.send, "orders", b"order 1")

        asyncio.run(main())

    def check(engine: fmq.Engine, world: World) -> None:
        assert (world.path / "row").exists() == bool(engine.read("orders"))

    text = str(failure(workload, check))
    assert line(workload, "asyncio.run") in text
    assert "base_events.py:" not in text, "nor are libraries"


def test_a_message_that_is_never_sent_is_found_without_a_crash() -> None:
    """The check runs first on a program that ended well, and the report says so."""

    def workload(engine: fmq.Engine, world: World) -> None:
        with shop.database(world) as rows:
            rows.execute(shop.INSERT, ("order 1",))
            rows.commit()

    found = failure(workload)
    assert str(found).startswith("without any crash the check fails: AssertionError: rows=")
    assert (found.report.points, found.report.states) == (0, 1)


def test_a_file_written_in_two_steps_is_found_half_done() -> None:
    """Crashes are not about databases alone: `write_text` empties the file before it fills it."""

    def setup(engine: fmq.Engine, world: World) -> None:
        (world.path / "state").mkdir()
        (world.path / "state" / "next").write_text("1")

    def workload(engine: fmq.Engine, world: World) -> None:
        (world.path / "state" / "next").write_text("2")

    def check(engine: fmq.Engine, world: World) -> None:
        assert (world.path / "state" / "next").read_text() in ("1", "2")

    assert line(workload, "write_text") in str(failure(workload, check, setup=setup))

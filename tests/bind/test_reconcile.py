"""After the database or the journal was put back: which rows have no messages, and which messages
no rows.

A case is a random story of bound transactions and of others, over some hours, in which the database
is copied once, the queue is backed up once, and old markers are purged. Then one of the two is put
back. What must be listed is known from the order in which things were done, not from any clock.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest
import sqlalchemy

import fmq
import fmq.bind
from fmq.testing import FakeClock
from tests.bind.databases import Database, Postgres, Sqlite, make_tables, rows, told
from tests.bind.shop import PRODUCER, connect, leave_prepared
from tests.cli.command import fmq_json

HOUR_SECONDS = 3600
Reconcile = Callable[..., fmq.Reconciliation]
QUIET = fmq.Options(checker_threads=0)


@dataclass
class Story:
    """What has happened in one case, in its order."""

    folder: Path
    random: Random
    clock: FakeClock
    placed: list[str] = field(default_factory=list)  # orders, which are also the ids
    sent: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    copied_at: int = 0  # how many orders the copy of the database has
    backed_up_at: int = 0  # how many the backup of the queue has

    @property
    def journal(self) -> Path:
        return self.folder / "shop"

    @property
    def address(self) -> str:
        return f"sqlite:///{self.folder}/shop.db"

    def tell(self) -> None:
        """Live through the story, and leave the queue and its database closed."""
        steps = self.random.randint(25, 40)
        copy, back_up = self.random.randrange(5, steps), self.random.randrange(5, steps)
        with (
            contextlib.closing(connect(self.folder)) as connection,
            contextlib.closing(connect(self.other)) as other,
            fmq.open(self.journal, QUIET, clock=self.clock, background=False) as engine,
        ):
            self.order(engine, connection)  # so the copy knows the producer
            for step in range(steps):
                # The last hour begins with the copy.
                self.clock.advance(self.random.randint(60, 900) if step < copy else 60)
                if step == copy:
                    self.copy_database()
                if step == back_up:
                    engine.sync()
                    self.backed_up_at = len(self.placed)
                    fmq.backup(self.journal, self.folder / "backup")
                self.step(engine, connection, other)
            leave_prepared(engine, "undecided")

    @property
    def other(self) -> Path:
        path = self.folder / "elsewhere"
        path.mkdir(exist_ok=True)
        return path

    def step(
        self, engine: fmq.Engine, connection: sqlite3.Connection, other: sqlite3.Connection
    ) -> None:
        kind = self.random.choice(["order"] * 6 + ["send", "prepared", "other", "failed", "purge"])
        if kind == "order":
            self.order(engine, connection)
        elif kind == "send":
            engine.send("orders", b"no transaction")
        elif kind == "prepared":
            with engine.transaction(producer="by hand") as tx:
                tx.send("orders", b"not bound")
                tx.prepare()
        elif kind == "other":
            with engine.transaction(producer="other", bind=other) as tx:
                tx.send("orders", b"of another database")
        elif kind == "failed":
            with contextlib.suppress(fmq.RollBack), engine.transaction(
                producer=PRODUCER, bind=connection
            ) as tx:  # fmt: skip
                tx.send("orders", b"never")
                raise fmq.RollBack
        else:
            self.purge(engine, connection, self.random.randint(1, 3) * HOUR_SECONDS)

    def order(self, engine: fmq.Engine, connection: sqlite3.Connection) -> None:
        """Place an order, and date its marker by the clock of the story."""
        name = f"order-{len(self.placed)}"
        with engine.transaction(tx_id=name, producer=PRODUCER, bind=connection) as tx:
            connection.execute("INSERT INTO orders VALUES (?)", (name,))
            topics = self.random.sample(["orders", "emails", "bills"], self.random.randint(1, 3))
            for topic in topics:
                tx.send(topic, name.encode())
        self.sent[name] = [each[:3] for each in tx.commit()]
        now = self.clock.time_us() // 1_000_000
        connection.execute("UPDATE fmq_tx SET created_at = ? WHERE tx_id = ?", (now, name))
        connection.commit()
        self.placed.append(name)

    def purge(self, engine: fmq.Engine, connection: sqlite3.Connection, older: float) -> None:
        """Remove markers that are older than some seconds by the clock of the story."""
        behind = time.time() - self.clock.time_us() / 1_000_000
        fmq.bind.purge(engine, connection, older_seconds=older + behind)

    def copy_database(self) -> None:
        self.copied_at = len(self.placed)
        with (
            contextlib.closing(sqlite3.connect(self.folder / "shop.db")) as source,
            contextlib.closing(sqlite3.connect(self.folder / "copy.db")) as target,
        ):
            source.backup(target)

    def markers(self) -> set[str]:
        """The orders whose markers are in the database."""
        with contextlib.closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            found = {tx_id for (tx_id,) in connection.execute("SELECT tx_id FROM fmq_tx")}
        return found & set(self.placed)

    def orders(self) -> set[str]:
        with contextlib.closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            return {name for (name,) in connection.execute("SELECT name FROM orders")}

    def put_database_back(self) -> None:
        for end in ("", "-wal", "-shm"):
            (self.folder / f"shop.db{end}").unlink(missing_ok=True)
        shutil.copy(self.folder / "copy.db", self.folder / "shop.db")


def story_of(seed: int, folder: Path) -> Story:
    folder.mkdir()
    start_us = int(time.time() - 24 * HOUR_SECONDS) * 1_000_000
    story = Story(folder, Random(seed), FakeClock(start_us))
    story.tell()
    return story


def go_on(story: Story) -> None:
    """Use both after the database was put back: orders, and perhaps a purge."""
    with (
        contextlib.closing(connect(story.folder)) as connection,
        fmq.open(story.journal, QUIET, clock=story.clock, background=False) as engine,
    ):
        for _ in range(story.random.randint(0, 3)):
            story.clock.advance(60)
            story.order(engine, connection)
        if story.random.random() < 0.3:
            story.purge(engine, connection, story.random.randint(1, 4) * 900)


def check_database_put_back(story: Story, reconcile: Reconcile = fmq.reconcile) -> int:
    """Put the database back, and compare what is found with the story. Return how many are gone."""
    story.put_database_back()
    behind = len(story.placed)
    go_on(story)
    lost = story.placed[story.copied_at : behind]
    survivors = story.markers()
    before = contents(story.folder)
    found = reconcile(story.journal, story.address)
    assert contents(story.folder) == before
    # A marker that is there proves that later ones were not purged.
    first = min((story.placed.index(name) for name in survivors), default=len(story.placed))
    gone = [name for name in lost if story.placed.index(name) > first]
    assert [each.tx_id for each in found.gone] == gone
    assert [[receipt[:3] for receipt in each.receipts] for each in found.gone] == [
        story.sent[name] for name in gone
    ]
    assert not story.orders() & set(gone)
    assert found.agreed == len(survivors)
    assert found.unknown_transactions == len(story.placed) - len(survivors) - len(gone)
    assert (found.lacking, found.unknown_markers, found.undecided) == ((), 0, 1)
    assert found.producers == (PRODUCER,)
    assert set(found.other_producers) <= {"other"}
    assert found.ok is not bool(gone)
    return len(gone)


def check_queue_put_back(story: Story, reconcile: Reconcile = fmq.reconcile) -> int:
    """Put the queue back, and compare what is found with the story. Return how many lack theirs."""
    again = story.folder / "again"
    fmq.restore(story.folder / "backup", again)
    lacking = [name for name in story.placed[story.backed_up_at :] if name in story.markers()]
    found = reconcile(again, story.address)
    assert sorted(each.tx_id for each in found.lacking) == sorted(lacking)
    assert {each.journal for each in found.lacking} <= {"absent"}
    assert (found.gone, found.unknown_markers, found.undecided) == ((), 0, 0)
    assert found.agreed == len(story.markers()) - len(lacking)
    assert found.unknown_transactions == story.backed_up_at - found.agreed
    assert found.ok is not bool(lacking)
    return len(lacking)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of the journal and of the database."""
    found = [folder / "shop.db", *(folder / "shop").rglob("*")]
    return {str(each): each.read_bytes() for each in found if each.is_file()}


SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_reconcile_finds_the_rows_that_a_restored_database_lacks(seed: int, tmp_path: Path) -> None:
    """Test twenty random cases, in which the database was put back to its state an hour before."""
    print(f"seed {seed}")
    check_database_put_back(story_of(seed, tmp_path / "case"))


@pytest.mark.parametrize("seed", SEEDS)
def test_reconcile_finds_the_messages_that_a_restored_journal_lacks(
    seed: int, tmp_path: Path
) -> None:
    """Test the same cases, in which the journal was put back instead of the database."""
    print(f"seed {seed}")
    check_queue_put_back(story_of(seed, tmp_path / "case"))


def differences(seeds: range, folder: Path, reconcile: Reconcile = fmq.reconcile) -> int:
    """Run cases until one fails, and return how many differences all have found."""
    return sum(
        check_database_put_back(story_of(seed, folder / f"{seed}"), reconcile)
        + check_queue_put_back(story_of(seed, folder / f"{seed} queue"), reconcile)
        for seed in seeds
    )


def test_the_random_cases_have_differences_to_find(tmp_path: Path) -> None:
    assert differences(range(5), tmp_path) > 20


def wrong(change: Callable[[fmq.Reconciliation], fmq.Reconciliation]) -> Reconcile:
    """Return a reconcile that makes a mistake wherever there is an opportunity."""
    return lambda path, database: change(fmq.reconcile(path, database))


def without_last_receipt(found: fmq.Reconciliation) -> fmq.Reconciliation:
    gone = tuple(replace(each, receipts=each.receipts[:-1]) for each in found.gone)
    return replace(found, gone=gone)


MISTAKES = {
    # Whatever has no marker is gone, purged or not.
    "purged is gone": lambda path, database: fmq.reconcile(path, database, kept_seconds=1e9),
    "one is left out": wrong(lambda found: replace(found, gone=found.gone[1:])),
    "a message is left out": wrong(without_last_receipt),
    "a marker is left out": wrong(lambda found: replace(found, lacking=found.lacking[1:])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_of_reconcile_is_found(mistake: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        differences(SEEDS, tmp_path, MISTAKES[mistake])


# --- rules for both databases --------------------------------------------------------------------


def order(engine: fmq.Engine, database: Database, name: str) -> None:
    with (
        contextlib.closing(database.connect()) as connection,
        engine.transaction(tx_id=name, producer=PRODUCER, bind=connection) as tx,
    ):
        connection.execute(f"INSERT INTO orders VALUES ('{name}')")
        tx.send("orders", name.encode())


def lose(database: Database, name: str) -> None:
    """Have the database as if the order had never been placed."""
    told(database, f"DELETE FROM orders WHERE name = '{name}'")
    told(database, f"DELETE FROM fmq_tx WHERE tx_id = '{name}'")


WEEK_SECONDS = 7 * 24 * HOUR_SECONDS


def test_reconcile_beside_an_engine_finds_no_difference(
    engine: fmq.Engine, database: Database
) -> None:
    order(engine, database, "one")
    order(engine, database, "two")
    leave_prepared(engine, "open")
    for name in ("by-hand-1", "by-hand-2"):
        tx = engine.transaction(tx_id=name, producer="by hand")
        tx.send("orders", b"not bound")
        tx.prepare()
    engine.decide("by-hand-1", "commit", reason="a test")
    engine.sync()
    found = fmq.reconcile(engine.path, database.address)
    assert found.ok
    assert (found.agreed, found.undecided, found.unknown_transactions) == (2, 1, 0)
    assert found.undecided_elsewhere == 1, "by-hand-2, which is said and not compared"


def test_progress_is_told_up_to_the_end_of_the_journal(
    engine: fmq.Engine, database: Database
) -> None:
    order(engine, database, "one")
    for _ in range(3):
        engine.send("t", bytes(1 << 20))
    engine.sync()
    told: list[tuple[int, int]] = []
    fmq.reconcile(
        engine.path, database.address, progress=lambda done, total: told.append((done, total))
    )
    assert told == sorted(told)
    assert len(told) >= 4
    assert told[-1] == (engine.stats().position,) * 2


def test_a_committed_transaction_without_its_row_is_reported_as_gone(
    engine: fmq.Engine, database: Database
) -> None:
    order(engine, database, "one")
    order(engine, database, "two")
    lose(database, "two")
    engine.sync()
    found = fmq.reconcile(engine.path, database.address, kept_seconds=WEEK_SECONDS)
    assert [each.tx_id for each in found.gone] == ["two"]
    assert found.gone[0] == engine.outcome("two")
    assert rows(database) == ["one"]


def test_a_transaction_without_any_proof_is_unknown(engine: fmq.Engine, database: Database) -> None:
    """The only marker is gone: it may have been purged, unless the caller knows better."""
    order(engine, database, "one")
    lose(database, "one")
    engine.sync()
    found = fmq.reconcile(engine.path, database.address)
    assert (found.ok, found.unknown_transactions, found.markers_from) == (True, 1, None)
    found = fmq.reconcile(engine.path, database.address, kept_seconds=WEEK_SECONDS)
    assert [each.tx_id for each in found.gone] == ["one"]


def test_a_marker_dated_at_the_begin_of_its_transaction_proves_an_hour_less(
    engine: fmq.Engine, address: str
) -> None:
    """PostgreSQL dates a marker by the begin of its transaction, which may be an hour before."""
    database = Postgres(address)
    make_tables(database)
    for name in ("one", "two"):
        order(engine, database, name)
    lose(database, "two")
    engine.sync()
    found = fmq.reconcile(engine.path, address)
    assert (found.gone, found.unknown_transactions) == ((), 1)


def test_a_tombstone_of_a_committed_transaction_is_a_difference(
    engine: fmq.Engine, database: Database
) -> None:
    order(engine, database, "one")
    told(database, "UPDATE fmq_tx SET state = 'R' WHERE tx_id = 'one'")
    engine.sync()
    found = fmq.reconcile(engine.path, database.address)
    assert [each.tx_id for each in found.gone] == ["one"]


def test_a_tombstone_proves_nothing(engine: fmq.Engine, tmp_path: Path) -> None:
    """A purge removes tombstones by another rule, so one may be left where markers are not."""
    database = Sqlite(tmp_path)
    make_tables(database)
    order(engine, database, "one")
    told(database, "UPDATE fmq_tx SET tx_id = 'zero', state = 'R', created_at = created_at - 60 "
                   "WHERE tx_id = 'one'")  # fmt: skip
    engine.sync()
    found = fmq.reconcile(engine.path, database.address)
    assert (found.ok, found.unknown_transactions) == (True, 1)


def test_a_marker_proves_nothing_about_the_time_before_its_decision(tmp_path: Path) -> None:
    """A purge keeps the marker of an undecided transaction, and removes a younger one."""
    database, clock = Sqlite(tmp_path), FakeClock(int(time.time()) * 1_000_000)
    make_tables(database)
    with fmq.open(tmp_path / "shop", QUIET, clock=clock, background=False) as engine:
        order(engine, database, "first")
        leave_prepared(engine, "late")
        told(database, "UPDATE fmq_tx SET tx_id = 'late' WHERE tx_id = 'first'")
        clock.advance(60)
        order(engine, database, "purged")
        lose(database, "purged")
        clock.advance(60)
        engine.decide("late", "commit", reason="its marker is there")
        engine.sync()
        found = fmq.reconcile(engine.path, database.address)
    assert (found.gone, found.agreed, found.unknown_transactions) == ((), 1, 2)


def test_a_commit_during_reconcile_is_no_difference(engine: fmq.Engine, database: Database) -> None:
    """One order is placed between the first look at the journal and the markers, one after them."""
    order(engine, database, "one")
    engine.sync()
    scheme, _, rest = database.address.partition("://")
    driver = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}[scheme]
    address = sqlalchemy.create_engine(f"{driver}://{rest}")
    placed: list[str] = []

    def place_another(*_: object) -> None:
        placed.append(f"during {len(placed)}")
        order(engine, database, placed[-1])
        engine.sync()

    sqlalchemy.event.listen(address.pool, "connect", place_another)
    sqlalchemy.event.listen(address.pool, "close_detached", place_another)
    found = fmq.reconcile(engine.path, address, kept_seconds=WEEK_SECONDS)
    assert found.ok
    assert placed == ["during 0", "during 1"]
    assert found.agreed == 1


def test_a_marker_of_a_transaction_that_was_rolled_back_is_a_difference(
    engine: fmq.Engine, database: Database
) -> None:
    order(engine, database, "one")
    leave_prepared(engine, "two")
    engine.decide("two", "rollback", reason="by mistake")
    told(
        database,
        "INSERT INTO fmq_tx (store_id, tx_id, state, deadline) "
        "SELECT store_id, 'two', 'C', deadline FROM fmq_tx WHERE tx_id = 'one'",
    )
    engine.sync()
    found = fmq.reconcile(engine.path, database.address)
    assert [(each.tx_id, each.journal) for each in found.lacking] == [("two", "rolled back")]


def test_a_database_that_was_never_bound_is_refused(engine: fmq.Engine, database: Database) -> None:
    engine.send("orders", b"one")
    with pytest.raises(fmq.bind.BindError, match="no row of the journal"):
        fmq.reconcile(engine.path, database.address)
    told(database, "DROP TABLE fmq_tx")
    with pytest.raises(fmq.bind.NoMarkerTable):
        fmq.reconcile(engine.path, database.address)


def test_a_missing_database_is_not_made(engine: fmq.Engine, tmp_path: Path) -> None:
    engine.send("orders", b"one")
    with pytest.raises(fmq.bind.BindError, match=r"none\.db"):
        fmq.reconcile(engine.path, f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_marker_older_than_the_journal_is_unknown(tmp_path: Path) -> None:
    """Retention has dropped its transaction. A younger marker is a difference."""
    database = Sqlite(tmp_path)
    make_tables(database)
    options = fmq.Options(
        checker_threads=0, segment_bytes=1 << 16, retain_bytes=1 << 16, keep_unread=False
    )
    with fmq.open(tmp_path / "shop", options, background=False) as engine:
        order(engine, database, "old")
        told(database, "UPDATE fmq_tx SET created_at = created_at - 60 WHERE tx_id = 'old'")
        for _ in range(20):
            engine.send("orders", Random(1).randbytes(30_000))
        order(engine, database, "new")
        told(database, "INSERT INTO fmq_tx SELECT store_id, 'newer', state, deadline, "
                       "created_at + 1, NULL FROM fmq_tx WHERE tx_id = 'new'")  # fmt: skip
        engine.sync()
        found = fmq.reconcile(engine.path, database.address)
    assert [each.tx_id for each in found.lacking] == ["newer"]
    assert (found.unknown_markers, found.agreed) == (1, 1)
    assert found.journal_from is not None


def test_a_database_of_sqlalchemy_has_the_same_rows(engine: fmq.Engine, database: Database) -> None:
    order(engine, database, "one")
    engine.sync()
    scheme, _, rest = database.address.partition("://")
    driver = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}[scheme]
    found = fmq.reconcile(engine.path, f"{driver}://{rest}")
    assert found == fmq.reconcile(engine.path, database.address)


# --- the verb ------------------------------------------------------------------------------------


def test_fmq_reconcile_notes_what_it_could_not_compare(engine: fmq.Engine, tmp_path: Path) -> None:
    """Its exit code alone would be read as "they agree"."""
    database = Sqlite(tmp_path)
    make_tables(database)
    for name in ("one", "two"):
        order(engine, database, name)
    engine.sync()
    lose(database, "one")
    said = fmq_json("reconcile", engine.path, database.address)
    assert said.code == 0
    assert "1 transaction of the journal and 0 markers of the database" in said.error
    assert "1 transaction agreed" in said.error


def test_fmq_reconcile_lists_both_kinds_of_differences_and_exits_with_1(
    engine: fmq.Engine, tmp_path: Path
) -> None:
    database = Sqlite(tmp_path)
    make_tables(database)
    for name in ("one", "two"):
        order(engine, database, name)
    engine.sync()
    said = fmq_json("reconcile", engine.path, database.address)
    assert (said.code, said.of("reconciliation")[0]["ok"], said.error) == (0, True, "")
    lose(database, "two")
    told(database, "INSERT INTO fmq_tx SELECT store_id, 'three', state, deadline, created_at, NULL "
                   "FROM fmq_tx WHERE tx_id = 'one'")  # fmt: skip
    said = fmq_json("reconcile", engine.path, database.address, "--kept", "604800")
    assert (said.code, said.error) == (1, "")
    assert said.of("reconciliation")[0]["gone"] == said.of("reconciliation")[0]["lacking"] == 1
    (gone,), (lacking,) = said.of("gone"), said.of("lacking")
    assert (gone["tx_id"], gone["receipts"][0]["offset"]) == ("two", 1)
    assert (lacking["tx_id"], lacking["journal"]) == ("three", "absent")
    assert fmq_json("reconcile", engine.path, f"sqlite:///{tmp_path}/none.db").code == 3

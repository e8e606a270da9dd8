"""An outbox of Django's: its messages are there if, and only if, the outermost block committed."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

import fmq
import fmq.bind
from fmq.bind.django import DjangoOutbox, atomic, attach
from fmq.errors import MarkMoved, WrongState
from tests.bind.databases import Database, Sqlite, make_tables, rows, told
from tests.bind.django_shop import Order, leave, point_at
from tests.bind.shop import PRODUCER, messages
from tests.budget import SEED


@pytest.fixture
def using(database: Database) -> Iterator[str]:
    """The alias of each database in turn. The connection is closed at the end of each test."""
    alias = point_at(database, outbox=True)
    yield alias
    connection = connections[alias]
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    assert connection.fmq_block is None
    Order.objects.using(alias).create(name="the connection works")
    assert "the connection works" in rows(database), "and commits by itself, as ever"
    leave(alias)


@pytest.fixture
def outbox(engine: fmq.Engine, using: str) -> DjangoOutbox:
    """Registered, as SQLite may need that. See the tests of registering below."""
    outbox = attach(engine, using, producer=PRODUCER)
    outbox.register()
    return outbox


def place(outbox: DjangoOutbox, using: str, order: str) -> None:
    """Send an order in a block that other code has begun, as an application does."""
    Order.objects.using(using).create(name=order)
    outbox.transaction().send("orders", order.encode())


# --- both or neither ----------------------------------------------------------------------------


def test_messages_are_sent_when_the_outermost_block_commits(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    with transaction.atomic(using):
        place(outbox, using, "1")
        with transaction.atomic(using), transaction.atomic(using, savepoint=False):
            place(outbox, using, "2")
        assert messages(engine) == []
    assert messages(engine) == ["1", "2"]
    with transaction.atomic(using, durable=True):
        place(outbox, using, "3")
    assert rows(database) == messages(engine) == ["1", "2", "3"]
    assert engine.undecided() == []


def test_messages_of_a_block_that_raises_are_dropped(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    for error in (ValueError, fmq.RollBack, KeyboardInterrupt, IntegrityError):
        with pytest.raises(error), transaction.atomic(using):
            with transaction.atomic(using):
                place(outbox, using, "1")
            raise error
        assert fmq.current_transaction(engine) is None
    with transaction.atomic(using):
        place(outbox, using, "2")
    assert rows(database) == messages(engine) == ["2"]
    assert engine.undecided() == []


def test_a_block_that_django_rolls_back_silently_sends_nothing(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    """A swallowed error, set_rollback, an inner block without a savepoint: the rows are gone."""
    with transaction.atomic(using):
        place(outbox, using, "1")
        transaction.set_rollback(True, using)
    with transaction.atomic(using):
        place(outbox, using, "2")
        with pytest.raises(IntegrityError):
            Order.objects.using(using).create(name="2")
        with pytest.raises(TransactionManagementError):
            outbox.transaction()
    with transaction.atomic(using):
        place(outbox, using, "3")
        with pytest.raises(ValueError, match="3"), transaction.atomic(using, savepoint=False):
            raise ValueError("3")
    assert rows(database) == messages(engine) == []


def test_a_block_whose_connection_is_closed_sends_nothing(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    """Django leaves such a block without an error."""
    with transaction.atomic(using):
        place(outbox, using, "1")
        connections[using].close()
        with pytest.raises(TransactionManagementError):
            outbox.transaction()
    assert rows(database) == messages(engine) == []


def test_a_block_without_messages_marks_nothing(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    with transaction.atomic(using):
        outbox.transaction()
        Order.objects.using(using).create(name="1")
    assert rows(database) == ["1"]
    assert told(database, "SELECT count(*) FROM fmq_tx") == [(1,)], "its producer's"


def test_acks_and_marks_commit_with_the_block(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    engine.send("wishes", b"one")
    with engine.consumer("wishes", group="shop") as consumer:
        [wish] = consumer.poll()
        with pytest.raises(fmq.RollBack), transaction.atomic(using):
            outbox.transaction().ack(wish)
            raise fmq.RollBack
        wish.release()
        [wish] = consumer.poll()
        with transaction.atomic(using):
            outbox.transaction().ack(wish)
            outbox.transaction().mark("place", 7)
        assert consumer.poll() == []
    assert engine.mark("place") == (7, b"")
    assert engine.groups("shop")[0].unread == 0


# --- savepoints ---------------------------------------------------------------------------------


def test_messages_of_a_savepoint_that_is_rolled_back_are_dropped(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    with transaction.atomic(using):
        with pytest.raises(ValueError, match="first"), transaction.atomic(using):
            place(outbox, using, "the first message of the block")
            raise ValueError("first")
        place(outbox, using, "1")
        with pytest.raises(ValueError, match="outer"), transaction.atomic(using):
            place(outbox, using, "2")
            with transaction.atomic(using):
                place(outbox, using, "3")
            with pytest.raises(ValueError, match="inner"), transaction.atomic(using):
                place(outbox, using, "4")
                raise ValueError("inner")
            raise ValueError("outer")
        with transaction.atomic(using):
            place(outbox, using, "5")
            with pytest.raises(IntegrityError), transaction.atomic(using):
                outbox.transaction().send("orders", b"6")
                Order.objects.using(using).create(name="5")
    assert rows(database) == messages(engine) == ["1", "5"]


def test_savepoints_that_the_program_sets_by_hand_count_too(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    with transaction.atomic(using):
        transaction.clean_savepoints(using)
        before = transaction.savepoint(using)
        place(outbox, using, "0")
        transaction.savepoint_rollback(before, using)
        place(outbox, using, "1")
        transaction.clean_savepoints(using)  # now the names of savepoints begin anew
        again = transaction.savepoint(using)
        assert again == before
        place(outbox, using, "2")
        transaction.savepoint_rollback(again, using)
        transaction.savepoint_commit(again, using)
        place(outbox, using, "3")
    with transaction.atomic(using):
        place(outbox, using, "4")
    assert rows(database) == messages(engine) == ["1", "3", "4"]


def test_random_blocks_leave_rows_and_messages_alike(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    chosen = random.Random(SEED)
    number = iter(range(10**6))

    def some(depth: int) -> None:
        with transaction.atomic(using, savepoint=depth == 0 or chosen.random() < 0.8):
            for _ in range(chosen.randrange(4)):
                match chosen.randrange(3 if depth < 4 else 1):
                    case 0:
                        place(outbox, using, f"{next(number):06}")
                    case _:
                        try:
                            some(depth + 1)
                        except ZeroDivisionError:
                            if connections[using].needs_rollback:
                                raise
            if chosen.random() < 0.35:
                raise ZeroDivisionError

    for _ in range(60):
        with suppress(ZeroDivisionError):
            some(0)
    assert rows(database) == messages(engine)
    assert rows(database)


# --- on_commit, requests, threads, databases ----------------------------------------------------


def test_functions_of_on_commit_find_the_messages(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    found: list[list[str]] = []

    def look() -> None:
        found.append(messages(engine))
        assert fmq.current_transaction(engine) is None
        with pytest.raises(fmq.bind.BindError, match="no atomic block"):
            outbox.transaction()

    def fail() -> None:
        raise ValueError("in on_commit")

    with transaction.atomic(using):
        place(outbox, using, "1")
        transaction.on_commit(look, using)
        assert found == []
    with pytest.raises(fmq.RollBack), transaction.atomic(using):
        place(outbox, using, "2")
        transaction.on_commit(look, using)
        raise fmq.RollBack
    with pytest.raises(ValueError, match="in on_commit"), transaction.atomic(using):
        place(outbox, using, "3")
        transaction.on_commit(fail, using)
    assert found == [["1"]]
    assert rows(database) == messages(engine) == ["1", "3"]


def test_a_view_with_atomic_requests_sends_with_its_request(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    from django.core.handlers.base import BaseHandler

    def view(request: HttpRequest) -> HttpResponse:
        place(outbox, using, request.GET["order"])
        if "fails" in request.GET:
            raise fmq.RollBack
        return HttpResponse(status=201)

    settings = connections[using].settings_dict
    settings["ATOMIC_REQUESTS"] = True
    try:
        handle = BaseHandler().make_view_atomic(view)
        made = RequestFactory()
        with override_settings(ALLOWED_HOSTS=["*"]):
            assert handle(made.get("/", {"order": "1"})).status_code == 201
            with pytest.raises(fmq.RollBack):
                handle(made.get("/", {"order": "2", "fails": "1"}))
            handle(made.get("/", {"order": "3"}))
    finally:
        settings["ATOMIC_REQUESTS"] = False
    assert rows(database) == messages(engine) == ["1", "3"]


def test_each_thread_has_its_own_block(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    def place_some(first: int) -> None:
        for number in range(first, first + 5):
            with suppress(fmq.RollBack), transaction.atomic(using):
                place(outbox, using, str(number))
                if number % 2:
                    raise fmq.RollBack
        leave(using)

    threads = [threading.Thread(target=place_some, args=(first,)) for first in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(database)) == 9
    assert rows(database) == sorted(messages(engine))


def test_blocks_of_two_databases_send_each_with_its_own(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox, tmp_path: Path
) -> None:
    """The block of the other database does not commit what is sent with this one."""
    if using != "outbox_sqlite":
        folder = tmp_path / "second"
        folder.mkdir()
        other: Database = Sqlite(folder)
        make_tables(other)
        second = point_at(other, outbox=True)
        theirs = attach(engine, second, producer="second")
        theirs.register()
        with pytest.raises(fmq.RollBack), transaction.atomic(using), transaction.atomic(second):
            place(outbox, using, "1")
            place(theirs, second, "2")
            raise fmq.RollBack
        with transaction.atomic(using):
            place(outbox, using, "3")
            with pytest.raises(fmq.RollBack), transaction.atomic(second):
                place(theirs, second, "4")
                raise fmq.RollBack
            with transaction.atomic(second):
                place(theirs, second, "5")
            assert messages(engine) == ["5"]
        assert (rows(database), rows(other)) == (["3"], ["5"])
        assert messages(engine) == ["5", "3"]
        leave(second)


def test_two_engines_send_with_one_block(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox, tmp_path: Path
) -> None:
    with fmq.open(tmp_path / "log") as log:
        also = attach(log, using, producer="log")
        also.register()
        with transaction.atomic(using):
            place(outbox, using, "1")
            also.transaction().send("orders", b"1")
        with pytest.raises(fmq.RollBack), transaction.atomic(using):
            place(outbox, using, "2")
            also.transaction().send("orders", b"2")
            raise fmq.RollBack
        with pytest.raises(MarkMoved), transaction.atomic(using):
            place(outbox, using, "3")
            also.transaction().mark("place", 1, expect=7)  # its prepare fails, after the other's
        assert messages(log) == messages(engine) == rows(database) == ["1"]
        assert log.undecided() == engine.undecided() == []


def test_code_that_is_not_given_the_outbox_finds_its_transaction(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    """So an adapter sends with the block, for example that of taskiq."""
    with transaction.atomic(using):
        tx = fmq.current_transaction(engine)
        assert tx is outbox.transaction()
        tx.send("orders", b"1")
    assert fmq.current_transaction(engine) is None
    assert messages(engine) == ["1"]


# --- in doubt, and refused ----------------------------------------------------------------------


class AnswerLost(sqlite3.Connection):
    """A connection whose next commit raises an error, after it has happened or not."""

    raises: BaseException | None = None
    happens = True

    def commit(self) -> None:
        error, self.raises = self.raises, None
        if error is None or self.happens:
            super().commit()
        elif self.in_transaction:
            super().rollback()
        if error is not None:
            raise error


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[tuple[str, Callable[[bool, BaseException], None]]]:
    """An alias, and a function that makes its next commit raise."""
    database = Sqlite(tmp_path)
    make_tables(database)
    alias = point_at(database, outbox=True)
    options: Any = connections[alias].settings_dict["OPTIONS"]
    options["factory"] = AnswerLost

    def lose(happens: bool, error: BaseException) -> None:
        driver = connections[alias].connection
        driver.happens, driver.raises = happens, error

    yield alias, lose
    del options["factory"]
    leave(alias)


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine, tmp_path: Path, lossy: Any, happens: bool
) -> None:
    alias, lose = lossy
    outbox = attach(engine, alias, producer=PRODUCER)
    outbox.register()
    with pytest.raises(fmq.bind.InDoubt) as caught, transaction.atomic(alias):
        place(outbox, alias, "1")
        lose(happens, sqlite3.OperationalError("disk I/O error"))
    assert caught.value.outcome is not None
    assert (caught.value.outcome.state == "committed") == happens
    with transaction.atomic(alias):
        place(outbox, alias, "2")
    there = ["1", "2"] if happens else ["2"]
    assert rows(Sqlite(tmp_path)) == messages(engine) == there


@pytest.mark.parametrize("happens", [True, False])
def test_an_interrupt_while_the_database_commits_is_asked_about(
    engine: fmq.Engine, tmp_path: Path, lossy: Any, happens: bool
) -> None:
    alias, lose = lossy
    outbox = attach(engine, alias, producer=PRODUCER)
    outbox.register()
    with pytest.raises(KeyboardInterrupt), transaction.atomic(alias):
        place(outbox, alias, "1")
        lose(happens, KeyboardInterrupt())
    engine.settle()
    assert rows(Sqlite(tmp_path)) == messages(engine) == (["1"] if happens else [])
    assert engine.undecided() == []


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    """A constraint that is checked at COMMIT, as Django's own foreign keys are."""
    told(database, "DROP TABLE IF EXISTS lines")
    told(
        database,
        "CREATE TABLE lines (name varchar(99) REFERENCES orders DEFERRABLE INITIALLY DEFERRED)",
    )
    with pytest.raises(IntegrityError), transaction.atomic(using):
        with connections[using].cursor() as cursor:
            cursor.execute("INSERT INTO lines VALUES ('no such order')")
        place(outbox, using, "1")
        transaction.on_commit(lambda: pytest.fail("it did not commit"), using)
    told(database, "DROP TABLE lines")
    with transaction.atomic(using):
        place(outbox, using, "2")
    assert rows(database) == messages(engine) == ["2"]
    assert engine.undecided() == []


def test_a_transaction_that_the_engine_refuses_rolls_both_back(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    """Nothing of the block is left in the connection, which would commit it later."""
    with pytest.raises(MarkMoved), transaction.atomic(using):
        place(outbox, using, "1")
        outbox.transaction().mark("place", 1, expect=7)
        transaction.on_commit(lambda: pytest.fail("it did not commit"), using)
    with transaction.atomic(using):
        place(outbox, using, "2")
    assert rows(database) == messages(engine) == ["2"]


def test_a_transaction_that_was_ended_by_hand_is_refused(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox
) -> None:
    with pytest.raises(fmq.bind.BindError, match="was ended inside"), transaction.atomic(using):
        place(outbox, using, "1")
        connections[using].connection.commit()
        with connections[using].cursor() as cursor:
            cursor.execute("BEGIN" if using == "outbox_sqlite" else "SELECT 1")
    assert messages(engine) == []


def test_nothing_is_sent_outside_of_a_block(
    engine: fmq.Engine, using: str, outbox: DjangoOutbox
) -> None:
    with pytest.raises(fmq.bind.BindError, match=r"no atomic block.*engine\.send"):
        outbox.transaction()
    transaction.set_autocommit(False, using)
    with (
        transaction.atomic(using),
        pytest.raises(fmq.bind.BindError, match="AUTOCOMMIT off"),
    ):
        outbox.transaction()
    transaction.rollback(using)
    transaction.set_autocommit(True, using)
    with transaction.atomic(using):
        tx = outbox.transaction()
        for by_hand in (tx.prepare, tx.commit, tx.rollback):
            with pytest.raises(WrongState, match="must not call"):
                by_hand()
    with pytest.raises(WrongState):
        tx.send("orders", b"late")
    assert messages(engine) == []


def test_a_backend_without_outboxes_is_refused(engine: fmq.Engine, tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    make_tables(database)
    plain = point_at(database)
    outbox = attach(engine, plain, producer=PRODUCER)
    with (
        transaction.atomic(plain),
        pytest.raises(fmq.bind.BindError, match=r'ENGINE to "fmq\.bind\.django\.sqlite3"'),
    ):
        outbox.transaction()
    leave(plain)


def test_an_outbox_sends_with_a_block_of_fmq(
    engine: fmq.Engine, database: Database, using: str, outbox: DjangoOutbox, tmp_path: Path
) -> None:
    """The outbox gives the transaction of the block, and refuses that of another engine."""
    with atomic(engine, using, producer=PRODUCER) as tx:
        assert outbox.transaction() is tx
        place(outbox, using, "1")
    with pytest.raises(fmq.RollBack), atomic(engine, using, producer=PRODUCER):
        place(outbox, using, "2")
        raise fmq.RollBack
    with (
        fmq.open(tmp_path / "log") as log,
        atomic(log, using, producer="log"),
        pytest.raises(fmq.bind.BindError, match="another engine"),
    ):
        outbox.transaction()
    with (
        transaction.atomic(using),
        pytest.raises(fmq.bind.BindError, match=r"fmq\.bind\.django\.attach"),
        atomic(engine, using),
    ):
        pass
    assert rows(database) == messages(engine) == ["1"]


def test_a_database_that_may_lose_commits_is_refused_if_strict(
    database: Database, using: str, tmp_path: Path
) -> None:
    loss = "PRAGMA synchronous = NORMAL" if "sqlite" in using else "SET synchronous_commit = off"
    with connections[using].cursor() as cursor:
        cursor.execute(loss)
    with fmq.open(tmp_path / "strict", fmq.Options(strict_bind=True)) as engine:
        outbox = attach(engine, using, producer=PRODUCER)
        outbox.register()
        with pytest.raises(fmq.bind.NotDurable), transaction.atomic(using):
            place(outbox, using, "1")
        assert messages(engine) == []
    assert rows(database) == []


# --- the first message of a database ------------------------------------------------------------


def test_a_missing_table_is_named(engine: fmq.Engine, database: Database, using: str) -> None:
    told(database, "DROP TABLE fmq_tx")
    outbox = attach(engine, using, producer=PRODUCER)
    with pytest.raises(fmq.bind.NoMarkerTable) as caught, transaction.atomic(using):
        place(outbox, using, "1")
    assert database.ddl in str(caught.value)
    fmq.bind.create_table(connections[using])
    outbox.register()
    with transaction.atomic(using):
        place(outbox, using, "1")
    assert rows(database) == messages(engine) == ["1"]


def test_the_first_message_registers_the_producer(
    engine: fmq.Engine, database: Database, using: str
) -> None:
    """In SQLite the first block of a new database fails. The next one registers beforehand."""
    outbox = attach(lambda: engine, using, producer=PRODUCER)  # the engine may come later
    if using == "outbox_sqlite":
        with (
            pytest.raises(fmq.bind.BindError, match="Do the work again"),
            transaction.atomic(using),
        ):
            place(outbox, using, "1")
        assert rows(database) == messages(engine) == []
    with transaction.atomic(using):
        place(outbox, using, "1")
    assert rows(database) == messages(engine) == ["1"]


def test_another_process_finds_the_producer_registered(
    database: Database, using: str, tmp_path: Path
) -> None:
    for order in ("1", "2"):
        with fmq.open(tmp_path / "one") as engine:
            outbox = attach(engine, using, producer=PRODUCER)
            if order == "1":
                outbox.register()
            with transaction.atomic(using):
                place(outbox, using, order)
            there = messages(engine)
    assert rows(database) == there == ["1", "2"]


def test_a_database_that_is_busy_leaves_nothing_sent(engine: fmq.Engine, tmp_path: Path) -> None:
    """SQLite has one writer."""
    database = Sqlite(tmp_path)
    make_tables(database)
    using = point_at(database, outbox=True)
    connections[using].settings_dict["OPTIONS"]["timeout"] = 0.1
    outbox = attach(engine, using, producer=PRODUCER)
    outbox.register()
    other = database.connect()
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="locked"), transaction.atomic(using):
        outbox.transaction().send("orders", b"1")
    other.rollback()
    other.close()
    with transaction.atomic(using):
        place(outbox, using, "2")
    assert rows(database) == messages(engine) == ["2"]
    del connections[using].settings_dict["OPTIONS"]["timeout"]
    leave(using)


def test_an_outbox_that_is_dropped_is_not_found(engine: fmq.Engine, using: str) -> None:
    outbox = attach(engine, using, producer=PRODUCER)
    outbox.register()
    del outbox
    with transaction.atomic(using):
        assert fmq.current_transaction(engine) is None

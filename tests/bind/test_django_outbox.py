"""An outbox in Django's TestCase, whose database is in memory and never commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase

import fmq
from fmq.bind.django import atomic, attach
from fmq.testing import SentMessages, outbox
from tests.bind.databases import ORDERS
from tests.bind.django_shop import Order

MEMORY = "memory"
ORDERS_IN_MEMORY = Order.objects.using(MEMORY)
# As an application has it: one object of a module, which no test may let near a journal.
NOWHERE = Path("/no-such-directory/shop")
engine = fmq.connect(NOWHERE, lazy=True)


@atomic(engine, MEMORY, producer="checkout")
def place(order: str, *, tx: fmq.Transaction, fails: bool = False) -> None:
    """Send an order as an application does."""
    ORDERS_IN_MEMORY.create(name=order)
    tx.send("orders", order.encode())
    if fails:
        raise ValueError(order)


def orders() -> list[str]:
    return [each.name for each in ORDERS_IN_MEMORY.order_by("name")]


def make_orders() -> None:
    with connections[MEMORY].cursor() as cursor:
        cursor.execute(ORDERS)


class InTestCase(TestCase):
    """What a block does inside of the block that a TestCase has around each test."""

    databases = frozenset([MEMORY])
    box: SentMessages

    @classmethod
    def setUpClass(cls) -> None:
        make_orders()
        super().setUpClass()

    def setUp(self) -> None:
        self.box = self.enterContext(outbox(engine))

    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.box]

    def test_a_block_that_ends_has_sent_and_one_that_raises_has_not(self) -> None:
        place("1")
        with pytest.raises(ValueError, match="2"):
            place("2", fails=True)
        place("3")
        assert orders() == self.bodies() == ["1", "3"]

    def test_each_test_begins_without_rows_and_messages(self) -> None:
        assert orders() == self.bodies() == []
        place("1")

    test_each_test_begins_without_rows_and_messages_whichever_is_first = (
        test_each_test_begins_without_rows_and_messages
    )

    def test_a_swallowed_error_is_reported_as_in_production(self) -> None:
        with pytest.raises(TransactionManagementError), atomic(engine, MEMORY) as tx:
            ORDERS_IN_MEMORY.create(name="1")
            tx.send("orders", b"1")
            with pytest.raises(IntegrityError):
                ORDERS_IN_MEMORY.create(name="1")
        place("2")
        assert orders() == self.bodies() == ["2"]

    def test_savepoints_of_the_program_work(self) -> None:
        with atomic(engine, MEMORY) as tx:
            ORDERS_IN_MEMORY.create(name="1")
            with pytest.raises(ValueError, match="inner"), transaction.atomic(MEMORY):
                ORDERS_IN_MEMORY.create(name="2")
                raise ValueError("inner")
            tx.send("orders", b"1")
        assert orders() == self.bodies() == ["1"]

    def test_functions_of_on_commit_find_the_messages(self) -> None:
        found: list[list[str]] = []
        with self.captureOnCommitCallbacks(using=MEMORY, execute=True):
            with atomic(engine, MEMORY) as tx:
                tx.send("orders", b"1")
                transaction.on_commit(lambda: found.append(self.bodies()), MEMORY)
            with pytest.raises(fmq.RollBack), atomic(engine, MEMORY):
                transaction.on_commit(lambda: found.append(["never"]), MEMORY)
                raise fmq.RollBack
            assert found == []
        assert found == [["1"]]

    def test_a_block_inside_of_the_programs_block_is_refused_as_in_production(self) -> None:
        with (
            transaction.atomic(MEMORY),
            pytest.raises(fmq.bind.BindError, match="open already"),
            atomic(engine, MEMORY),
        ):
            pass
        with (
            atomic(engine, MEMORY),
            pytest.raises(fmq.bind.BindError, match="open already"),
            atomic(engine, MEMORY),
        ):
            pass
        assert self.bodies() == []

    def test_a_connection_can_be_bound_without_atomic(self) -> None:
        with engine.transaction(producer="checkout", bind=connections[MEMORY]) as tx:
            ORDERS_IN_MEMORY.create(name="1")
            tx.send("orders", b"1")
        assert orders() == self.bodies() == ["1"]


AGAIN = "outbox_memory"
attached = attach(engine, AGAIN, producer="checkout")


@transaction.atomic(AGAIN)
def place_in_requests_block(order: str, *, fails: bool = False) -> None:
    """Send an order as an application does with ATOMIC_REQUESTS."""
    Order.objects.using(AGAIN).create(name=order)
    attached.transaction().send("orders", order.encode())
    if fails:
        raise ValueError(order)


class OfAnAttachedOutbox(TestCase):
    """What an outbox that is attached to an alias does inside of the block of a TestCase."""

    databases = frozenset([AGAIN])
    box: SentMessages

    @classmethod
    def setUpClass(cls) -> None:
        with connections[AGAIN].cursor() as cursor:
            cursor.execute(ORDERS)
        super().setUpClass()

    def setUp(self) -> None:
        self.box = self.enterContext(outbox(engine))

    def bodies(self) -> list[str]:
        assert sorted(each.name for each in Order.objects.using(AGAIN).all()) == sorted(
            message.body.decode() for message in self.box
        ), "rows and messages agree at each look"
        return [message.body.decode() for message in self.box]

    def test_the_outermost_block_of_the_program_sends(self) -> None:
        place_in_requests_block("1")
        assert self.bodies() == ["1"]
        with pytest.raises(ValueError, match="2"):
            place_in_requests_block("2", fails=True)
        with transaction.atomic(AGAIN, durable=True):
            place_in_requests_block("3")
            with pytest.raises(ValueError, match="4"):
                place_in_requests_block("4", fails=True)
            assert len(self.box) == 1
        assert self.bodies() == ["1", "3"]
        with pytest.raises(fmq.RollBack), transaction.atomic(AGAIN):
            place_in_requests_block("5")
            raise fmq.RollBack
        assert self.bodies() == ["1", "3"]

    def test_each_test_begins_without_messages(self) -> None:
        assert self.bodies() == []
        place_in_requests_block("1")
        assert self.bodies() == ["1"]

    test_each_test_begins_without_messages_whichever_is_first = (
        test_each_test_begins_without_messages
    )

    def test_outside_of_a_block_is_refused_as_in_production(self) -> None:
        with pytest.raises(fmq.bind.BindError, match="no atomic block"):
            attached.transaction()
        assert fmq.current_transaction() is None

    def test_a_block_without_a_savepoint_is_refused(self) -> None:
        """Nothing would show when it ends."""
        with (
            transaction.atomic(AGAIN, savepoint=False),
            pytest.raises(fmq.bind.BindError, match="savepoint=False"),
        ):
            attached.transaction()

    def test_functions_of_on_commit_find_the_messages(self) -> None:
        found: list[list[str]] = []
        with self.captureOnCommitCallbacks(using=AGAIN, execute=True), transaction.atomic(AGAIN):
            place_in_requests_block("1")
            transaction.on_commit(lambda: found.append(self.bodies()), AGAIN)
        assert found == [["1"]]

    def test_the_current_transaction_is_found(self) -> None:
        with transaction.atomic(AGAIN):
            tx = fmq.current_transaction(engine)
            assert tx is attached.transaction()


def test_an_attached_outbox_outside_of_a_test_case_commits() -> None:
    """As in a TransactionTestCase."""
    with connections[AGAIN].cursor() as cursor:
        cursor.execute(ORDERS)
    with outbox(engine) as box:
        found: list[int] = []
        with transaction.atomic(AGAIN):
            place_in_requests_block("1")
            transaction.on_commit(lambda: found.append(len(box)), AGAIN)
        with pytest.raises(ValueError, match="2"):
            place_in_requests_block("2", fails=True)
        assert found == [1]
        assert [each.body for each in box] == [b"1"]
    Order.objects.using(AGAIN).all().delete()
    assert not NOWHERE.exists()


@pytest.fixture
def box() -> Iterator[SentMessages]:
    make_orders()
    with outbox(engine) as box:
        yield box
    ORDERS_IN_MEMORY.all().delete()


def test_a_block_outside_of_a_test_case_commits(box: SentMessages) -> None:
    """As in a TransactionTestCase. What waits for on_commit runs, and finds the messages."""
    found: list[int] = []
    with atomic(engine, MEMORY) as tx:
        ORDERS_IN_MEMORY.create(name="1")
        tx.send("orders", b"1")
        transaction.on_commit(lambda: found.append(len(box)), MEMORY)
    with pytest.raises(ValueError, match="2"):
        place("2", fails=True)
    assert found == [1]
    assert not connections[MEMORY].in_atomic_block
    assert orders() == ["1"]
    assert [each.body for each in box] == [b"1"]


def test_a_commit_that_the_database_refuses_sends_nothing(box: SentMessages) -> None:
    with connections[MEMORY].cursor() as cursor:
        cursor.execute("CREATE TABLE lines (name REFERENCES orders DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(IntegrityError), atomic(engine, MEMORY) as tx:
        with connections[MEMORY].cursor() as cursor:
            cursor.execute("INSERT INTO lines VALUES ('no such order')")
        tx.send("orders", b"1")
    assert not connections[MEMORY].in_atomic_block
    assert list(box) == []
    place("2")
    assert orders() == ["2"]
    with connections[MEMORY].cursor() as cursor:
        cursor.execute("DROP TABLE lines")
    assert not NOWHERE.exists()

"""Messages that follow a session which commits by itself: with its rows, or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, object_session, scoped_session, sessionmaker

import fmq
import fmq.bind
from fmq.bind.sqlalchemy import Outbox, attach
from fmq.errors import WrongState
from tests.bind.orm import AnswerLost, Order, driver_of, rows
from tests.bind.orm import database as made
from tests.bind.shop import PRODUCER, messages

Sessions = sessionmaker[Session]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "shop") as engine:
        yield engine


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    # A pool of one connection, which the session holds while its commit is checked.
    options = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 1}
    database = made(tmp_path, connect_args={"factory": AnswerLost}, **options)
    yield database
    database.dispose()


@pytest.fixture
def sessions(database: Engine) -> Sessions:
    return sessionmaker(database)


@pytest.fixture
def outbox(sessions: Sessions, engine: fmq.Engine) -> Outbox:
    return attach(sessions, engine, producer=PRODUCER)


def order(outbox: Outbox, session: Session, name: str) -> None:
    session.add(Order(name=name))
    outbox.of(session).send("orders", name.encode())


def test_messages_are_sent_when_their_session_commits(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions() as session:
        order(outbox, session, "one")
        order(outbox, session, "two")
        assert messages(engine) == []
        session.commit()
        assert messages(engine) == ["one", "two"]
        order(outbox, session, "three")
        session.commit()
    with sessions.begin() as session:
        order(outbox, session, "four")
    assert rows(database) == messages(engine) == ["one", "two", "three", "four"]
    assert engine.undecided() == []


def test_a_mark_without_messages_is_set_when_its_session_commits(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions.begin() as session:
        outbox.of(session).mark("place", 7)
        session.add(Order(name="one"))
        assert engine.mark("place") is None
    assert engine.mark("place") == (7, b"")
    assert rows(database) == ["one"]


def test_messages_of_a_session_that_does_not_commit_are_dropped(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """The session is rolled back, closed or left by an exception. Its next transaction works."""
    with sessions() as session:
        for end in (session.rollback, session.close, session.invalidate):
            order(outbox, session, "one")
            end()
            session.commit()
        order(outbox, session, "one")
    with pytest.raises(fmq.RollBack), sessions.begin() as session:
        order(outbox, session, "one")
        raise fmq.RollBack
    with sessions.begin() as session:
        order(outbox, session, "two")
    assert rows(database) == messages(engine) == ["two"]
    assert engine.undecided() == []


def test_a_session_without_messages_marks_nothing(
    database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions.begin() as session:
        outbox.of(session)
        session.add(Order(name="one"))
    with database.connect() as connection:
        marks = connection.scalar(text("SELECT count(*) FROM fmq_tx"))
    assert rows(database) == ["one"]
    assert marks == 1, "its producer's"


def sends(outbox: Outbox, sessions: Sessions, event_name: str) -> None:
    """Register a flush event that sends messages."""

    def told(session: Session, *_: object) -> None:
        for new in session.new:
            outbox.of(session).send("orders", new.name.encode())

    event.listen(sessions, event_name, told)


@pytest.mark.parametrize("event_name", ["before_flush", "after_flush"])
def test_a_first_message_of_a_flush_commits_with_its_session(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox, event_name: str
) -> None:
    """The commit flushes, and only the flush event sends."""
    sends(outbox, sessions, event_name)
    with sessions() as session:
        session.add(Order(name="1"))
        session.commit()
        session.add(Order(name="dropped"))
        session.flush()
        session.rollback()
        session.add(Order(name="2"))
        outbox.of(session)
        session.commit()
        with contextlib.suppress(ValueError), session.begin_nested():
            session.add(Order(name="dropped"))
            session.flush()
            raise ValueError
        session.add(Order(name="3"))
        session.commit()
    with sessions.begin() as session:
        session.add(Order(name="4"))
        with session.begin_nested():
            session.add(Order(name="5"))
    assert rows(database) == messages(engine) == ["1", "2", "3", "4", "5"]
    assert engine.undecided() == []


def test_a_message_of_an_objects_hook_commits_with_its_session(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    def inserted(mapper: object, connection: object, order: Order) -> None:
        session = object_session(order)
        assert session is not None
        outbox.of(session).send("orders", order.name.encode())

    event.listen(Order, "after_insert", inserted)
    try:
        with sessions.begin() as session:
            session.add(Order(name="1"))
    finally:
        event.remove(Order, "after_insert", inserted)
    assert rows(database) == messages(engine) == ["1"]


def test_objects_that_a_flush_adds_are_flushed_before_the_prepare(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """A hook adds an object after the flush, for which another hook sends the first message."""

    def add_one(session: Session, context: object) -> None:
        if session.get(Order, "2") is None:
            session.add(Order(name="2"))

    def told(session: Session, *_: object) -> None:
        for new in session.new:
            if new.name == "2":
                outbox.of(session).send("orders", b"2")

    event.listen(sessions, "after_flush_postexec", add_one)
    event.listen(sessions, "before_flush", told)
    with sessions.begin() as session:
        session.add(Order(name="1"))
    assert rows(database) == ["1", "2"]
    assert messages(engine) == ["2"]


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_first_message_that_comes_too_late_fails_the_commit(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox, asked_before: bool
) -> None:
    """A hook that runs after the outbox sends it. The rows must not commit alone."""

    def send(session: Session) -> None:
        outbox.of(session).send("orders", b"1")

    event.listen(sessions, "before_commit", send)
    with sessions() as session:
        session.add(Order(name="1"))
        if asked_before:
            outbox.of(session)
        with pytest.raises(fmq.bind.BindError, match="comes too late"):
            session.commit()
        session.rollback()
        assert rows(database) == messages(engine) == []
        order(outbox, session, "2")
        with pytest.raises(WrongState):
            session.commit()
    event.remove(sessions, "before_commit", send)
    with sessions.begin() as session:
        order(outbox, session, "3")
    assert rows(database) == messages(engine) == ["3"]


def test_an_unused_transaction_of_an_outbox_sends_nothing_later(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions() as session:
        tx = outbox.of(session)
        event.listen(sessions, "before_commit", lambda _: tx.send("orders", b"1"))
        session.add(Order(name="1"))
        with pytest.raises(WrongState):
            session.commit()
    assert rows(database) == messages(engine) == []


def test_a_first_message_after_the_commit_is_refused(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """The rows are committed, and the error says that the message was not sent."""

    def send(session: Session) -> None:
        with pytest.raises(fmq.bind.BindError, match="comes too late"):
            outbox.of(session)

    event.listen(sessions, "after_commit", send)
    with sessions.begin() as session:
        session.add(Order(name="1"))
    assert rows(database) == ["1"]
    assert messages(engine) == []


def test_a_commit_that_bypasses_the_outbox_is_refused(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """It is that of the connection, or of Session.begin() with a savepoint still open."""
    with sessions() as session:
        order(outbox, session, "1")
        session.flush()
        with pytest.raises(fmq.bind.BindError, match=r"call session\.commit"):
            session.connection().commit()
        session.rollback()
    with pytest.raises(fmq.bind.BindError, match="end savepoints"), sessions.begin() as session:
        session.begin_nested()
        order(outbox, session, "2")
    with sessions.begin() as session:
        order(outbox, session, "3")
    assert rows(database) == messages(engine) == ["3"]
    assert engine.undecided() == []


def test_a_message_of_a_savepoint_that_is_rolled_back_is_dropped(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions() as session:
        with contextlib.suppress(ValueError), session.begin_nested():
            order(outbox, session, "before the first message")
            raise ValueError
        order(outbox, session, "one")
        with contextlib.suppress(ValueError), session.begin_nested():
            order(outbox, session, "two")
            with session.begin_nested():
                order(outbox, session, "three")
            raise ValueError
        with session.begin_nested():
            order(outbox, session, "four")
            assert messages(engine) == []
        assert messages(engine) == [], "the release of a savepoint is no commit"
        with contextlib.suppress(IntegrityError), session.begin_nested():
            order(outbox, session, "one")
        session.commit()
    assert rows(database) == messages(engine) == ["one", "four"]


@pytest.mark.parametrize("around", [False, True])
def test_a_message_of_a_savepoint_whose_flush_failed_is_dropped(
    engine: fmq.Engine,
    database: Engine,
    sessions: Sessions,
    outbox: Outbox,
    *,
    around: bool,
) -> None:
    """SQLAlchemy's event names the flush only, and the savepoint ends without an event."""
    with sessions() as session:
        order(outbox, session, "one")
        session.flush()
        outer = session.begin_nested() if around else None
        with contextlib.suppress(IntegrityError), session.begin_nested():
            order(outbox, session, "two")
            session.flush()
            order(outbox, session, "three")
            session.add(Order(name="one"))
            session.flush()
        order(outbox, session, "four")
        if outer is not None:
            outer.rollback()
            order(outbox, session, "five")
        session.commit()
    expected = ["one", "five"] if around else ["one", "four"]
    assert rows(database) == messages(engine) == expected


def test_releasing_a_savepoint_before_the_first_statement_commits_nothing(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions() as session:
        with session.begin_nested():
            order(outbox, session, "one")
        session.rollback()
    assert rows(database) == messages(engine) == []


def test_a_savepoint_that_is_open_at_the_end_is_committed_along(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions() as session:
        session.begin_nested()
        order(outbox, session, "one")
        session.commit()
    assert rows(database) == messages(engine) == ["one"]


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_of_unknown_outcome_is_checked_at_once(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox, happens: bool
) -> None:
    """The caller of commit gets a typed error with what the check found."""
    with sessions() as session:
        order(outbox, session, "one")
        tx_id = outbox.of(session).tx_id
        driver_of(session).happens = happens
        with pytest.raises(fmq.bind.InDoubt) as caught:
            session.commit()
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert caught.value.outcome == engine.outcome(tx_id)
        session.rollback()
        order(outbox, session, "two")
        session.commit()
    assert rows(database) == messages(engine) == (["one", "two"] if happens else ["two"])


def test_a_commit_that_the_database_refuses_rolls_both_back(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """A deferred foreign key fails at COMMIT.

    The transaction is still open, so there is no doubt.
    """
    with database.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE lines (name REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"
        )
    with pytest.raises(IntegrityError), sessions.begin() as session:
        session.execute(text("INSERT INTO lines VALUES ('no such order')"))
        order(outbox, session, "one")
        tx_id = outbox.of(session).tx_id
    assert rows(database) == messages(engine) == []
    assert engine.outcome(tx_id).state == "rolled back"


def test_an_interrupt_while_the_database_commits_is_asked_about(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """`after_rollback` comes though the database has committed, so it proves nothing."""

    def interrupt(session: Session) -> None:
        raise KeyboardInterrupt

    event.listen(sessions, "after_commit", interrupt, insert=True)
    with pytest.raises(KeyboardInterrupt), sessions.begin() as session:
        order(outbox, session, "one")
    assert rows(database) == messages(engine) == ["one"]


@pytest.mark.parametrize("happens", [True, False])
def test_the_release_of_a_savepoint_does_not_prove_the_commit(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox, happens: bool
) -> None:
    """`after_commit` comes for both.

    Here the commit is interrupted, and only the release has it.
    """
    with pytest.raises(KeyboardInterrupt), sessions.begin() as session:
        with session.begin_nested():
            order(outbox, session, "one")
        driver = driver_of(session)
        driver.happens, driver.error = happens, KeyboardInterrupt()
    assert rows(database) == messages(engine) == (["one"] if happens else [])


def test_a_message_is_redelivered_if_the_session_with_its_ack_does_not_commit(
    engine: fmq.Engine, sessions: Sessions, outbox: Outbox
) -> None:
    engine.send("wishes", b"one")
    with sessions() as session, engine.consumer("wishes", group="shop") as consumer:
        [wish] = consumer.poll()
        outbox.of(session).ack(wish)
        session.rollback()
        wish.release()
        [wish] = consumer.poll()
        outbox.of(session).ack(wish)
        session.commit()
        assert consumer.poll() == []
    assert engine.groups("shop")[0].unread == 0


def test_an_error_that_another_hook_swallows_after_the_marker_is_checked(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """PostgreSQL would roll back at COMMIT and report success, so the database is asked."""

    def swallow(session: Session) -> None:
        with contextlib.suppress(OperationalError):
            session.execute(text("INSERT INTO nonsense VALUES (1)"))

    event.listen(sessions, "before_commit", swallow)
    with sessions.begin() as session:
        order(outbox, session, "one")
        tx_id = outbox.of(session).tx_id
    assert engine.outcome(tx_id).decided_by == "checker"
    assert rows(database) == messages(engine) == ["one"]


def test_objects_that_cannot_be_flushed_prepare_nothing(
    engine: fmq.Engine, database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    with sessions.begin() as session:
        order(outbox, session, "one")
    with sessions() as session:
        order(outbox, session, "one")
        tx_id = outbox.of(session).tx_id
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
        order(outbox, session, "two")
        session.commit()
    assert rows(database) == messages(engine) == ["one", "two"]
    with pytest.raises(fmq.errors.UnknownTransaction):
        engine.outcome(tx_id)


def test_a_commit_that_was_refused_cannot_be_tried_again_without_its_messages(
    tmp_path: Path, database: Engine
) -> None:
    """The prepare was refused, so a second commit would commit the rows alone."""
    sessions = sessionmaker(database)
    with fmq.open(tmp_path / "small", fmq.Options(transactions_max=1)) as engine:
        other = engine.transaction()
        other.prepare()
        outbox = attach(sessions, engine, producer=PRODUCER)
        with sessions() as session:
            order(outbox, session, "one")
            with pytest.raises(fmq.errors.TooMany):
                session.commit()
            with pytest.raises(WrongState):
                session.commit()
            with pytest.raises(WrongState):
                outbox.of(session).send("orders", b"one more")
            session.rollback()
            other.commit()
            order(outbox, session, "two")
            session.commit()
        assert rows(database) == messages(engine) == ["two"]


def test_a_database_that_may_lose_commits_is_refused_on_request(
    tmp_path: Path, database: Engine, sessions: Sessions
) -> None:
    """The session has begun already, but commits nothing."""
    database.dispose()
    event.listen(
        database, "connect", lambda driver, record: driver.execute("PRAGMA synchronous = NORMAL")
    )
    for strict in (True, False):
        options = fmq.Options(strict_bind=strict)
        with fmq.open(tmp_path / f"{strict}", options) as engine, sessions() as session:
            outbox = attach(session, engine, producer=PRODUCER)
            order(outbox, session, "one")
            error = fmq.bind.NotDurable if strict else fmq.bind.DurabilityWarning
            with pytest.raises(error, match="synchronous=NORMAL"):
                session.commit()  # warnings are errors here
            session.rollback()
            assert rows(database) == messages(engine) == []


def test_a_session_without_the_outbox_is_refused(
    database: Engine, sessions: Sessions, outbox: Outbox
) -> None:
    """Its commit would silently send nothing."""
    with pytest.raises(fmq.bind.BindError, match="attach its sessionmaker"):
        outbox.of(Session(database))
    with pytest.raises(fmq.bind.BindError, match="attach its sessionmaker"):
        outbox.of(sessionmaker(database)())


def test_a_session_and_a_scoped_session_can_be_attached(
    engine: fmq.Engine, database: Engine
) -> None:
    with Session(database) as session:
        order(attach(session, engine), session, "one")
        session.commit()
    scoped = scoped_session(sessionmaker(database))
    outbox = attach(scoped, engine)
    scoped.add(Order(name="two"))
    outbox.of(scoped).send("orders", b"two")
    scoped.commit()
    scoped.remove()
    assert rows(database) == messages(engine) == ["one", "two"]


def test_a_session_that_works_in_another_database_is_refused(
    engine: fmq.Engine, database: Engine, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = made(tmp_path / "other")
    sessions = sessionmaker(database, binds={Order: other})
    outbox = attach(sessions, engine)
    with pytest.raises(fmq.bind.BindError, match="another database"), sessions.begin() as session:
        order(outbox, session, "one")
    assert rows(database) == rows(other) == messages(engine) == []
    other.dispose()


def test_only_the_session_ends_its_transaction(sessions: Sessions, outbox: Outbox) -> None:
    with sessions() as session:
        tx = outbox.of(session)
        with pytest.raises(fmq.bind.BindError, match="commit the session"), tx:
            pass
    with sessions() as session:
        for step in (outbox.of(session).prepare, outbox.of(session).commit):
            with pytest.raises(WrongState):
                step()


def test_an_outbox_needs_the_marker_table(
    engine: fmq.Engine, database: Engine, sessions: Sessions
) -> None:
    with database.begin() as connection:
        connection.execute(text("DROP TABLE fmq_tx"))
    with pytest.raises(fmq.bind.NoMarkerTable):
        attach(sessions, engine)
    fmq.bind.create_table(database)
    with sessions.begin() as session:
        order(attach(sessions, engine), session, "one")
    assert messages(engine) == ["one"]


@pytest.mark.parametrize("wrong", ["engine", "asyncio", "nothing"])
def test_an_outbox_is_attached_to_sessions_alone(
    engine: fmq.Engine, database: Engine, wrong: str
) -> None:
    """An engine has no commit to follow, and sessions of asyncio have no events.

    The error says what to use.
    """
    others = {"engine": database, "asyncio": async_sessionmaker(), "nothing": None}
    with pytest.raises(fmq.bind.BindError, match="no sessions that can be followed: an outbox is"):
        attach(others[wrong], engine, producer=PRODUCER)  # type: ignore[arg-type]

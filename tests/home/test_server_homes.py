"""Homes in servers: each of them keeps what a home needs, also while it is killed.

`python -m tests.home.conformance --server postgresql` does the same, longer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import fmq
from benchmarks.peers.programs import Folder
from fmq.errors import BadName, HomeRefused, TakenOver
from fmq.home.home_addresses import objects_at
from fmq.home.home_look import find_owner
from fmq.home.objects import KeyTaken, NoAnswer
from tests.home.conformance import check_calls, check_deaths, check_long, check_one_winner
from tests.home.other_streams import home_in_stream
from tests.home.processes import Fleet
from tools.home_servers import KINDS, AzuriteHome, HomeServer, NatsHome, PostgresHome, missing


@pytest.fixture(scope="module", params=sorted({*KINDS} - {"seaweedfs"}))
def server(request: pytest.FixtureRequest) -> Iterator[HomeServer]:
    """Not SeaweedFS: it takes five seconds to start, and tests/home/test_bucket_home.py has S3."""
    if why := missing(request.param):
        pytest.skip(why)
    # Not in tmp_path, which only its owner may enter: the server may have a user of its own.
    folder = Folder("fmq-home-")
    made = KINDS[request.param](folder.path)
    yield made
    made.end()
    folder.remove()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresHome]:
    folder = Folder("fmq-home-")
    made = PostgresHome(folder.path, standby=True)
    yield made
    made.end()
    folder.remove()


def bodies(engine: fmq.Engine) -> list[bytes]:
    return [bytes(each.body) for each in engine.read("t")]


def test_a_server_keeps_what_a_home_needs(server: HomeServer) -> None:
    check_calls(server.home("calls"))
    check_one_winner(server.home("race"), machines=4, slots=40)
    check_long(server.home("long"), slots=300)


def test_the_server_dies_while_an_engine_sends(server: HomeServer, tmp_path: Path) -> None:
    check_deaths(server, tmp_path, deaths=2)


@pytest.mark.parametrize("where", ["nats://127.0.0.1:1", "postgresql://127.0.0.1:1/postgres"])
def test_a_client_may_wait_for_a_server_that_is_away(where: str) -> None:
    """Nobody listens at port 1. A client asks again after a ConnectionError, and not after a
    HomeRefused.
    """
    with pytest.raises(ConnectionError):
        find_owner(f"{where}/shop")


def test_another_machine_takes_over(server: HomeServer, tmp_path: Path) -> None:
    """Appends larger than an entry, the floor, and what is below it, too."""
    home = server.home("shop")
    large = bytes(range(256)) * 8192
    options = fmq.Options(segment_bytes=4 << 20)
    with fmq.open(tmp_path / "a", options, home=home) as first:
        for number in range(9):
            first.send("t", large + b"%d" % number)
        first.checkpoint()  # 16 MiB lie above the floor, so it is raised
        first.send("t", b"last")
        sent = bodies(first)
        assert len(sent) == 10
        with fmq.open(tmp_path / "b", home=home) as second:
            with pytest.raises(TakenOver):
                first.send("t", b"not sent")
            assert bodies(second) == sent
    objects = objects_at(home)
    (floor,) = objects.names("floors")
    _, *kept = objects.names("slots")  # the first of all is kept
    assert kept[0] == floor
    assert int(floor) > len(kept)
    objects.close()


def test_an_entry_that_is_on_no_standby_yet_is_no_answer(postgres: PostgresHome) -> None:
    """PostgreSQL shows it as soon as nobody waits for the standby any more. So it counts only after
    a later commit has waited.
    """
    objects = objects_at(postgres.home("alone"))
    objects.create("slots/0", b"before")
    postgres.stop_standby()
    with ThreadPoolExecutor(2) as two:
        creating = two.submit(objects.create, "slots/1", b"mine")
        stop_waiting(postgres)
        with pytest.raises(NoAnswer, match="synchronous replication"):
            creating.result()
        reading = two.submit(objects.read, "slots/1")
        waiting_for_standby(postgres)
        assert not reading.done()
        postgres.start_standby()
        assert reading.result() == b"mine"
    with pytest.raises(KeyTaken):
        objects.create("slots/1", b"mine")
    objects.close()


def waiting_for_standby(postgres: PostgresHome) -> int:
    """Return the process of the server that waits for the standby, once there is one."""
    ask = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        with psycopg.connect(conninfo(postgres)) as connection:
            for (pid,) in connection.execute(ask):
                return int(pid)
    postgres.start_standby()  # so that nobody waits for ever
    raise AssertionError("nobody waits for the standby")


def stop_waiting(postgres: PostgresHome) -> None:
    pid = waiting_for_standby(postgres)
    with psycopg.connect(conninfo(postgres)) as connection:
        connection.execute("SELECT pg_cancel_backend(%s)", (pid,))


def conninfo(postgres: PostgresHome) -> str:
    return postgres.home("shop").replace("/postgres/shop", "/postgres")


def test_a_database_cannot_take_durability_away(postgres: PostgresHome) -> None:
    """What a database says of its sessions does not count for a home."""
    with psycopg.connect(conninfo(postgres), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS lazy")
        connection.execute("CREATE DATABASE lazy")
        connection.execute("ALTER DATABASE lazy SET synchronous_commit = off")
    objects = objects_at(postgres.home("shop").replace("/postgres/shop", "/lazy/shop"))
    objects.create("slots/0", b"")
    postgres.stop_standby()
    with ThreadPoolExecutor(1) as one:
        creating = one.submit(objects.create, "slots/1", b"mine")
        waiting_for_standby(postgres)
        postgres.start_standby()
        creating.result()
    objects.close()


def test_threads_share_a_home(server: HomeServer) -> None:
    objects = objects_at(server.home("threads"))
    made: list[str] = []

    def make(number: int) -> None:
        for n in range(20):
            objects.create(f"pieces/{number}-{n}", b"%d" % n)
            assert objects.read(f"pieces/{number}-{n}") == b"%d" % n
            made.append(f"{number}-{n}")

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert objects.names("pieces") == sorted(made)
    assert len(made) == 160
    objects.close()


def test_the_child_of_a_fork_leaves_the_connections_alone(postgres: PostgresHome) -> None:
    objects = objects_at(postgres.home("forked"))
    objects.create("slots/0", b"")
    ask = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO fmq_home%'"
    with psycopg.connect(conninfo(postgres), autocommit=True) as connection:
        before = connection.execute(ask).fetchall()
        while len(before) > 1:  # of earlier tests: the server is about to end those
            before = connection.execute(ask).fetchall()
    child = os.fork()
    if not child:
        objects.close()
        os._exit(0)
    os.waitpid(child, 0)
    objects.create("slots/1", b"")
    with psycopg.connect(conninfo(postgres)) as connection:
        assert connection.execute(ask).fetchall() == before
    objects.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("postgresql://postgres@/nowhere/shop?host={host}", 'database "nowhere" does not exist'),
        ("postgresql://me:secret@127.0.0.1:9/shop/shop", "Connection refused"),
        ("nats://me:secret@127.0.0.1:9/shop", "no servers available"),
    ],
)
def test_a_server_that_is_away_is_refused(
    postgres: PostgresHome, tmp_path: Path, address: str, why: str
) -> None:
    """At once, and without the password."""
    address = address.format(host=postgres.home("").partition("host=")[2])
    with pytest.raises(HomeRefused, match=why) as caught:
        fmq.open(tmp_path / "a", home=address)
    assert "Nothing was changed" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["postgresql://host/shop", "postgresql:///", "nats://host", "nats:///shop"]
)
def test_an_address_names_the_home(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadName, match="not the address of a home"):
        fmq.open(tmp_path / "a", home=address)


def test_a_stream_that_may_lose_entries_is_refused(tmp_path: Path) -> None:
    if why := missing("nats"):
        pytest.skip(why)
    folder = Folder("fmq-home-")
    server = KINDS["nats"](folder.path)
    try:
        for wrong in ({"max_msgs": 9}, {"storage": "memory"}):
            home = home_in_stream(server, "wrong-" + next(iter(wrong)), **wrong)
            with pytest.raises(HomeRefused, match="its stream may lose entries"):
                fmq.open(tmp_path / "a", home=home)
    finally:
        server.end()
        folder.remove()


def test_a_machine_stands_by_for_a_server_that_is_away(server: HomeServer, tmp_path: Path) -> None:
    """It is started before the server of its home, and waits for it."""
    if isinstance(server, NatsHome) and len(server.nodes) > 1:
        pytest.skip("the others answer")
    home = server.home("away")
    server.stop()
    try:
        machines = Fleet(tmp_path, home=home)
        standby = machines.standby("a", after=1)
        # To open a store of a cloud asks nothing: its first look has no answer.
        is_cloud = isinstance(server, AzuriteHome)
        standby.wait_for("gives no answer" if is_cloud else "This machine waits for it")
    finally:
        server.start()
    try:
        standby.wait_for("taken over")
        assert standby.end() == 0
    finally:
        machines.end()

"""A process that serves asks the databases of `--resolve` what its clients have left undecided."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import fmq
from fmq.remote.remote_engine import RemoteEngine
from tests.bind.databases import Database, Postgres, rows
from tests.bind.shop import PRODUCER
from tests.remote.served import PATIENCE_SECONDS, ROOT, serving

AT_ONCE = '{"check_after_seconds": 0.1, "checker_threads": 1}'
# A client that dies in the middle of a bound transaction: before the database's commit, or after.
CLIENT = """
import os, sys
from pathlib import Path
import fmq
from tests.bind.databases import Postgres, Sqlite

path, address, folder, dies = sys.argv[1:]
connection = (Postgres(address) if address else Sqlite(Path(folder))).connect()
client = fmq.connect(path, start=False)
tx = client.transaction(tx_id=dies, producer="checkout", bind=connection)
tx.__enter__()
connection.execute(f"INSERT INTO orders VALUES ('{dies}')")
tx.send("orders", dies.encode())
tx.seal()
if dies == "after":
    connection.commit()
os._exit(0)
"""


def die(path: Path, database: Database, when: str) -> None:
    """Run a client that dies `when`."""
    address = database.address if isinstance(database, Postgres) else ""
    arguments = [str(path), address, str(path.parent), when]
    subprocess.run([sys.executable, "-c", CLIENT, *arguments], cwd=ROOT, check=True)


def wait_until_decided(client: RemoteEngine) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.undecided():
        assert time.monotonic() < deadline, client.undecided()
        client.read("nothing", timeout=0.02)


def test_the_server_decides_as_the_database_of_a_dead_client_did(
    tmp_path: Path, database: Database
) -> None:
    """No other client knows the database, and none has a checker."""
    path = tmp_path / "d"
    resolve = f"{PRODUCER}={database.address}"
    with serving(path, "--options", AT_ONCE, "--resolve", resolve) as served:
        die(path, database, "before")
        die(path, database, "after")
        with fmq.connect(path, start=False) as client:
            wait_until_decided(client)
            assert client.outcome("before").state == "rolled back"
            assert client.outcome("after").state == "committed"
            assert [each.body for each in client.read("orders")] == [b"after"]
            assert rows(database) == ["after"]
            assert client.stats().trouble is None
        served.end()


def test_transactions_left_undecided_are_decided_before_clients_come(
    tmp_path: Path, database: Database
) -> None:
    """As `fmq.open(resolve=)` does. The process that served the client knew no database."""
    path = tmp_path / "d"
    with serving(path) as served:
        die(path, database, "after")
        served.end()
    (tmp_path / "notify").unlink()
    resolve = f"{PRODUCER}={database.address}"
    with serving(path, "--resolve", resolve) as served:
        with fmq.connect(path, start=False) as client:
            assert client.undecided() == []
            assert client.outcome("after").state == "committed"
        served.end()


def refused(*command: str) -> str:
    """Run a command that fails; return what it says."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["checkout"], "must be like checkout=sqlite"),
        (["=sqlite:///shop.db"], "must be like checkout=sqlite"),
        (["a=sqlite:///a.db", "a=sqlite:///b.db"], "twice"),
        (["a=oracle://host/shop"], "is no address of a database"),
        (["a=django://default"], "DJANGO_SETTINGS_MODULE"),
    ],
)
def test_a_mistake_in_resolve_is_refused_in_words(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    resolve = [part for each in arguments for part in ("--resolve", each)]
    assert said in refused(sys.executable, "-m", "fmq", "serve", str(tmp_path / "d"), *resolve)


@pytest.mark.parametrize(
    ("module", "address", "extra"),
    [
        ("psycopg", "postgresql://host/shop", "fmq-engine[postgres]"),
        ("django.db", "django://default", "fmq-engine[django]"),
        ("sqlalchemy", "mysql+pymysql://host/shop", "fmq-engine[sqlalchemy]"),
        ("psycopg", "postgresql+psycopg://host/shop", "fmq-engine[sqlalchemy,postgres]"),
    ],
)
def test_an_address_whose_driver_is_missing_names_what_to_install(
    tmp_path: Path, module: str, address: str, extra: str
) -> None:
    """As on a machine where the extra was not installed."""
    missing = f"import sys; sys.modules[{module!r}] = None"
    code = f"{missing}; from fmq.cli.main import main; sys.exit(main())"
    arguments = ["serve", str(tmp_path / "d"), "--resolve", f"checkout={address}"]
    done = refused(sys.executable, "-c", code, *arguments)
    assert f"pip install '{extra}'" in done

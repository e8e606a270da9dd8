"""The SQL of `fmq ddl mysql` and of the page for MySQL, on a real MariaDB.

fmq binds no such connection; its users mark and ask themselves, so what they copy must be right.
"""

from __future__ import annotations

import getpass
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import fmq.bind
from benchmarks.peers.programs import Folder, find_program, start

PAGE = Path(__file__).parent.parent.parent / "docs" / "databases" / "mysql.md"
READY_SECONDS_MAX = 60
END = "this is the end of the answer"


def statements() -> list[str]:
    """Return the page's statements: mark, tombstone, look."""
    [block] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = re.sub(r"--.*", "", block)
    return [each.strip() for each in code.split(";") if each.strip()]


MARK, TOMBSTONE, LOOK = statements()
NOW = "UNIX_TIMESTAMP()"


def filled(statement: str, tx_id: str, deadline: str = f"{NOW} + 3600") -> str:
    values = {":store": "'a store'", ":tx_id": f"'{tx_id}'", ":deadline": deadline}
    return re.sub(r":\w+", lambda found: values[found[0]], statement)


class Session:
    """One connection, through the server's own client."""

    def __init__(self, socket: str, database: str = "") -> None:
        client = find_program("mariadb")
        assert client is not None
        self._client = subprocess.Popen(
            [client, "--no-defaults", "-u", "root", "-S", socket, "-N", "-n", "-f", database],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *each: str) -> list[str]:
        """Return the rows that the statements find, or the errors."""
        stdin, stdout = self._client.stdin, self._client.stdout
        assert stdin is not None
        assert stdout is not None
        for statement in (*each, f"SELECT '{END}'"):
            stdin.write(f"{statement};\n")
        stdin.flush()
        lines = iter(stdout.readline, "")
        told = [line.strip() for line in iter(lambda: next(lines), f"{END}\n")]
        # An error comes with the statement in a frame.
        return [line for line in told if line.startswith("ERROR")] or told

    def ask(self, tx_id: str) -> str:
        """Return the answer of a checker, written as on the page."""
        told = self.run(filled(TOMBSTONE, tx_id))
        if told:
            return f"unknown: {told[0]}"
        return {"C": "commit", "R": "rollback"}[self.run(filled(LOOK, tx_id))[0]]

    def kill(self) -> None:
        self._client.kill()
        self.close()

    def close(self) -> None:
        self._client.communicate()


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    """The socket of a server of the tests' own."""
    server, install = find_program("mariadbd"), find_program("mariadb-install-db")
    if server is None or install is None:
        pytest.skip("there is no MariaDB server on this machine, so MySQL's statements are not run")
    own = Folder("fmq-mariadb-")
    folder = own.path
    where = ["--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder}/data"]
    where.append(f"--tmpdir={folder}")
    access = "--auth-root-authentication-method=normal"
    subprocess.run([install, *where, access], check=True, capture_output=True)
    with (folder / "log").open("wb") as log:
        socket = f"{folder}/socket"
        command = [server, *where, f"--socket={socket}", "--skip-networking"]
        running = start(command, None, log)
    try:
        wait_until_it_serves(running, socket, folder / "log")
        yield socket
    finally:
        running.terminate()
        running.wait()
        own.remove()


def wait_until_it_serves(server: subprocess.Popen[bytes], socket: str, log: Path) -> None:
    end = time.monotonic() + READY_SECONDS_MAX
    while True:
        with closing(Session(socket)) as session:
            try:
                if session.run("SELECT 1") == ["1"]:
                    return
            except (BrokenPipeError, StopIteration):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()


@pytest.fixture
def checker(socket: str) -> Iterator[Session]:
    """The checker of the page, in a database with an empty marker table."""
    with closing(Session(socket)) as session:
        session.run("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "USE shop")
        session.run("SET SESSION innodb_lock_wait_timeout = 1")
        assert session.run(fmq.bind.ddl("mysql")) == []
        yield session


@pytest.fixture
def producer(socket: str, checker: Session) -> Iterator[Session]:
    with closing(Session(socket, "shop")) as session:
        yield session


def test_a_checker_answers_only_after_a_marked_transaction_ended(
    checker: Session, producer: Session
) -> None:
    for end, answer in (("COMMIT", "commit"), ("ROLLBACK", "rollback")):
        assert producer.run("BEGIN", filled(MARK, end), "SELECT ROW_COUNT()") == ["1"]
        assert "ERROR 1205" in checker.ask(end)
        assert producer.run(end) == []
        assert checker.ask(end) == checker.ask(end) == answer


def test_a_producer_that_was_killed_has_rolled_back(checker: Session, producer: Session) -> None:
    assert producer.run("BEGIN", filled(MARK, "1"), "SELECT ROW_COUNT()") == ["1"]
    producer.kill()
    while (answer := checker.ask("1")).startswith("unknown"):
        pass  # until the server has noticed
    assert answer == "rollback"


def test_after_a_tombstone_the_producer_cannot_insert_its_marker(
    checker: Session, producer: Session
) -> None:
    assert checker.ask("1") == "rollback"
    [error] = producer.run("BEGIN", filled(MARK, "1"))
    assert "ERROR 1062" in error
    producer.run("ROLLBACK")
    assert checker.ask("1") == "rollback"


def test_a_marker_after_the_deadline_is_refused(producer: Session) -> None:
    mark = filled(MARK, "1", deadline=f"{NOW} - 1")
    assert producer.run("BEGIN", mark, "SELECT ROW_COUNT()") == ["0"]


def test_a_user_with_rights_to_read_only_answers_unknown(checker: Session) -> None:
    checker.run("SET SESSION TRANSACTION READ ONLY")
    assert checker.ask("1").startswith("unknown: ERROR 1792")
    checker.run("SET SESSION TRANSACTION READ WRITE")
    assert checker.ask("1") == "rollback"


def test_the_statement_of_ddl_leaves_a_table_that_is_there_as_it_is(checker: Session) -> None:
    """A program may run the statement at each start."""
    assert checker.ask("1") == "rollback"
    assert checker.run(fmq.bind.ddl("mysql")) == []
    assert checker.run("SELECT count(*) FROM fmq_tx") == ["1"]


def test_ddl_commits_what_was_done_before_it(checker: Session, producer: Session) -> None:
    """The page warns of it: the mark is committed before the prepare."""
    producer.run("BEGIN", filled(MARK, "1"), "CREATE TABLE made (name INT)", "ROLLBACK")
    assert checker.ask("1") == "commit"


def test_ids_are_compared_byte_by_byte_and_the_longest_fit(checker: Session) -> None:
    ids = ["a", "A", "a ", " a", "ä", "§" + "x" * 255]
    for tx_id in ids:
        assert checker.run(filled(MARK, tx_id), "SELECT ROW_COUNT()") == ["1"]
    assert checker.run("SELECT COUNT(*) FROM fmq_tx") == [str(len(ids))]
    [error] = checker.run(filled(MARK, "b").replace("'C'", "'c'"))
    assert "ERROR 4025" in error, "another state is refused"

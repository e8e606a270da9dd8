"""Real processes stand by for each other, and clients find the one that serves."""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.engines.home_moves import take_over
from fmq.engines.standby import Standby
from fmq.errors import BadOption, NotAStore, NotServed
from fmq.remote.owner_question import TIMES
from fmq.testing import FakeClock
from tests.home.processes import fleet

TLS = Path(__file__).parent.parent / "data" / "tls"
CERTIFICATE, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")


def token_at(path: Path, byte: str = "ab") -> str:
    path.touch(0o600)
    path.write_text(byte * 32)
    return str(path)


def bodies(engine: fmq.RemoteEngine) -> list[bytes]:
    return [bytes(each.body) for each in engine.read("t", limit=9999)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_client_goes_on_when_the_owner_is_gone(tmp_path: Path, number: signal.Signals) -> None:
    """It was killed, paused or ended. What was sent is there once, and a paused owner is fenced."""
    with fleet(tmp_path) as machines:
        first = machines.standby("a")
        first.wait_for("serving")
        second = machines.standby("b")
        second.wait_for("standing by")
        with fmq.connect(machines.home, token_file=str(machines.token), retry_for=30) as client:
            client.create_topic("t", queues=1)
            consumer = client.consumer("t", group="g")
            for each in range(5):
                client.send("t", b"%d" % each)
            held = consumer.poll(timeout=0)
            first.signal(number)
            for each in range(5, 9):
                client.send("t", b"%d" % each)
            if number is signal.SIGTERM:  # until it is gone, it may have served all of them
                assert first.ended() == 0
            client.send("t", b"9")
            assert bodies(client) == [b"%d" % each for each in range(10)]
            assert client.stats().path == str(tmp_path / "b")
            for delivery in held:
                delivery.ack()
            if number is signal.SIGSTOP:
                first.signal(signal.SIGCONT)
                assert "has taken over" in first.wait_for("has taken over")
                first.wait_for("standing by")
                assert second.end() == 0
                client.send("t", b"10")
                assert client.stats().path == str(tmp_path / "a")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_goes_on_for_a_process_that_only_serves(
    tmp_path: Path, number: signal.Signals
) -> None:
    """`fmq serve --home` is fenced when it wakes, and ends."""
    with fleet(tmp_path) as machines:
        first = machines.serve("a")
        first.wait_for("serving")
        machines.standby("b").wait_for("standing by")
        with fmq.connect(machines.home, token_file=str(machines.token), retry_for=30) as client:
            client.send("t", b"0")
            first.signal(number)
            client.send("t", b"1")
            assert bodies(client) == [b"0", b"1"]
            assert client.stats().path == str(tmp_path / "b")
        if number is signal.SIGSTOP:
            first.signal(signal.SIGCONT)
            # It is asked for signs of life only if the standby had come so far before the pause.
            with suppress(fmq.FmqError), fmq.connect(tmp_path / "a", start=False) as late:
                late.send("t", b"2")
            assert "has taken over" in first.wait_for("has taken over")
            assert first.process.wait(60) != 0


def test_a_loop_follows_the_owner(tmp_path: Path) -> None:
    async def send(home: str, token: str) -> list[bytes]:
        async with fmq.aio.connect(home, token_file=token) as client:
            await client.create_topic("t", queues=1)
            await asyncio.gather(*(client.send("t", b"%d" % each) for each in range(5)))
            first.signal(signal.SIGKILL)
            await asyncio.gather(*(client.send("t", b"%d" % each) for each in range(5, 10)))
            return [bytes(each.body) for each in await client.read("t")]

    with fleet(tmp_path) as machines:
        first = machines.standby("a")
        first.wait_for("serving")
        machines.standby("b").wait_for("standing by")
        found = asyncio.run(send(machines.home, str(machines.token)))
    assert sorted(found) == [b"%d" % each for each in range(10)]


def test_a_home_that_nobody_serves_is_refused_with_the_reason(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with pytest.raises(NotAStore, match="No such file or directory"):
        fmq.connect(home, retry_for=0)
    fmq.open(tmp_path / "a", home=home).close()
    with pytest.raises(NotServed, match="no process has said in the home where it serves"):
        fmq.connect(home, retry_for=0)


def test_an_engine_that_serves_over_tcp_is_found(tmp_path: Path) -> None:
    """Also if it serves only after it was opened, and if it serves elsewhere later."""
    home, token = f"file://{tmp_path}/home", tmp_path / "token"
    token.touch(0o600)
    token.write_text("ab" * 32)
    with fmq.open(tmp_path / "a", home=home) as engine:
        for _ in range(2):
            with engine.serve(tcp="127.0.0.1:0", token_file=str(token)) as serving:
                with fmq.connect(home, token_file=str(token)) as client:
                    client.send("t", b"1")
                assert serving.addresses
        with fmq.open(tmp_path / "b", home=home) as other:
            other.serve(tcp="127.0.0.1:0", token_file=str(token))
            with pytest.raises(fmq.TakenOver) as caught:
                engine.send("t", b"2")
            assert caught.value.address is None  # it took over before it served
            with fmq.connect(home, token_file=str(token)) as client:
                assert bodies(client) == [b"1", b"1"]


def test_a_machine_that_could_not_hear_the_owner_does_not_stand_by(tmp_path: Path) -> None:
    """It would take over from an owner that may be well."""
    home, token = f"file://{tmp_path}/home", tmp_path / "token"
    token.touch(0o600)
    token.write_text("ab" * 32)
    clock = FakeClock()

    def standby(tls_ca: str | None = None) -> closing[Standby]:
        where, mine = (home, str(tmp_path / "b")), "tcp://127.0.0.1:1"
        how: dict[str, Any] = {"after": 3600, "serves_at": mine, "token_file": str(token)}
        return closing(Standby(*where, None, clock, tls_ca=tls_ca, **how))

    with fmq.open(tmp_path / "a", home=home) as engine:
        for certificate, key in ((CERTIFICATE, KEY), (None, None)):
            door: dict[str, Any] = {"tls_cert": certificate, "tls_key": key}
            with engine.serve(tcp="127.0.0.1:0", token_file=str(token), **door):
                with standby(certificate) as hears:
                    assert not hears.may_take_over()
                with standby() as other:
                    if certificate is None:  # the last word counts
                        assert not other.may_take_over()
                        continue
                    with pytest.raises(BadOption, match=r"TLS at tcp://127.* when it.*--tls-ca"):
                        other.may_take_over()
                    clock.advance(7200)
                    with pytest.raises(BadOption):
                        other.may_take_over()
        engine.send("t", b"it is well")


def test_an_owner_that_served_over_tls_and_is_gone_is_taken_over_by_hand(tmp_path: Path) -> None:
    """Nobody watched its end, so nothing says that it is not well."""
    home, token = f"file://{tmp_path}/home", token_at(tmp_path / "token")
    with fmq.open(tmp_path / "a", home=home) as engine:
        engine.serve(tcp="127.0.0.1:0", token_file=token, tls_cert=CERTIFICATE, tls_key=KEY)
    where = home, str(tmp_path / "b"), None, FakeClock()
    how: dict[str, Any] = {"after": 3600, "serves_at": "tcp://127.0.0.1:1", "token_file": token}
    with closing(Standby(*where, **how)) as standby:
        with pytest.raises(BadOption, match=f"fmq take-over {home}$"):
            standby.may_take_over()
        take_over(home, str(tmp_path / "c"), None, FakeClock())
        assert standby.may_take_over()


def test_an_owner_that_refuses_a_machine_is_given_up_once_it_answers_nobody(tmp_path: Path) -> None:
    """A refusal is a sign of life, but not for ever. One question without an answer is no end."""
    home, clock = f"file://{tmp_path}/home", FakeClock()
    token, wrong = token_at(tmp_path / "token"), token_at(tmp_path / "wrong", "cd")
    where = home, str(tmp_path / "b"), None, clock
    how: dict[str, Any] = {"after": 3600, "serves_at": "tcp://127.0.0.1:1", "token_file": wrong}
    with fmq.open(tmp_path / "a", home=home) as owner:
        owner.serve(tcp="127.0.0.1:0", token_file=token)
        standby = Standby(*where, **how)
        assert not standby.may_take_over()
        question = standby._question
        question.close()  # from here on this test asks, and no thread
        question._thread.join()
        while standby.refusal is None:
            question.ask()
        clock.advance(7200)
        assert not standby.may_take_over()
    with closing(standby):
        assert not standby.may_take_over()  # reads what the owner has said last
        clock.advance(7200)
        for _ in range(TIMES):
            question.ask()
            assert not standby.may_take_over()
        question.ask()
        assert standby.may_take_over()


def test_a_server_ends_whichever_call_learns_of_the_next_owner(tmp_path: Path) -> None:
    """Here it is one of the program's own. So a machine that stands by is soon there again."""
    home = f"file://{tmp_path}/home"
    with (
        fmq.open(tmp_path / "a", home=home) as paused,
        paused.serve() as server,
        fmq.open(tmp_path / "b", home=home),
    ):
        with pytest.raises(fmq.TakenOver):
            paused.send("t", b"late")
        assert server.wait(60)

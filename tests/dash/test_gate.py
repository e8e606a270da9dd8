"""Who may read the pages, and which forms are theirs."""

from __future__ import annotations

import pytest

from fmq.dash.gate import SESSION_SECONDS, USED_MAX, Gate, new_token
from fmq.errors import BadOption
from fmq.testing import FakeClock

TOKEN = "0123456789abcdef"


@pytest.fixture
def gate(clock: FakeClock) -> Gate:
    return Gate(TOKEN, ["ops.example"], clock)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1:8787", True),
        ("[::1]:8787", True),
        ("192.0.2.7", True),
        ("localhost:8787", True),
        ("OPS.example", True),
        ("evil.example:8787", False),
        ("localhost.evil.example", False),
        ("ops.example.evil", False),
        ("", False),
    ],
)
def test_a_name_that_we_were_not_given_is_not_ours(gate: Gate, host: str, is_ours: bool) -> None:
    """A page of another site can point a name of its own at this machine, but no address."""
    assert gate.allows_host(host) == is_ours


@pytest.mark.parametrize("given", ["", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "é", "\udcff"])
def test_only_the_token_is_the_token(gate: Gate, given: str) -> None:
    assert not gate.is_token(given)
    assert gate.is_token(TOKEN)


def test_a_short_token_is_refused(clock: FakeClock) -> None:
    with pytest.raises(BadOption, match="at least 16 characters"):
        Gate(TOKEN[1:], (), clock)


def test_new_tokens_are_never_short_and_never_equal(clock: FakeClock) -> None:
    first, second = new_token(), new_token()
    assert first != second
    Gate(first, (), clock)


def test_a_session_ends_after_a_while_and_cannot_be_made(gate: Gate, clock: FakeClock) -> None:
    session = gate.new_session()
    assert gate.is_session(session)
    age, drawn, signed = session.split(".")
    younger = str(int(age) + 1)
    for forged in ("", ".", "..", f"{younger}.{drawn}.{signed}", f"{age}.{drawn}.", f"{drawn}.é"):
        assert not gate.is_session(forged)
    assert not Gate(TOKEN, (), clock).is_session(session), "each process signs with its own key"
    clock.advance(SESSION_SECONDS)
    assert not gate.is_session(session)


def test_a_form_is_good_once_and_for_its_reader_alone(gate: Gate) -> None:
    mine, other = gate.new_session(), gate.new_session()
    form = gate.form_token(mine)
    assert not gate.takes_form(other, form)
    assert not gate.takes_form(mine, mine), "a cookie is no token of a form"
    assert not gate.is_session(form), "a token of a form is no cookie"
    assert gate.takes_form(mine, form)
    assert not gate.takes_form(mine, form)
    assert not gate.takes_form(mine, "")


def test_tokens_that_were_used_take_a_bounded_room(gate: Gate) -> None:
    session = gate.new_session()
    for _ in range(USED_MAX + 10):
        assert gate.takes_form(session, gate.form_token(session))
    assert len(gate._used) == USED_MAX

"""What a reader does on a page: each act is asked for, done once, and only by its form."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

import fmq
from fmq.dash.dash_acts import ACTS
from tests.dash.dash_system import EVIL, OUT, Got, Reader, hanging_system, pages_of, written

WHY = {"reason": "a test", "by": "ann"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[fmq.Engine]:
    """A system of its own for each test, as acts change it."""
    with hanging_system(tmp_path / "shop") as engine:
        yield engine


@pytest.fixture
def actor(shop: fmq.Engine) -> Iterator[Reader]:
    with fmq.connect(shop.path, start=False) as client:
        yield Reader(pages_of(shop.path, client)).enter()


def form_of(reader: Reader, act: str) -> tuple[str, dict[str, str]]:
    """Return where the form of an act is sent, and what its fields have."""
    got = reader.get(f"act?{act}")
    assert got.status == 200, got.text
    where = re.search(r'<form method="post" action="([^"]*)"', got.body)
    assert where
    fields = {}
    for field in re.findall(r"<input [^>]*>", got.body):
        said = dict(re.findall(r'([a-z]+)="([^"]*)"', field))
        if said.get("type") != "checkbox" or " checked" in field:
            fields[said["name"]] = unescape(said.get("value", ""))
    return unescape(where[1]), fields | WHY


def do(reader: Reader, act: str, **filled: str) -> Got:
    where, form = form_of(reader, act)
    return reader.post(where, urlencode(form | filled))


def test_a_stuck_group_is_freed_from_its_page(shop: fmq.Engine, actor: Reader) -> None:
    """By the links that its page has."""
    links = actor.get("group?name=packing").links
    (out,) = [link for link in links if "do=put_out" in link]
    assert "1 message that it holds" in actor.get(out).text
    got = do(actor, out.partition("?")[2])
    assert (got.status, "p1 is out, and 1 message went back." in got.text) == (200, True)
    assert shop.group("packing").members() == []
    assert "nobody reads it" in actor.get("group?name=packing").text


def test_each_act_does_what_it_says(shop: fmq.Engine, actor: Reader) -> None:
    def says(act: str, **filled: str) -> str:
        got = do(actor, act, **filled)
        assert got.status == 200, got.text
        return got.text

    def group(name: str) -> fmq.GroupInfo:
        return shop.groups(name)[0]

    assert "Group mail is paused" in says("do=pause&group=mail")
    paused = group("mail").paused
    assert paused is not None and (paused.by, paused.reason) == ("ann", "a test")
    assert "goes on" in says("do=resume&group=mail")
    assert group("mail").paused is None
    assert "goes on" in says(f"do=resume&topic={quote(OUT)}")
    assert shop.queues(OUT)[0].paused is None
    assert "1 message went back" in says("do=release&group=packing&member=p1")
    assert shop.group("packing").in_hand()[0].state == "waits"
    assert "passed over" in says("do=skip&group=report&topic=orders&queue=0&offset=1&count=2")
    assert group("report").skipped == 2
    assert "were passed over" in says("do=purge&group=archive&topic=orders", to="4")
    assert group("archive").acked_below == 4
    assert "goes on there" in says("do=seek&group=archive&topic=orders", to="earliest")
    assert group("archive").acked_below == 0
    assert "3 at once, 0.5 a second, keys take turns" in says(
        "do=limit&group=archive", concurrency="3", rate="0.5", fair="1"
    )
    limit = group("archive").limit
    assert limit is not None and (limit.concurrency, limit.rate, limit.fair) == (3, 0.5, True)
    shop.group("archive").limit(concurrency=3)
    assert "It has no limit." in says("do=limit&group=archive", concurrency="")
    assert "1 message will be" in says(f"do=replay&group=mail&reason={quote(EVIL)}&upto=0")
    assert shop.dead_letters("mail").count() == 0


def test_a_limit_that_is_there_is_in_its_form(shop: fmq.Engine, actor: Reader) -> None:
    shop.group("mail").limit(rate=2.5, fair=True)
    _, form = form_of(actor, "do=limit&group=mail")
    assert (form["rate"], form["fair"]) == ("2.5", "1")
    assert "checked" in actor.get("act?do=limit&group=mail").body


def test_a_dead_letter_is_dropped_for_good(shop: fmq.Engine, actor: Reader) -> None:
    assert "Nothing takes it back." in actor.get("act?do=drop&group=mail&number=0").text
    assert "1 dead letter is gone." in do(actor, "do=drop&group=mail&number=0").text
    got = actor.get("act?do=drop&group=mail&upto=9")
    assert (got.status, "no such dead letters any more" in got.text) == (400, True)


def test_a_transaction_is_decided_with_a_name_and_a_reason(shop: fmq.Engine, actor: Reader) -> None:
    links = actor.get("transactions").links
    for tx_id, decision, state in (
        ("order-0", "commit", "committed"),
        ("order-1", "rollback", "rolled back"),
    ):
        (act,) = [link for link in links if f"id={tx_id}&decision={decision}" in link]
        assert "ask it first" in actor.get(act).text
        assert f"is {state}." in do(actor, act.partition("?")[2]).text
        outcome = shop.outcome(tx_id)
        assert (outcome.state, outcome.decided_by, outcome.reason) == (state, "ann", "a test")
    got = actor.get("act?do=decide&id=order-0&decision=rollback")
    assert (got.status, "is committed by now" in got.text) == (400, True)
    got = actor.get("act?do=decide&id=order-2&decision=commit&seal=another")
    assert (got.status, "not the one that was shown" in got.text) == (400, True)


def test_a_checker_is_asked_now(shop: fmq.Engine, actor: Reader) -> None:
    shop.checker("checkout")(lambda question: "commit")
    said = do(actor, "do=ask&id=order-2").text
    assert "asked now" in said and "none has answered: no process that is connected" in said
    shop.settle()
    assert shop.outcome("order-2").state == "committed"


def test_a_schedule_is_run_and_paused(shop: fmq.Engine, actor: Reader) -> None:
    pytest.importorskip("cronsim")
    shop.schedule("report", "0 3 * * *", "reports", b"report")
    assert "topic reports" in do(actor, "do=run&schedule=report").text
    assert [each.body for each in shop.read("reports")] == [b"report"]
    assert "Schedule report is paused" in do(actor, "do=pause&schedule=report").text
    (info,) = shop.schedules()
    assert info.paused is not None and info.paused.by == "ann"


def test_an_act_is_done_once_and_only_by_its_own_form(shop: fmq.Engine, actor: Reader) -> None:
    act = "do=pause&group=mail"
    where, form = form_of(actor, act)

    def sent(reader: Reader, **changed: str) -> int:
        return reader.post(where, urlencode(form | changed)).status

    other = Reader(actor.app).enter()
    stranger = Reader(actor.app)
    assert (sent(other), sent(stranger), sent(actor, form="x.y")) == (403, 401, 403)
    assert actor.get(f"{where}&{urlencode(form)}").status == 200, "a GET only asks"
    assert shop.groups("mail")[0].paused is None
    assert sent(actor) == 200
    shop.group("mail").resume()
    assert sent(actor) == 403, "a form that is sent again does nothing"
    assert shop.groups("mail")[0].paused is None


@pytest.mark.parametrize("missing", ["reason", "by"])
def test_an_act_without_a_reason_or_a_name_is_refused(
    shop: fmq.Engine, actor: Reader, missing: str
) -> None:
    got = do(actor, "do=pause&group=mail", **{missing: "  "})
    assert (got.status, "needs a reason and your name" in got.text) == (400, True)
    assert shop.groups("mail")[0].paused is None


def test_pages_that_only_look_have_no_acts(shop: fmq.Engine, client_only: Reader) -> None:
    before = written(shop)
    for page in ("./", "group?name=packing", "transactions", "dead?group=mail", "delayed"):
        assert not [link for link in client_only.get(page).links if link.startswith("act")]
    for act in ACTS:
        assert client_only.get(f"act?do={act}&group=mail").status == 403
        assert client_only.post(f"act?do={act}&group=mail", urlencode(WHY)).status == 403
    assert written(shop) == before


@pytest.fixture
def client_only(shop: fmq.Engine) -> Iterator[Reader]:
    with fmq.connect(shop.path, start=False) as client:
        yield Reader(pages_of(shop.path, client, read_only=True)).enter()


@pytest.mark.parametrize(
    ("act", "status", "says"),
    [
        ("", 404, "no such act"),
        ("do=explode", 404, "no such act"),
        ("do=pause&group=nobody", 404, "there is no group"),
        ("do=pause&topic=nothing", 404, "nothing"),
        ("do=pause", 404, "topic"),
        ("do=run&schedule=nothing", 404, "no schedule"),
        ("do=release&group=mail&member=nobody", 404, "nobody"),
        ("do=skip&group=mail&topic=orders&queue=0", 400, "must be a number"),
        ("do=purge&group=mail&topic=nothing", 404, "nothing"),
        ("do=replay&group=mail&number=9", 404, "9"),
        ("do=ask&id=never", 404, "never"),
    ],
)
def test_an_act_on_what_is_not_there_says_so(
    reader: Reader, act: str, status: int, says: str
) -> None:
    got = reader.get(f"act?{act}")
    assert (got.status, says in got.text) == (status, True), got.text


def test_what_is_typed_wrongly_changes_nothing(shop: fmq.Engine, actor: Reader) -> None:
    before = written(shop)
    for act, filled in (
        ("do=seek&group=mail&topic=orders", {"to": "soon"}),
        ("do=purge&group=mail&topic=orders", {"to": ""}),
        ("do=limit&group=mail", {"rate": "fast"}),
        ("do=limit&group=mail", {"rate": "nan"}),
        ("do=limit&group=mail", {"concurrency": "-1"}),
    ):
        assert do(actor, act, **filled).status == 400, act
    assert written(shop) == before


def test_the_log_says_who_did_what_and_why(
    shop: fmq.Engine, actor: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of acts that the journal has without a name. A line stays a line."""
    with caplog.at_level(logging.INFO, "fmq.dash"):
        act = "do=skip&group=report&topic=orders&queue=0&offset=1"
        do(actor, act, reason="damaged\nby hand")
    (line,) = caplog.messages
    assert line.startswith("Skip 1 message of orders/0, by ann: damaged\\nby hand.")

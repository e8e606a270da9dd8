"""What the pages say of a system in which something hangs, and what they never do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest

import fmq
from fmq.dash import router
from fmq.dash.dash_answers import PAGES
from fmq.testing import FakeClock
from tests.dash.dash_system import EVIL, OUT, TOKEN, Got, Reader, pages_of, written

ALL = (
    *("./", "group?name=packing", "group?name=mail", f"group?name={quote(OUT)}", "transactions"),
    *("tx?id=order-1", "tx?id=order-1&bodies=1", "tx?id=paid", "messages", "clients", "disk"),
    *("messages?topic=orders", f"messages?topic=orders&key={quote(OUT)}", "dead"),
    *("message?topic=orders&queue=0&offset=0", "dead?group=mail", "dead?group=mail&number=0"),
    *(f"dead?group=mail&reason={quote(EVIL)}", f"messages?topic={quote(OUT)}", "delayed", "log"),
)


def test_the_first_page_names_all_that_is_wrong(reader: Reader) -> None:
    """A worker that hangs, a slow group, one without members and undecided transactions."""
    said = reader.get("./").text
    assert "need you: group " in said and "group archive, group packing" in said
    assert "archive nobody reads it Nobody reads it, as it has no member now: 6 messages" in said
    assert "packing stuck orders/0/0 is held by p1 (process" in said
    assert "report falls behind 5 messages not acked" in said
    assert "transactions 3 undecided transactions the oldest, order-0 of checkout" in said
    assert "mail healthy: up to date It has given up 1 message" in said


def test_the_page_of_a_group_says_who_holds_what_and_which_command_frees_it(
    system: fmq.Engine, reader: Reader
) -> None:
    got = reader.get("group?name=packing")
    assert "orders/0/0 is held by p1" in got.text
    assert f"fmq group put-out {system.path} packing p1 --reason ..." in got.text
    assert "messages?topic=orders&queue=0&start=0" in got.links


def test_the_page_of_the_disk_shows_the_limits_that_count(reader: Reader) -> None:
    """In words and exactly; that unread messages are kept is one of them."""
    said = reader.get("disk").text
    limit = fmq.Options().retain_acked_bytes
    assert f"retain_acked_bytes {limit} (" in said and "keep_unread True" in said
    assert "messages not acked by" in said and "stay until they are acked" in said


def test_the_page_of_clients_marks_a_consumer_that_is_out(tmp_path: Path) -> None:
    """Its client may not know it yet."""
    with (
        fmq.open(tmp_path / "shop") as engine,
        engine.serve(),
        fmq.connect(engine.path) as client,
        client.consumer("t", group="g", member="w") as consumer,
    ):
        engine.send("t", b"0")
        consumer.poll()
        for says in ("w of g", "w of g (not a member now)"):
            reader = Reader(pages_of(engine.path, engine)).enter()
            said = reader.get("clients").text
            assert says in said and ("not a member" in said) == ("not" in says)
            engine.group("g").put_out("w", reason="it hangs")


@pytest.mark.parametrize("page", ALL)
def test_no_text_of_a_journal_becomes_markup(reader: Reader, page: str) -> None:
    got = reader.get(page)
    assert got.status == 200, got.text
    assert "<script>" not in got.body and "<img" not in got.body
    assert got.body.count("<script") == 1, "our own"
    assert "script-src 'self'" in got.headers["content-security-policy"]


def test_links_lead_to_pages_that_are_there(reader: Reader) -> None:
    """Each link of each page, also those with names that are markup."""
    seen: set[str] = set()
    left = ["./"]
    while left:
        page = left.pop()
        got = reader.get(page)
        assert got.status == 200, (page, got.text)
        seen.add(page)
        left += sorted({link for link in got.links if link != "#page"} - seen - set(left))
    assert {page.partition("?")[0] for page in seen} == {*PAGES, "act"}


def test_bodies_are_hidden_until_they_are_asked_for(reader: Reader) -> None:
    hidden = reader.get("tx?id=order-1").text
    assert EVIL not in hidden and "hidden" in hidden
    assert '"paid"' not in reader.get("messages?topic=orders").text
    assert EVIL in reader.get("tx?id=order-1&bodies=1").text
    assert EVIL in reader.get("message?topic=orders&queue=0&offset=0").text
    assert '"paid": true' in reader.get("message?topic=orders&queue=0&offset=5").text


def test_messages_are_found_by_offset_time_and_key(reader: Reader) -> None:
    def found(query: str) -> list[str]:
        words = reader.get(f"messages?topic=orders&{query}").text.split()
        return [word for word in words if word.startswith("orders/0/")]

    assert found("") == [f"orders/0/{offset}" for offset in range(6)]
    assert found("start=4") == ["orders/0/4", "orders/0/5"]
    assert found("start=2000-01-01") == found("")
    assert found("start=2100-01-01") == []
    assert found(f"key={quote(OUT)}") == [f"orders/0/{offset}" for offset in (4, 3, 2, 1, 0)]


def test_the_story_of_a_transaction_is_that_of_the_command(reader: Reader) -> None:
    said = reader.get("tx?id=order-1").text
    assert "1 message prepared" in said and "no checker has answered since" in said
    assert "1 message published at orders/0/5" in reader.get("tx?id=paid").text


def test_the_action_log_says_who_did_what_and_why(reader: Reader) -> None:
    said = reader.get("log").text
    assert f"is paused by {OUT}: {EVIL}" in said


@pytest.mark.parametrize(
    ("page", "status", "says"),
    [
        ("group?name=nobody", 404, "there is no group"),
        ("group", 404, "there is no group"),
        ("messages?topic=nothing", 404, "nothing"),
        ("messages?topic=orders&queue=7", 400, "has no queue 7"),
        ("messages?topic=orders&queue=x", 400, "must be a number"),
        ("messages?topic=orders&start=soon", 400, "no offset, and no time"),
        ("message?topic=orders&queue=0&offset=99", 400, "has no message 99"),
        ("message?topic=orders", 400, "must be a number"),
        ("tx?id=never", 404, "never"),
        ("dead?group=mail&number=77", 404, "77"),
        ("log?upto=x", 400, "must be a number"),
        ("nothing", 404, "There is no such page."),
        ("../etc/passwd", 404, "There is no such page."),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(
    reader: Reader, page: str, status: int, says: str
) -> None:
    got = reader.get(page)
    assert (got.status, says in got.text) == (status, True), got.text


def test_a_page_writes_nothing(system: fmq.Engine, reader: Reader) -> None:
    before = written(system)
    for page in ALL:
        reader.get(page)
        assert reader.post(page, "a=b").status == 405
    assert written(system) == before


def test_a_head_has_no_body(reader: Reader) -> None:
    got = asyncio.run(reader.ask("HEAD", "./"))
    assert (got.status, got.body) == (200, "")


# --- who may read --------------------------------------------------------------------------------


def test_nothing_is_shown_without_the_token(system: fmq.Engine, client: fmq.RemoteEngine) -> None:
    reader = Reader(pages_of(system.path, client))
    for page in (*ALL, "live/", "nothing"):
        got = reader.get(page)
        assert got.status in (401, 404) and "order" not in got.text.lower(), page
    got = reader.post("enter", "token=wrong")
    assert (got.status, "This is not the token." in got.text, reader.cookie) == (401, True, "")
    assert reader.get("dash.css").status == 200, "the page that asks for it has a style"


def test_the_token_leads_to_the_page_that_was_asked(
    system: fmq.Engine, client: fmq.RemoteEngine
) -> None:
    app = pages_of(system.path, client)
    assert 'name="to" value="tx?id=order-1"' in Reader(app).get("tx?id=order-1").body
    for to, where in (
        ("tx?id=order-1", "tx?id=order-1"),
        ("//evil.example", "./"),
        ("https://evil.example/", "./"),
        ("", "./"),
        ("tx?a\r\nset-cookie: b=c", "./"),
    ):
        reader = Reader(app)
        got = reader.post("enter", f"token={quote(TOKEN)}&to={quote(to)}")
        assert (got.status, got.headers["location"]) == (303, where)
        cookie = got.headers["set-cookie"]
        assert "; HttpOnly; SameSite=Lax" in cookie and "Path=/;" in cookie
        assert reader.get("./").status == 200


def test_a_session_ends(system: fmq.Engine, client: fmq.RemoteEngine) -> None:
    clock = FakeClock()
    reader = Reader(pages_of(system.path, client, clock=clock)).enter()
    clock.advance(11 * 3600)
    assert reader.get("clients").status == 200
    clock.advance(3600)
    assert reader.get("clients").status == 401


def test_a_name_of_another_site_shows_nothing(reader: Reader) -> None:
    reader.host = "evil.example"
    assert reader.get("./").status == 403
    assert reader.get("live/").status == 404


def test_a_form_that_is_too_long_is_refused(reader: Reader) -> None:
    assert reader.post("enter", "a" * 70_000).status == 413


# --- as an application ---------------------------------------------------------------------------


def test_it_may_be_mounted_below_a_path(system: fmq.Engine, client: fmq.RemoteEngine) -> None:
    reader = Reader(pages_of(system.path, client), root="/ops/dash")
    got = reader.get(".")
    assert (got.status, got.headers["location"]) == (307, "/ops/dash/")
    assert reader.post("enter", f"token={quote(TOKEN)}").headers["set-cookie"].count("/ops/dash/;")
    assert "Group packing" in reader.get("group?name=packing").text


def test_it_runs_within_fastapi(system: fmq.Engine) -> None:
    """With the engine of the program itself, which is no client."""
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    app = fastapi.FastAPI()
    app.mount("/dash", router(system, TOKEN, hosts=["testserver"]))
    browser = testclient.TestClient(app)
    got = browser.get("/dash", params={"token": TOKEN})
    assert got.status_code == 401 and str(got.url).startswith("http://testserver/dash/")
    assert browser.get("/dash/enter", params={"token": TOKEN}).status_code == 200
    assert "packing" in browser.get("/dash/").text
    got = browser.get("/dash/tx?id=order-1")
    assert "The files are on another machine" in got.text


def test_a_live_page_gets_its_live_part_alone(reader: Reader) -> None:
    got = reader.get("live/group?name=packing", leaves_after=1)
    assert got.headers["content-type"] == "text/event-stream"
    said = json.loads(got.body.removeprefix("data: ").removesuffix("\n\n"))
    assert "is held by p1" in said["live"] and "<nav" not in said["live"]
    page = reader.get("group?name=packing")
    assert 'data-from="live/group?name=packing"' in page.body
    assert "data-from" not in reader.get("messages").body


def test_a_page_says_that_no_process_serves_and_goes_on_when_one_does(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with fmq.open(path) as engine, engine.serve():
        engine.send("orders", b"one")
        client = fmq.connect(path, start=False, retry_for=0.1)
    with client:
        reader = Reader(pages_of(str(path), client)).enter()
        got = reader.get("./")
        assert (got.status, "does not answer" in got.text) == (503, True)
        said = json.loads(reader.get("live/", leaves_after=1).body.removeprefix("data: "))
        assert said["trouble"]
        with fmq.open(path) as engine, engine.serve():
            assert reader.get("./").status == 200


def test_a_mistake_of_ours_is_a_page_and_a_line_of_the_log(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Got:
        raise ZeroDivisionError("by a test")

    monkeypatch.setitem(PAGES, "clients", broken)
    got = reader.get("clients")
    assert (got.status, "ZeroDivisionError" in got.text) == (500, False)
    assert "by a test" in caplog.text

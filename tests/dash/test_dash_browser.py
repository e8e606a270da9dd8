"""The pages in a real browser: what a reader sees, on a desk, on a phone, by keyboard.

It needs a chromium of this machine. Tests wait by locators: the policy of the pages lets no script
evaluate a text, as `wait_for_function` does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import fmq
from fmq.dash.dash_server import DashServer
from tests.dash.dash_system import OUT, TOKEN, pages_of

api = pytest.importorskip("playwright.sync_api", reason="no playwright on this machine")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def url(system: fmq.Engine, client: fmq.RemoteEngine) -> Iterator[str]:
    with DashServer(pages_of(system.path, client), "127.0.0.1:0") as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        # The machine of the tests may allow no sandbox to root.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser says about the pages: errors of scripts, and what the policy refuses."""
    return []


@pytest.fixture
def page(browser: Any, url: str, complaints: list[str]) -> Iterator[Any]:
    context = browser.new_context()
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{url}enter?token={quote(TOKEN)}")
    yield page
    context.close()


def test_the_first_page_names_all_four_and_no_text_is_obeyed(
    page: Any, url: str, complaints: list[str]
) -> None:
    said = page.inner_text("main")
    for group, state in (("packing", "stuck"), ("report", "falls behind")):
        assert group in said and state in said
    assert "nobody reads it" in said and "3 undecided transactions" in said
    page.set_viewport_size({"width": 390, "height": 844})  # a phone
    for at in ("", f"group?name={quote(OUT)}", "tx?id=order-1&bodies=1", "log", "dead?group=mail"):
        page.goto(f"{url}{at}")
        assert page.evaluate("window.broken") is None
        # Nothing is cut off at the right.
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, at
    assert complaints == []


def test_a_page_that_is_open_shows_what_comes_and_keeps_the_focus(
    page: Any, url: str, system: fmq.Engine
) -> None:
    link = page.locator("#live a", has_text="packing").first
    link.focus()
    before = system.queues("orders")[0].next
    system.send("orders", b"one more")
    page.get_by_text("Live.").wait_for()
    page.locator("#live", has_text=f"{before + 1} messages").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "packing"


def test_an_act_asks_before_it_is_done(page: Any, url: str, system: fmq.Engine) -> None:
    """By keyboard alone, from the page of a group."""
    page.goto(f"{url}group?name=archive")
    page.get_by_role("link", name="pause", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Pause group archive").wait_for()
    assert system.groups("archive")[0].paused is None
    page.locator("[name=reason]:focus").wait_for()
    page.keyboard.type("by a test")
    page.keyboard.press("Tab")
    page.keyboard.type("ann")
    page.keyboard.press("Enter")
    page.get_by_text("Group archive is paused.").wait_for()
    paused = system.groups("archive")[0].paused
    assert paused is not None and (paused.by, paused.reason) == ("ann", "by a test")
    page.get_by_role("link", name="go on").click()
    page.get_by_text("Group archive is paused by ann since").wait_for()
    system.group("archive").resume()


def test_the_keyboard_reaches_everything(page: Any) -> None:
    """The first tab skips the navigation, and each link is one tab further."""
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "page"
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('page').contains(document.activeElement)")


def test_a_reader_without_the_address_types_the_token(browser: Any, url: str) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(f"{url}group?name=packing")
    page.locator("input:focus").wait_for()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Group packing").wait_for()
    page.wait_for_load_state()  # with its style
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
    context.close()

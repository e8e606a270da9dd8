"""Make pictures of the site, and read it in a browser: `python tools/site_pictures.py [PAGE...]`.

First `python3 tools/make_site.py`. Each page becomes three pictures in build/site-pictures, as a
desktop, a phone and a dark desktop show it; PAGE is a name such as `guide`. It needs playwright and
a chromium of this machine, and for Chinese a font. The exit code is 1 if the browser finds that
something is wrong: an error, a file that is missing or comes from elsewhere, a page that is wider
than a phone, or a search that finds nothing.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from playwright.sync_api import Page, sync_playwright

BUILD = Path(__file__).resolve().parent.parent / "build"
SITE, PICTURES = BUILD / "site", BUILD / "site-pictures"
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
LOOKS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": DESKTOP, "color_scheme": "light"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "is_mobile": True, "has_touch": True},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
}
HEIGHT_MAX = 3_000  # of a picture: what a reader sees first, and two screens more


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, *_: object) -> None:
        """Do nothing."""


def picture(page: Page, base: str, name: str, file: Path) -> list[str]:
    """Write the picture of a page. Return what is wrong with it."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda got: wrong.append(got.url) if got.status >= 400 else None)
    page.on("request", lambda asked: wrong.append(asked.url) if base not in asked.url else None)
    page.goto(f"{base}/{name}.html")
    width, shown, height = page.evaluate(
        "[document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight]"
    )
    if width > shown:
        wrong.append(f"is {width} pixels wide, where {shown} are shown")
    file.parent.mkdir(parents=True, exist_ok=True)
    clip = {"x": 0, "y": 0, "width": shown, "height": min(height, HEIGHT_MAX)}
    page.screenshot(path=file, full_page=True, clip=clip)  # type: ignore[arg-type]
    return wrong


def search(page: Page, url: str, words: str) -> list[str]:
    """Return what is wrong with the answer to a search: nothing, if it leads to pages."""
    page.goto(url)
    page.keyboard.press("/")
    page.keyboard.type(words)
    try:
        page.wait_for_selector("a[href*='?h='], [role=dialog] a, .md-search a", timeout=15_000)
    except Exception as error:
        return [f"a search for {words!r} finds nothing: {error}"]
    page.screenshot(path=PICTURES / "search.png")
    return []


def main(names: list[str]) -> int:
    files = [SITE / f"{name}.html" for name in names] or sorted(
        file for file in SITE.rglob("*.html") if file.name != "404.html"
    )
    if not SITE.exists() or not all(file.exists() for file in files):
        sys.exit(__doc__)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    wrong = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for look, options in LOOKS.items():
                context = browser.new_context(**options)
                for file in files:
                    name = file.relative_to(SITE).with_suffix("")
                    page = context.new_page()
                    found = picture(page, base, f"{name}", PICTURES / look / f"{name}.png")
                    wrong += [f"{name}, {look}: {each}" for each in found]
                    page.close()
            wrong += search(browser.new_page(), f"{base}/index.html", "transaction")
            browser.close()
        server.shutdown()
    print("\n".join(wrong))
    print(f"{len(files)} pages, each as {', '.join(LOOKS)}, in {PICTURES}; {len(wrong)} are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

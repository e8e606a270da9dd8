"""Make the pictures of docs/dash.md: `python tools/dash_pictures.py`. It needs playwright and a
chromium of this machine.

The system is small: a worker that hangs, a group that is slow, one that nobody reads, a group that
is paused, and transactions that nobody decides. It works for half a minute, so that there are
curves.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import fmq  # noqa: E402
from fmq.dash import router  # noqa: E402
from fmq.dash.dash_server import DashServer  # noqa: E402
from fmq.dash.gate import new_token  # noqa: E402

WORKS_SECONDS = 30.0
PATIENCE_SECONDS = 10.0  # so that nobody has to wait a minute for a verdict
PICTURES = (("overview", "./", "light"), ("group", "group?name=packing", "dark"))


def work(engine: fmq.Engine, ends: Event) -> None:
    """Send, and let two groups read, one of them too slowly."""
    with (
        engine.consumer("orders", group="mail", member="mail-1") as mail,
        engine.consumer("orders", group="report", member="report-1") as report,
        engine.consumer(
            "orders", group="packing", member="packer-1", ordered=True, lease_seconds=600
        ) as packing,
        engine.consumer("invoices", group="billing", member="billing-1") as billing,
    ):
        held = packing.poll(limit=2)
        number = 0
        while not ends.wait(0.02):
            number += 1
            engine.send("orders", b'{"order": %d}' % number, key=f"customer-{number % 7}")
            for delivery in mail.poll(limit=8):
                delivery.reject("no such address") if delivery.offset % 90 == 7 else delivery.ack()
            if number % 3 == 0:
                engine.send("invoices", b"one")
                for delivery in report.poll(limit=2):
                    delivery.ack()
            for delivery in billing.poll(limit=8):
                delivery.ack()
        del held


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    path = str(Path(tempfile.mkdtemp()) / "shop")
    ends = Event()
    with fmq.open(path) as engine, engine.serve():
        engine.send_many("orders", [fmq.Message(b"{}", key="customer-1")] * 40)
        engine.send("invoices", b"one")
        engine.create_group("archive", "orders")
        engine.create_group("printing", "invoices")
        engine.group("printing").pause(reason="no paper until Monday", by="ann")
        for number in range(3):
            tx = engine.transaction(tx_id=f"order-{number}", producer="checkout")
            tx.send("orders", b"{}")
            tx.prepare()
        worker = Thread(target=work, args=(engine, ends))
        worker.start()
        token = new_token()
        with fmq.connect(path, start=False) as client:
            app = router(client, token, directory=path, patience=PATIENCE_SECONDS, by="ann")
            with DashServer(app, "127.0.0.1:0") as server, sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox"]
                )
                pages = []
                for name, at, scheme in PICTURES:
                    context = browser.new_context(
                        viewport={"width": 1180, "height": 800},
                        color_scheme=scheme,  # type: ignore[arg-type]
                    )
                    page = context.new_page()
                    page.goto(f"{server.url}enter?token={token}")
                    page.goto(f"{server.url}{at}")
                    pages.append((name, page))
                time.sleep(WORKS_SECONDS)
                for name, page in pages:
                    page.screenshot(path=ROOT / "docs" / f"dash-{name}.png", full_page=True)
                browser.close()
        ends.set()
        worker.join()
    shutil.rmtree(Path(path).parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())

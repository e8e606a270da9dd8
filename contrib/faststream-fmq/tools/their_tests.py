"""FastStream's own tests of a broker, with FmqBroker in the place of theirs.

    python contrib/faststream-fmq/tools/their_tests.py CHECKOUT

CHECKOUT is a directory with FastStream's source, as its repository has it; its packages leave the
tests out. More arguments go to pytest. A test that fmq fails on purpose is in `OTHERWISE`, with the
reason: it must fail, and all others must pass. Those of what fmq has not are left out: requests,
batches, routers for FastAPI, templates of addresses. `CASES` run on an engine that is served,
`IN_MEMORY` on the test broker.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import pytest

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent
CASES = {
    "connection": ("BrokerConnectionTestcase",),
    "consume": ("BrokerRealConsumeTestcase",),
    "publish": ("BrokerPublishTestcase",),
    "router": ("RouterTestcase",),
    "include_router": ("IncludeSubscriberTestcase", "IncludePublisherTestcase"),
    "parser": ("CustomParserTestcase",),
    "middlewares": ("MiddlewareTestcase", "ExceptionMiddlewareTestcase"),
    "publish_command": ("BatchPublishCommandTestcase",),
}
IN_MEMORY = {
    "consume": ("BrokerConsumeTestcase",),
    "testclient": ("BrokerTestclientTestcase",),
    "router": ("RouterLocalTestcase",),
    "middlewares": ("MiddlewaresOrderTestcase",),
    "codec": ("CodecTestcase",),
}
OTHERWISE = {"test_publisher_response_with_model": "it ends with a request, which fmq refuses"}


@pytest.fixture
def queue() -> str:
    """A topic. Each of these is a name that their tests ask for."""
    return str(uuid4())


@pytest.fixture
def mock() -> MagicMock:
    return MagicMock()


@pytest.fixture(name="mock2")
def second_mock() -> MagicMock:
    return MagicMock()


@pytest.fixture(name="event")
def first_event() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture(name="event2")
def second_event() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture(name="event3")
def third_event() -> asyncio.Event:
    return asyncio.Event()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


def pytest_configure(config: pytest.Config) -> None:
    for name in ("asyncio", "all"):
        config.addinivalue_line("markers", f"{name}: of FastStream")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect a failure of each test that is named in `OTHERWISE`."""
    for item in items:
        reason = OTHERWISE.get(item.name) or OTHERWISE.get(item.name.partition("[")[0])
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def made() -> Iterator[tuple[str, type]]:
    """Yield their classes of tests, each with what it needs of fmq."""
    import fmq
    import fmq.aio
    from faststream_fmq import FmqBroker, FmqRoute, FmqRouter, TestFmqBroker
    from faststream_fmq.command import FmqPublishCommand
    from faststream_fmq.router import FmqPublisherRoute
    from faststream_fmq.testing import FakeProducer

    class WithGroup:
        """Their tests name no group."""

        def subscriber(self, topic: str, *, group: str = "tests", **named: Any) -> Any:
            return super().subscriber(topic, group=group, **named)  # type: ignore[misc]

    class Broker(WithGroup, FmqBroker):
        pass

    class Router(WithGroup, FmqRouter):
        pass

    class OnAnEngine:
        """The brokers of a test share an engine."""

        route_class = FmqRoute
        publisher_class = FmqPublisherRoute
        publish_command_cls = FmqPublishCommand

        @pytest.fixture(autouse=True)
        def engine(self, tmp_path: Path) -> Iterator[None]:
            self.path = tmp_path / "data"
            with fmq.open(self.path) as self.opened:
                self.opened.serve()
                yield

        @pytest.fixture
        def settings(self) -> None:
            """What the address of a server would be."""

        def broker(self) -> FmqBroker:
            return Broker(self.path)

        def get_broker(self, **named: Any) -> FmqBroker:
            return Broker(self.path, **{"apply_types": False, "logger": None} | named)

        def get_router(self, **named: Any) -> FmqRouter:
            return Router(**named)

    class InMemory(OnAnEngine):
        """As a program's own tests have them: with no engine."""

        @pytest.fixture
        def fake_producer_cls(self) -> type:
            return FakeProducer

        def patch_broker(self, *brokers: FmqBroker, **named: Any) -> Any:
            return TestFmqBroker(*brokers, **named)

    for kind, cases in ((OnAnEngine, CASES), (InMemory, IN_MEMORY)):
        for module, names in cases.items():
            for name in names:
                theirs = getattr(import_module(f"tests.brokers.base.{module}"), name)
                yield f"Test{name}{kind.__name__}", type(name, (kind, theirs), {})


def main(checkout: Path, *more: str) -> int:
    """Run their tests, with their folder `tests` as the package of this name."""
    path = os.pathsep.join(map(str, (checkout, ROOT, HERE.parent, ROOT.parent.parent)))
    options = ("-c", os.devnull, "-p", HERE.stem, "-p", "no:cacheprovider", "-q", "-rxX")
    return subprocess.call(
        [sys.executable, "-m", "pytest", *options, "--rootdir", checkout, HERE, *more],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": path},
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "tests" / "brokers" / "base").is_dir():
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
else:
    globals().update(made())

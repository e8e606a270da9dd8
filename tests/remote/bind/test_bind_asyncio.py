"""The tests of tests/bind/test_asyncio.py, through a client."""

from pathlib import Path

import pytest

from tests.bind.shop import connect
from tests.bind.test_asyncio import *  # noqa: F403

del engine  # noqa: F821 - the client of conftest.py instead


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    """Make the tables of the shop."""
    connect(tmp_path).close()


# They open engines of their own, or none.
del test_the_loop_does_not_wait_for_the_disk  # noqa: F821
del test_a_database_that_may_lose_commits_is_warned_about_or_refused  # noqa: F821

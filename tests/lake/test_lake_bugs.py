"""Bugs that a delivery could have are found by the disturbances of test_lake.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fmq.lake import LakeDelivery
from tests.lake.conftest import add_to
from tests.lake.planted import BUGS, planted
from tests.lake.tables import EXACT, deliver_meddled, differences, url_of
from tests.tool import said_by

CASES = [(to, bug) for to, bugs in BUGS.items() for bug in (*bugs, None)]


class Died(Exception):
    """A process that ends at this point."""


def dies_between(path: Path, url: str, to: str, bug: str | None) -> None:
    """A delivery dies between the two commits that the bug makes of one."""

    def die() -> None:
        raise Died

    with suppress(Died), closing(planted(url, to, bug, die)) as table:
        LakeDelivery(str(path), table, rows=100).run(once=True)
    settle(path, url, to, bug)


def two_at_once(path: Path, url: str, to: str, bug: str | None) -> None:
    """Another loop delivers some batches between the look and the commit of this one."""
    asked: list[int] = []

    def other() -> None:
        asked.append(1)
        if len(asked) == 1:
            settle(path, url, to, bug, rows=40)

    deliver_meddled(path, url, to, other, bug, rows=100)


def one_behind_the_other(path: Path, url: str, to: str, bug: str | None) -> None:
    """Another loop delivers everything between two batches of this one."""
    with closing(planted(url, to, bug)) as table:
        delivery = LakeDelivery(str(path), table)
        delivery.run(once=True)
        add_to(path, 5)
        settle(path, url, to, None)
        add_to(path, 5)
        delivery.run(once=True)


def settle(path: Path, url: str, to: str, bug: str | None, rows: int = 1000) -> None:
    with closing(planted(url, to, bug)) as table:
        LakeDelivery(str(path), table, rows=rows).run(once=True)


DISTURBED: dict[str | None, list[Callable[[Path, str, str, str | None], None]]] = {
    "apart": [dies_between],
    "first": [dies_between],
    "path": [two_at_once],
    "remembered": [one_behind_the_other],
    "retries": [two_at_once],
    "overwrites": [two_at_once],
    None: [two_at_once, one_behind_the_other],
}


@pytest.mark.parametrize(("to", "bug"), CASES)
def test_a_planted_bug_is_found(shop: Path, tmp_path: Path, to: str, bug: str | None) -> None:
    """Without a bug the same disturbances change nothing."""
    if to != "parquet":
        pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[to])
    for number, disturb in enumerate(DISTURBED[bug]):
        url = url_of(tmp_path / str(number), to)
        disturb(shop, url, to, bug)
        assert (differences(shop, url, to) == EXACT) == (bug is None)


@pytest.mark.parametrize("to", ["delta", "parquet"])
def test_killed_deliveries_and_engines_lose_and_double_nothing(tmp_path: Path, to: str) -> None:
    """`python tools/kill_deliver.py --to iceberg --kills 50` and the like do it for longer."""
    if to != "parquet":
        pytest.importorskip("deltalake")
    print(said_by("kill_deliver", tmp_path, "--to", to, "--kills", 3, "--seed", 3))

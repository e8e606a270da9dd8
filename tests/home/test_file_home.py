"""`fmq.open(path, home="file:///...")`: the public call, on real directories."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import fmq
import fmq.aio
from fmq.errors import BadName, HomeRefused, Locked, NotAStore, TakenOver


def bodies(engine: fmq.Engine) -> list[bytes]:
    return [bytes(each.body) for each in engine.read("t")]


def test_another_directory_takes_over_and_the_old_owner_is_told_who_has_it(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home) as first:
        first.send("t", b"1")
        with fmq.open(tmp_path / "b", home=home) as second:
            with pytest.raises(
                TakenOver, match=r"process \d+ on .*This call was not sent"
            ) as caught:
                first.send("t", b"2")
            assert caught.value.home == home
            second.send("t", b"3")
            assert bodies(second) == [b"1", b"3"]
        with pytest.raises(TakenOver):
            first.send("t", b"4")
    with fmq.open(tmp_path / "a", home=home) as again:
        assert bodies(again) == [b"1", b"3"]


def test_a_machine_that_is_lost_loses_nothing(tmp_path: Path) -> None:
    """A process is killed in the middle of its sends. An empty directory shows all that it said."""
    home = f"file://{tmp_path}/home"
    code = (
        "import fmq, itertools\n"
        f"engine = fmq.open({str(tmp_path / 'lost')!r}, home={home!r})\n"
        "for number in itertools.count():\n"
        "    engine.send('t', b'%d' % number)\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as lost:
        assert lost.stdout is not None
        said = [int(lost.stdout.readline()) for _ in range(40)]
        lost.kill()
        said += [int(line) for line in lost.stdout]
    with fmq.open(tmp_path / "new", home=home) as engine:
        found = [int(body) for body in bodies(engine)]
    assert found == [*range(len(found))]
    assert len(said) <= len(found) <= len(said) + 1


def test_a_transaction_that_was_prepared_elsewhere_is_decided_here(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home) as first:
        tx = first.transaction(tx_id="order 1")
        tx.send("t", b"paid")
        tx.prepare()
    with fmq.open(tmp_path / "b", home=home) as second:
        assert [each.tx_id for each in second.undecided()] == ["order 1"]
        second.decide("order 1", "commit")
        assert bodies(second) == [b"paid"]


def test_a_loop_opens_a_home(tmp_path: Path) -> None:
    async def send() -> None:
        async with fmq.aio.open(tmp_path / "a", home=f"file://{tmp_path}/home") as engine:
            await engine.send("t", b"1")

    asyncio.run(send())
    with fmq.open(tmp_path / "b", home=f"file://{tmp_path}/home") as engine:
        assert bodies(engine) == [b"1"]


@pytest.mark.parametrize(
    "address", ["shop", "file://shop", "file://", "ftp://host/shop", "", "s3:/b"]
)
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadName, match="not the address of a home"):
        fmq.open(tmp_path / "a", home=address)
    assert not (tmp_path / "a").exists()


def test_a_directory_of_another_program_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAStore, match=r"holds .notes\.txt."):
        fmq.open(tmp_path.parent / f"{tmp_path.name}-cache", home=f"file://{tmp_path}")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_home_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises((HomeRefused, NotAStore)):
        fmq.open(tmp_path / "a", home=f"file://{tmp_path}/file/home")


def test_two_engines_do_not_share_a_cache(tmp_path: Path) -> None:
    """The second one is refused before it takes over, so the first one goes on."""
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home) as first:
        with pytest.raises(Locked):
            fmq.open(tmp_path / "a", home=home)
        first.send("t", b"1")
        assert bodies(first) == [b"1"]


def test_a_home_of_many_segments_needs_few_open_files(tmp_path: Path) -> None:
    """Else a home larger than the limit of a process could not be taken over."""
    home = f"file://{tmp_path}/home"
    options = fmq.Options(segment_bytes=4096, retain_bytes=None)
    with fmq.open(tmp_path / "a", options, home=home) as engine:
        for _ in range(80):
            engine.send("t", bytes(2000))
    program = (
        "import resource, fmq; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        f"with fmq.open({str(tmp_path / 'b')!r}, home={home!r}) as engine:\n"
        "    print(len(engine.read('t', offset=77)))"
    )
    assert subprocess.check_output([sys.executable, "-c", program]).split() == [b"3"]

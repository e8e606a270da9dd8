"""An export to an object store has what one to a directory has, whatever is killed meanwhile.

The server is SeaweedFS, or moto where there is none.
`FMQ_BUDGET=20 python3 tools/dev.py test tests/export/test_in_bucket.py`
kills at each request.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import fmq
import fmq.table
from fmq.cli.main import main
from fmq.errors import BadOption, Locked
from fmq.export import ExportFailed, ExportReport, NotAnExport, OtherExport, Progress, export
from tests import budget
from tests.export.dying_requests import DyingRequests
from tests.export.killing import CHUNK_BYTES
from tests.export.reading import Out, expected
from tools.home_servers import AzuriteHome, SeaweedHome, missing

obstore = pytest.importorskip("obstore")
NAME = "archive"
ADDRESS = f"s3://homes/{NAME}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a server that the environment names."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("ENDPOINT_URL", "REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            environment.setenv(f"AWS_{name}", "")  # so that it is undone
        made = seaweed(tmp_path_factory) if not missing("seaweedfs") else moto()
        yield os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
        made()


def seaweed(folders: pytest.TempPathFactory) -> Callable[[], None]:
    """Start a server, and return what ends it."""
    return SeaweedHome(folders.mktemp("seaweed")).end


def moto() -> Callable[[], None]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ["AWS_ENDPOINT_URL"] = endpoint = f"http://{host}:{port}"
    os.environ |= {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key"}
    os.environ["AWS_SECRET_ACCESS_KEY"] = "secret"
    with urlopen(Request(f"{endpoint}/homes", method="PUT")):
        return server.stop  # type: ignore[no-any-return]


@pytest.fixture
def bucket(server: str) -> Iterator[Any]:
    """All objects of the bucket."""
    how: Any = {"allow_http": True}
    store = obstore.store.from_url("s3://homes", client_options=how)
    yield store
    obstore.delete(store, [each["path"] for page in obstore.list(store) for each in page])


@pytest.fixture
def copied(bucket: Any, tmp_path: Path) -> Callable[[str], Out]:
    """Return what is below the address, as a directory."""

    def copy(name: str) -> Out:
        out = Out(tmp_path / "copied" / name)
        shutil.rmtree(out.path, ignore_errors=True)
        for page in obstore.list(bucket, prefix=f"{name}/"):
            for each in page:
                path = out.path / each["path"].removeprefix(f"{name}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(obstore.get(bucket, each["path"]).bytes()))
        return out

    return copy


def to_bucket(path: str | Path, **options: Any) -> ExportReport:
    return export(str(path), ADDRESS, engine="arrow", **options)


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_a_bucket_has_what_a_directory_has(
    shop: str, strange: str, tmp_path: Path, copied: Callable[[str], Out], format: str
) -> None:
    """Names and bytes of the files are the same, of strange topics, too."""
    for path in (shop, strange):
        name = Path(path).name
        folder = Out(tmp_path / name)
        there = export(path, str(folder), format=format, chunk_bytes=CHUNK_BYTES)
        here = export(path, f"s3://homes/{name}/", format=format, chunk_bytes=CHUNK_BYTES)
        assert (here.rows, here.files) == (there.rows, there.files)
        out = copied(name)
        assert out.files() == folder.files() != {}
        assert os.listdir(out.path / "_fmq") == ["export.json"]


def test_it_is_added_to_and_read_by_its_address(
    tmp_path: Path, server: str, copied: Callable[[str], Out]
) -> None:
    """A file that is there stays, and a run that finds nothing new makes none."""
    path = tmp_path / "shop"
    with fmq.open(path) as engine:
        engine.send_many("orders", [b"one"] * 10)
    query = f"?scheme=http&endpoint_override={quote(server)}&region=us-east-1"
    assert main(["export", str(path), ADDRESS + query]) == 0
    first = copied(NAME).files()
    assert to_bucket(path).rows == 0
    with fmq.open(path) as engine:
        engine.send("orders", b"two")
    assert to_bucket(path).rows == 1
    assert first.items() < copied(NAME).files().items()
    assert copied(NAME).rows() == expected(str(path), "parquet")


def test_a_journal_in_a_bucket_is_exported_to_one(
    shop: str, bucket: Any, copied: Callable[[str], Out]
) -> None:
    for file in Path(shop).iterdir():
        if file.is_file() and file.suffix != ".spare":
            obstore.put(bucket, f"journals/shop/{file.name}", file.read_bytes())
    assert to_bucket("s3://homes/journals/shop").rows == 1900
    assert copied(NAME).rows() == expected(shop, "parquet")
    assert to_bucket(shop).rows == 0


@pytest.mark.skipif(bool(missing("azurite")), reason=missing("azurite"))
def test_a_container_of_azure_is_exported_to(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "ENDPOINT"):
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", "")  # so that it is undone
    azurite = AzuriteHome(tmp_path)
    try:
        assert export(shop, "az://homes/archive", chunk_bytes=CHUNK_BYTES).rows == 1900
        assert export(shop, "az://homes/archive").rows == 0
        how: Any = {"allow_http": True}
        store = obstore.store.from_url("az://homes/archive", client_options=how)
        found = {each["path"]: each["size"] for page in obstore.list(store) for each in page}
    finally:
        azurite.end()
    folder = Out(tmp_path / "folder")
    export(shop, str(folder), chunk_bytes=CHUNK_BYTES)
    sizes = {name: len(data) for name, data in folder.files().items()}
    assert {name: size for name, size in found.items() if name[0] != "_"} == sizes
    assert [name for name in found if name[0] == "_"] == ["_fmq/export.json"]


# --- what is killed ------------------------------------------------------------------------------


def export_as_told(path: str, address: str) -> None:
    """What a child does."""
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
    export(path, address, engine="arrow", chunk_bytes=CHUNK_BYTES)


def sums(out: Out) -> set[tuple[str, int]]:
    """What files there are. Of their bytes a failure would show too many."""
    return {(name, zlib.crc32(data)) for name, data in out.files().items()}


def noted(out: Out) -> set[str]:
    """What files the manifest stands for."""
    state = out.path / "_fmq" / "export.json"
    said: dict[str, Any] = (
        json.loads(state.read_text()) if state.exists() else {"chunks": 0, "publishing": None}
    )
    moved = said["publishing"]["moves"].values() if said["publishing"] else ()
    done = {name for name in out.files() if int(Path(name).name[:8]) < said["chunks"]}
    return done | {*moved}


def test_a_killed_and_repeated_export_gives_the_same_files(
    shop: str, server: str, tmp_path: Path, copied: Callable[[str], Out]
) -> None:
    """It is killed (SIGKILL) at a request, before the server has it or before it has the answer.
    What lies at its place then is a part of the whole, file by file, and was noted before.
    """
    whole = Out(tmp_path / "whole")
    export(shop, str(whole), engine="arrow", chunk_bytes=CHUNK_BYTES)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fmq.export", "fmq.export.bucket_destination"])
    dying = DyingRequests(server)
    query = f"?scheme=http&endpoint_override={quote(dying.address)}&region=us-east-1"

    def run(name: str, at: int, *, answered: bool) -> int | None:
        child = context.Process(target=export_as_told, args=(shop, f"s3://homes/{name}{query}"))
        dying.expect(at, child.kill, answered=answered)
        child.start()
        child.join()
        return child.exitcode

    assert run("first", -1, answered=False) == 0
    requests = list(dying.seen)
    assert len(requests) > 20
    for at in budget.draw(range(len(requests)), 8):
        for answered in (False, True):
            name = f"killed-{at}-{answered}"
            assert run(name, at, answered=answered) == -signal.SIGKILL, requests[at]
            out = copied(name)
            assert sums(out) <= sums(whole), requests[at]
            assert set(out.files()) <= noted(out), requests[at]
            assert run(name, -1, answered=False) == 0
            out = copied(name)
            assert sums(out) == sums(whole), requests[at]
            assert os.listdir(out.path / "_fmq") == ["export.json"], requests[at]
    dying.close()


def test_of_two_exports_the_first_one_ends(shop: str, copied: Callable[[str], Out]) -> None:
    """Whenever another one goes on in the middle of it, each row is there once."""
    whole = expected(shop, "parquet")
    others = 0

    def other(progress: Progress) -> None:
        nonlocal others
        if progress.rows > 700 and not others:
            others += 1
            to_bucket(shop, chunk_bytes=CHUNK_BYTES)

    with pytest.raises(Locked, match="another export goes on here"):
        to_bucket(shop, chunk_bytes=CHUNK_BYTES, progress=other)
    assert others
    assert copied(NAME).rows() == whole
    assert to_bucket(shop).rows == 0
    assert os.listdir(copied(NAME).path / "_fmq") == ["export.json"]


# --- what is refused -----------------------------------------------------------------------------


def test_other_files_and_other_exports_are_refused_untouched(
    shop: str, strange: str, bucket: Any, copied: Callable[[str], Out]
) -> None:
    obstore.put(bucket, "archive/letter.txt", b"dear")
    with pytest.raises(NotAnExport, match=r"holds 'letter.txt', which no export made"):
        to_bucket(shop)
    assert os.listdir(copied(NAME).path) == ["letter.txt"]
    obstore.delete(bucket, "archive/letter.txt")
    to_bucket(shop)
    with pytest.raises(OtherExport, match="begun with the format 'parquet'"):
        to_bucket(shop, format="csv")
    with pytest.raises(OtherExport, match="is not the same journal"):
        to_bucket(strange)
    obstore.put(bucket, "archive/_fmq/export.json", json.dumps({"version": 1}).encode())
    with pytest.raises(NotAnExport, match="not what an export writes down"):
        to_bucket(shop)


def test_what_an_address_may_not_say_is_refused_by_name(shop: str) -> None:
    with pytest.raises(BadOption, match=r"'secret' is nothing that the query"):
        export(shop, "s3://homes/a?secret=x")
    with pytest.raises(BadOption, match=r"'region' is nothing that the query"):
        export(shop, "gs://homes/a?region=x")


def test_a_store_that_cannot_be_reached_is_an_error_that_says_so(shop: str, server: str) -> None:
    with pytest.raises(ExportFailed, match="What was exported before is there as it was"):
        export(shop, "s3://no-such-bucket/a")
